"""The shape of the code: who imports whom, how long modules are, what never enters."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "toolkit"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 350
MAX_BYTES = 30 * 10**6
MAX_LOG_BYTES = 6 * 10**6

MAX_MODULES = 15

# A format is a folder, found by itself; none imports another.
FORMATS = sorted(
    f"formats.{path.parent.name}" for path in (ROOT / "toolkit/logs/formats").glob("*/__init__.py")
)

# Rooms of each layer, from the ground up: modules of a room import those of rooms before it.
# Modules that lie beside the rooms are the ground on which these stand, or put them together.
ROOMS = {
    "logs": [
        "files", "rows", *FORMATS, "formats", "read",
    ],
    "datasets": ["read", "analysis", "write"],
    "features": ["task", "loops", "gpu", "extractors"],
    "training": ["recipes", "table", "models", "members", "evaluate", "trained", "tasks"],
    "search": ["moves", "models", "schedulers", "strategies"],
    "replay": ["record", "statistics", "execute", "forecast"],
    "live": ["measure", "space", "workloads", "tune", "confirm", "tvm", "race"],
    "networks": ["importing", "graph", "codegen"],
    "reports": ["page", "sections"],
    "cli": ["commands"],
}  # fmt: skip

VOCABULARY = {
    "toolkit", "records", "schema", "errors", "registry", "progress", "workspace", "show",
    "atomic", "children", "cluster", "compiler", "locks", "results", "toml_file",
}  # fmt: skip
# The base modules of two roles name what a group of candidates or a scorer is, and know records
# alone: layers below the role may speak of it.
ROLES = {"features.base", "search.base", "search.graph", "search.moves.knobs"}

# What each layer may import, itself apart.
MAY_IMPORT: dict[str, set[str]] = {
    "vocabulary": set(),
    "roles": {"vocabulary"},
    "logs": {"vocabulary"},
    "datasets": {"vocabulary", "roles", "logs"},
    "features": {"vocabulary", "roles", "logs", "datasets"},
    "training": {"vocabulary", "roles", "logs", "datasets", "features"},
    "search": {"vocabulary", "roles"},
    "replay": {"vocabulary", "roles", "datasets", "features", "training", "search"},
    "live": {"vocabulary", "roles", "logs", "datasets", "features", "training", "search"},
    "networks": {"vocabulary", "live", "training"},
    "reports": {"vocabulary", "datasets", "features", "training", "search", "replay"},
    "testing": {"vocabulary", "roles", "logs", "datasets", "features", "training", "search"},
    "cli": {
        "vocabulary", "logs", "datasets", "features", "training", "search", "replay", "live",
        "networks", "reports",
    },
}  # fmt: skip


def module_name(path: Path) -> str:
    """Dotted name below ``toolkit``; the package itself is ``toolkit``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "toolkit"


def layer(name: str) -> str:
    """Layer of a module below ``toolkit``."""
    if name in ROLES:
        return "roles"
    first = name.partition(".")[0]
    return "vocabulary" if first in VOCABULARY else first


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Every module that a file imports, wherever in it, with its line."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield str(node.module), node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


@cache
def own_imports(path: Path) -> tuple[tuple[str, int], ...]:
    """Modules of this package that a file imports, as named below ``toolkit``."""
    known = {module_name(other) for other in MODULES}
    own = [entry for entry in imports(path) if entry[0].partition(".")[0] == "toolkit"]
    found = [(name.removeprefix("toolkit."), line) for name, line in own]
    return tuple((name, line) for name, line in found if name in known)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_go_one_way(path: Path) -> None:
    own = layer(module_name(path))
    assert own in MAY_IMPORT, f"{own} is no layer of DESIGN: say here what it may import"
    for other, line in own_imports(path):
        # ``from toolkit.features.base import x`` names its package on the way: that is no use.
        if other == "toolkit" or any(
            deeper.startswith(other + ".") and at == line for deeper, at in own_imports(path)
        ):
            continue
        target = layer(other)
        allowed = target == own or target in MAY_IMPORT[own]
        assert allowed, f"{path.relative_to(ROOT)}:{line}: {own} may not import toolkit.{other}"


def room(path: Path) -> tuple[str, str]:
    """Layer and room of a module; no room for one that lies beside the rooms."""
    first, _, rest = ".".join(path.relative_to(PACKAGE).parent.parts).partition(".")
    return first, rest


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_rooms_import_rooms_below_them(path: Path) -> None:
    own, place = room(path)
    if not place:
        return
    order = ROOMS[own]
    paths = {module_name(other): other for other in MODULES}
    for other, line in own_imports(path):
        there, below = room(paths[other])
        if there == own and below and paths[other].name != "__init__.py":
            assert order.index(below) <= order.index(place), f"{path}:{line}: {other}"
            apart = below in FORMATS and place in FORMATS and below != place
            assert not apart, f"{path}:{line}: a format imports another"


