"""Shared fixtures; tests on real logs run only where the logs are."""

from __future__ import annotations

from pathlib import Path

import pytest

REAL_LOGS = Path(__file__).resolve().parents[2] / "shared" / "logs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip ``real_logs`` tests where the folder is absent."""
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
