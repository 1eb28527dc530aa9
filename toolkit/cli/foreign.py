"""Errors of the system and of libraries that a command cannot foresee, told like its own."""

from __future__ import annotations

import errno

from toolkit.errors import ToolkitError

CURES = {
    errno.ENOSPC: "free some space and run the same command again: what was finished is kept",
    errno.EDQUOT: "free some space and run the same command again: what was finished is kept",
    errno.EACCES: "check its permissions, or give another place",
    errno.EPERM: "check its permissions, or give another place",
    errno.EROFS: "give a place that can be written",
    errno.EEXIST: "it is a file where a folder is needed: give another place",
    errno.ENOTDIR: "it is a file where a folder is needed: give another place",
    errno.EISDIR: "it is a folder where a file is needed: give another place",
    errno.EMFILE: "allow more open files (ulimit -n), or take fewer --workers",
}
LIBRARIES = ("pyarrow", "polars")


def foreign_error(error: Exception) -> ToolkitError | None:
    """Say in one line what went wrong outside the toolkit; ``None``: a fault of its own.

    Full and read-only disks, missing permissions, damaged Parquet files, too little memory.
    """
    said = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else None
        cure = CURES.get(error.errno or 0)
        return ToolkitError(error.strerror or said, where=where, cure=cure)
    if isinstance(error, MemoryError):
        return ToolkitError(f"out of memory: {said}", cure="take less data, or close others")
    if type(error).__module__.partition(".")[0] in LIBRARIES:
        return ToolkitError(
            f"a table cannot be read or written: {said}",
            cure="if a file of the dataset is damaged, ingest the logs anew into another folder",
        )
    return None