def test_a_room_holds_what_one_can_look_over() -> None:
    counts = Counter(path.parent for path in MODULES)
    assert {str(room): n for room, n in counts.items() if n > MAX_MODULES} == {}


def test_search_knows_little() -> None:
    """A strategy knows a space: of the vocabulary it needs no schema and no workspace."""
    for path in sorted((PACKAGE / "search").rglob("*.py")):
        for other, line in own_imports(path):
            assert layer(other) == "search" or other in {
                "toolkit", "records", "errors", "registry", "progress", "search", *ROLES,
            }, f"{path.name}:{line}"  # fmt: skip


STORES = ("features.extractors.store_worker",)


def test_tvm_is_imported_where_a_device_is_meant_only() -> None:
    for path in MODULES:
        name = module_name(path)
        if name.startswith(("live.", "networks.", *STORES)):
            continue
        for other, line in imports(path):
            assert other.partition(".")[0] not in {"tvm", "tvm_ffi"}, f"{name}:{line}"


def test_only_the_typer_that_is_pinned_is_used() -> None:
    for path in MODULES:
        assert all(other.partition(".")[0] != "click" for other, _ in imports(path)), path


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_nothing_is_unpickled(path: Path) -> None:
    banned = {"pickle", "cPickle", "joblib", "dill", "shelve", "marshal", "cloudpickle"}
    for other, line in imports(path):
        assert other.partition(".")[0] not in banned, f"line {line}: {other}"


def test_every_process_is_started_in_one_place() -> None:
    """Where it is seen to that it ends with its parent and imports nothing of the folder."""
    starts = {"Popen", "run", "call", "check_call", "check_output"}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if isinstance(of, ast.Name) and of.id == "subprocess" and node.func.attr in starts:
                    assert path.name == "children.py", f"{path}:{node.lineno}"
        assert not {"ProcessPoolExecutor", "Process"} & {
            other.rpartition(".")[2] for other, _ in imports(path) if "psutil" not in other
        }, path


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES
    assert path.name not in {"utils.py", "helpers.py", "misc.py", "common_utils.py"}
    empty = path.name == "__init__.py" and not text.strip()
    assert empty or ast.get_docstring(ast.parse(text)), "a module begins with what it is for"


def test_no_two_public_classes_share_a_name() -> None:
    found = Counter(
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in found.items() if count > 1] == []


def test_public_names_have_docstrings() -> None:
    missing = []
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"
            if public and not ast.get_docstring(node):  # type: ignore[arg-type]
                missing.append(f"{module_name(path)}.{node.name}")  # type: ignore[attr-defined]
    assert missing == []


@pytest.mark.parametrize("words", [["--help"], ["tune", "--help"]], ids=" ".join)
def test_the_command_line_starts_without_heavy_libraries(words: list[str]) -> None:
    heavy = ("tvm", "polars", "pyarrow", "altair", "vl_convert", "lightgbm", "xgboost", "sklearn",
             "scipy", "jinja2", "numpy", "mlflow")  # fmt: skip
    if len(words) == 1:
        heavy += "rich", "pydantic", "toolkit.cli.common"
    code = f"""
import sys, toolkit.cli.main
try:
    toolkit.cli.main.app({words!r}, prog_name="toolkit")
finally:
    print([m for m in {heavy!r} if m in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "Usage: toolkit" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_reading_logs_needs_no_tvm() -> None:
    parts = "logs.read.detect, toolkit.datasets, toolkit.features, toolkit.training, toolkit.search"
    code = (
        f"import sys, toolkit.{parts}, toolkit.replay, toolkit.reports; print('tvm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False"


def project_files() -> list[Path]:
    """Files of the project: what git tracks, or all in its folders where there is no git."""
    if (ROOT / ".git").exists():
        done = subprocess.run(
            ["git", "ls-files", "-z"], capture_output=True, text=True, check=True, cwd=ROOT
        )
        return [ROOT / name for name in done.stdout.split("\0") if name]
    folders = ("toolkit", "datasets", "training", "replay", "tests", "docs")
    return [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]


def test_no_file_is_large() -> None:
    sizes = {path: path.stat().st_size for path in project_files() if path.is_file()}
    assert {path: size for path, size in sizes.items() if size > MAX_BYTES} == {}
    logs = [size for path, size in sizes.items() if path.is_relative_to(ROOT / "datasets")]
    assert 0 < sum(logs) <= MAX_LOG_BYTES


@pytest.mark.parametrize("name", ["datasets", "training", "replay", "docs"])
def test_top_level_folders_are_no_packages(name: str) -> None:
    """A package ``datasets`` beside the toolkit would overwrite another's in an environment."""
    assert (ROOT / name).is_dir()
    # A log's workloads are a file for another program to run, in a folder that is no name.
    others = {"workloads.py", "hooks.py"}  # those of the site, for MkDocs
    code = [path for path in (ROOT / name).rglob("*.py") if path.name not in others]
    assert code == []
