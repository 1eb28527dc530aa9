"""Arrow columns made from buffers.

``pyarrow.array`` and ``pyarrow.scalar`` look for pandas at every call, which takes longer than a
small column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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


class Texts(NamedTuple):
    """Texts of rows one after the other, and the bytes of each."""

    data: bytes
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Texts:
        """Put texts one after the other."""
        sizes = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        return cls(b"".join(parts), sizes)

    def bounds(self) -> list[int]:
        """Where texts begin, and the last one ends."""
        return [0, *np.cumsum(self.sizes).tolist()]

    def some(self, rows: NDArray[np.intp]) -> Texts:
        """The texts of some of the rows."""
        whole, bounds = memoryview(self.data), self.bounds()
        parts = [whole[bounds[row] : bounds[row + 1]] for row in rows.tolist()]
        return Texts(b"".join(parts), self.sizes[rows])

    def column(self) -> Any:
        """The texts, which are known to be UTF-8, as a string column."""
        buffers = _offsets(self.sizes), pa.py_buffer(self.data)
        return pa.StringArray.from_buffers(len(self.sizes), *buffers)


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
