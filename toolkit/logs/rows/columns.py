"""Columns of many rows: Arrow arrays made from buffers, and ids hashed on arrays.

``pyarrow.array`` and ``pyarrow.scalar`` look for pandas at every call, which takes longer than a
small column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.records import Sketch, content_id

_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)]).view(np.uint16)
_BYTES = np.zeros(2**16, dtype=np.uint8)
_BYTES[_HEX] = np.arange(256)


def numeric(type: Any, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> Any:
    """A numeric column; null where ``valid`` is false."""
    mask = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [mask, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(type, len(values), buffers)


def repeated(word: str, count: int) -> Any:
    """One word as a string column."""
    coded = word.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(coded))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(coded * count))


def ragged(type: Any, flat: NDArray[Any], sizes: NDArray[np.int64]) -> Any:
    """Rows of different lengths as a list column."""
    buffers = [None, _offsets(sizes)]
    return pa.Array.from_buffers(
        pa.list_(type), len(sizes), buffers, children=[numeric(type, flat)]
    )


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


class Words(NamedTuple):
    """A word a row: the different ones, and each row's number among them."""

    different: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        """Words of rows."""
        if words.count(words[0]) == len(words):
            return cls(words[:1], np.zeros(len(words), dtype=np.int64))
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(word, len(numbers)) for word in words]
        return cls(list(numbers), np.array(codes, dtype=np.int64))

    def column(self) -> Any:
        """The rows' words as a string column."""
        first = self.codes[0]
        if (self.codes == first).all():
            return repeated(self.different[first], len(self.codes))
        coded = [word.encode() for word in self.different]
        return Texts.of([coded[code] for code in self.codes.tolist()]).column()


@lru_cache(2**16)
def candidate_seed(task_id: str, sketch_id: str) -> int:
    """Where the hash of a candidate begins."""
    return int(content_id(task_id, sketch_id), 16)


def candidate_numbers(
    seeds: NDArray[np.uint64], sketch: Sketch, decisions: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """``records.candidate_id`` of every row of a decision matrix, as 64-bit numbers."""
    state = np.array(seeds, dtype=np.uint64)
    width = sketch.width
    free = [column for knob in sketch.knobs for column in range(width)[knob.free]]
    for column in np.ascontiguousarray(decisions[:, free].T).view(np.uint64):
        state ^= column
        state *= np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(32)
        state *= np.uint64(0xD6E8FEB86659FD93)
        state ^= state >> np.uint64(29)
    return state


def hex_ids(numbers: NDArray[np.uint64]) -> Any:
    """64-bit numbers as an Arrow array of 16 hexadecimal digits each."""
    count = len(numbers)
    text = _HEX[numbers.astype(">u8").view(np.uint8)]
    offsets = np.arange(0, 16 * count + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def id_numbers(ids: Any) -> NDArray[np.uint64]:
    """An Arrow array of ids as 64-bit numbers; the way back from ``hex_ids``."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    text = np.frombuffer(ids.buffers()[2], dtype=np.uint16, offset=16 * ids.offset)
    return _BYTES[text[: 8 * len(ids)]].view(">u8").astype(np.uint64)
