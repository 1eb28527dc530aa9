"""Shared fixtures; tests on real logs run only where the logs are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Where a container's image sets it, each process that a test starts compiles the toolkit anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# No test judges by its own time: a first call may load a library.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

REAL_LOGS = Path(__file__).resolve().parents[2] / "shared" / "logs"
# They judge by how long programs take: two workers that measure at once would slow one another.
MEASURE = (
    *(f"tests/live/test_{name}.py" for name in ("audit", "blocks", "confirm", "finalists")),
    *(f"tests/live/test_{name}.py" for name in ("guard", "leak", "race", "remote", "rpc")),
    *(f"tests/live/test_{name}.py" for name in ("slowed", "threads", "timing")),
    "tests/cli/test_live.py",
    "tests/cli/test_core_counts.py",
)
LONG = ("tests/live/", "tests/networks/", "tests/cli/", "tests/test_")
"""Most of these start processes: they come early, so that no worker waits at the end."""


class OneWorkerAFile(LoadScopeScheduling):
    """One worker to a file, and one to all that judges by time.

    xdist's own groups (``--dist loadgroup``) do nothing with pytest 9.2 (pytest-xdist #1386).
    """

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test."""
        path = nodeid.partition("::")[0]
        return "measure" if path.startswith(MEASURE) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Distribute tests so, in their order."""
    config.option.loadscopereorder = False
    return OneWorkerAFile(config, log)


@pytest.hookimpl(trylast=True)  # after they were shuffled
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long; skip ``real_logs`` where they are not."""
    items.sort(key=lambda item: [not item.nodeid.startswith(each) for each in (MEASURE, LONG)])
    if REAL_LOGS.is_dir():
        return
    skip = pytest.mark.skip(reason="the real logs are not beside this checkout")
    for item in items:
        if "real_logs" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def real_logs() -> Path:
    """Folder of the real logs."""
    return REAL_LOGS
