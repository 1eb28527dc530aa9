"""Columns made from buffers and read back from them, without pandas in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.logs.rows.columns import Texts, flags, nullable_strings, numbers, numeric

PIECES = st.lists(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=9), max_size=4)


@given(PIECES, st.integers(0, 5), st.sampled_from([pa.int32(), pa.int64(), pa.float64()]))
def test_numbers_are_those_of_the_column_wherever_it_is_cut(
    pieces: list[list[int | None]], begin: int, kind: Any
) -> None:
    column = pa.chunked_array(pieces, kind).slice(begin)
    wanted = [0 if value is None else value for value in column.to_pylist()]
    assert numbers(column).tolist() == wanted
    for chunk in column.chunks:
        assert numbers(chunk).tolist() == [v or 0 for v in chunk.to_pylist()]


@given(st.lists(st.none() | st.text(max_size=5)), st.lists(st.booleans()))
def test_columns_hold_what_they_were_made_of(words: list[str | None], truths: list[bool]) -> None:
    assert nullable_strings(words).to_pylist() == words
    nullable_strings(words).validate(full=True)
    assert flags(np.array(truths, dtype=np.bool_)).to_pylist() == truths
    counts = np.arange(len(truths), dtype=np.int64)
    told = numeric(pa.int64(), counts, np.array(truths, dtype=np.bool_))
    assert told.to_pylist() == [n if true else None for n, true in enumerate(truths)]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_texts_are_strings_or_bytes(kind: Any) -> None:
    column = Texts.of(["ä".encode(), b"", b"x"]).column(kind)
    column.validate(full=True)
    assert column.type == kind
    assert column.cast(pa.binary()).to_pylist() == ["ä".encode(), b"", b"x"]
