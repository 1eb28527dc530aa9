"""The wheel carries the folders that a person edits, and the package finds them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[1]
LOOK = """
from toolkit.workspace import bundled
import toolkit
print(toolkit.__file__)
for kind in ("datasets", "training", "replay"):
    print(bundled(kind))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel would put into an environment."""
    folder = tmp_path_factory.mktemp("wheel")
    builder = WheelBuilder(str(ROOT))
    (wheel,) = list(builder.build(directory=str(folder / "dist"), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("kind", ["datasets", "training", "replay"])
def test_bundled_folders_are_whole(installed: Path, kind: str) -> None:
    inside = installed / "toolkit" / "_bundled" / kind
    expected = {
        path.relative_to(ROOT / kind)
        for path in (ROOT / kind).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected
    assert {path.relative_to(inside) for path in inside.rglob("*") if path.is_file()} == expected


def test_nothing_lands_beside_the_package(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"toolkit"}
    assert not list(installed.rglob("__pycache__"))


def test_what_is_no_python_comes_along(installed: Path) -> None:
    for pattern in ("*.j2", "*.css", "*.js", "py.typed"):
        own = {path.relative_to(ROOT) for path in (ROOT / "toolkit").rglob(pattern)}
        assert own
        assert all((installed / path).is_file() for path in own)


def test_the_installed_package_finds_them(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-B",
            "-c",
            f"import sys; sys.path.insert(0, {str(installed)!r})\n{LOOK}",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    package, *folders = done.stdout.split()
    assert Path(package).is_relative_to(installed)
    for folder in folders:
        assert Path(folder).parent == installed / "toolkit" / "_bundled"
        assert Path(folder).is_dir()
