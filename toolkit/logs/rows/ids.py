"""Ids of many rows at once: what ``toolkit.records`` hashes one by one, on arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.records import Sketch, content_id

_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)]).view(np.uint16)
_BYTES = np.zeros(2**16, dtype=np.uint8)
_BYTES[_HEX] = np.arange(256)


def free_columns(sketch: Sketch) -> list[int]:
    """Columns of the decision matrix that are chosen (all but tiles' outermost factors)."""
    width = sketch.width
    return [column for knob in sketch.knobs for column in range(width)[knob.free]]


@lru_cache(2**16)
def candidate_seed(task_id: str, sketch_id: str) -> int:
    """Where the hash of a candidate begins."""
    return int(content_id(task_id, sketch_id), 16)


def candidate_numbers(
    seeds: NDArray[np.uint64], sketch: Sketch, decisions: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """``records.candidate_id`` of every row of a decision matrix, as 64-bit numbers."""
    state = np.array(seeds, dtype=np.uint64)
    columns = np.ascontiguousarray(decisions[:, free_columns(sketch)].T).view(np.uint64)
    for column in columns:
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
