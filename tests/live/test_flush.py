"""Data is taken out of the caches, all but a program's first argument, and stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

from toolkit.live.measure import worker
from toolkit.live.measure.timing import FLUSH_OF_TVM, make_flush


def test_data_of_any_size_stays_as_it_is() -> None:
    flush = make_flush(tvm)
    if flush is None:
        pytest.skip("this processor has no clflushopt")
    whole = np.arange(4096, dtype=np.uint32).view(np.uint8)
    begin = -whole.ctypes.data % 64
    before = whole.copy()
    for size in (1, 63, 64, 65, 1000, 8192):
        flush(tvm.runtime.from_dlpack(whole[begin : begin + size]))
    assert (whole == before).all()


def test_all_arguments_but_the_first_are_flushed(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Any] = []
    bench = worker.Bench({"target": target, "cores": []})
    monkeypatch.setattr(worker, "make_flush", lambda _: flushed.append)
    name = bench._flush_name()
    for shapes in ([2, 3], [5], [7, 1]), ([4], [6]):
        given = bench.arguments([["TENSOR", "float32", shape] for shape in shapes])
        flushed.clear()
        tvm.get_global_func(name)(*given)
        assert [one.shape[0] for one in flushed] == [4 * int(np.prod(s)) for s in shapes[1:]]
        for tensor, one in zip(given[1:], flushed, strict=True):
            assert (one.numpy() == tensor.numpy().view(np.uint8).ravel()).all()


def test_a_processor_that_cannot_leaves_it_to_tvm(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "make_flush", lambda _: None)
    assert worker.Bench({"target": target, "cores": []})._flush_name() == FLUSH_OF_TVM
