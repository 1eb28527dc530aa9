"""Shared fixtures; tests on real logs run only where the logs are."""

from __future__ import annotations

from pathlib import Path

import pytest

REAL_LOGS = Path(__file__).resolve().parents[2] / "shared" / "logs"
TESTS = Path(__file__).parent
# They read how long programs take: two workers that measure at once would slow one another.
MEASURE = ("live", "cli/test_live.py", "cli/test_core_counts.py", "test_children.py")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker to a file, and one to all that measures; skip ``real_logs`` where they are not."""
    for item in items:
        measures = any(item.path.is_relative_to(TESTS / name) for name in MEASURE)
        group = "measure" if measures else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
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
