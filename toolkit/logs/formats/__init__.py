"""The log formats, one folder each. Imports ``logs.files`` and ``logs.rows``."""

from __future__ import annotations

from toolkit.errors import UnknownNameError
from toolkit.logs.rows.format import DocumentFormat, LineFormat, LogFormat
from toolkit.registry import Registry

FORMATS = Registry(
    "format",
    {
        "ansor": "toolkit.logs.formats.ansor.format:Ansor",
        "autotvm": "toolkit.logs.formats.autotvm.format:AutoTVM",
        "helion": "toolkit.logs.formats.helion.format:Helion",
        "helion-run": "toolkit.logs.formats.helion.format:HelionRuns",
        "kernel-tuner": "toolkit.logs.formats.kernel_tuner.format:KernelTunerCaches",
        "metaschedule": "toolkit.logs.formats.metaschedule.format:MetaSchedule",
        "metaschedule-workload": "toolkit.logs.formats.metaschedule.format:MetaScheduleWorkloads",
        "t4": "toolkit.logs.formats.kernel_tuner.format:T4Results",
        "t4-metadata": "toolkit.logs.formats.kernel_tuner.metadata:T4MetadataFiles",
        "triton": "toolkit.logs.formats.triton.format:TritonCache",
    },
)

__all__ = ["FORMATS", "document_formats", "format_named", "line_formats"]


def format_named(name: str) -> LogFormat:
    """Return a format; for an unknown name, a ``LogFormat`` with defaults only.

    A dataset may hold records of a format whose plug-in is not installed.
    """
    try:
        found: LogFormat = FORMATS.get(name)()
    except UnknownNameError:
        return LogFormat()
    return found


def line_formats() -> list[LineFormat]:
    """Return all formats with one record per line."""
    return [found for found in _all() if isinstance(found, LineFormat)]


def document_formats() -> list[DocumentFormat]:
    """Return all formats with one document per file."""
    return [found for found in _all() if isinstance(found, DocumentFormat)]


def _all() -> list[LogFormat]:
    """Return all formats, the toolkit's own first: the first that recognises a file reads it."""
    names = sorted(FORMATS.names(), key=lambda name: name not in FORMATS.builtin)
    return [format_named(name) for name in names]
