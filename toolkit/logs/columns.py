"""Arrow columns made from buffers.

``pyarrow.array`` and ``pyarrow.scalar`` look for pandas at every call, which takes longer than a
small column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numeric(type: Any, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
    """A numeric column; null where ``valid`` is false."""
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type, len(values), buffers)


def _offsets(sizes: NDArray[np.int64]) -> Any:
    ends = np.cumsum(sizes, dtype=np.int32)
    return pa.py_buffer(np.concatenate([np.zeros(1, dtype=np.int32), ends]))


def texts(parts: Sequence[bytes], sizes: NDArray[np.int64] | None = None) -> Any:
    """Bytes that are known to be UTF-8 as a string column."""
    if sizes is None:
        sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    return pa.StringArray.from_buffers(len(parts), _offsets(sizes), pa.py_buffer(b"".join(parts)))


def repeated(word: str, count: int) -> Any:
    """One word as a string column."""
    coded = word.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(coded))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(coded * count))


def ragged(type: Any, flat: NDArray[Any], sizes: NDArray[np.int64]) -> Any:
    """Rows of different lengths as a list column."""
    return pa.Array.from_buffers(
        pa.list_(type), len(sizes), [None, _offsets(sizes)], children=[numeric(type, flat)]
    )
