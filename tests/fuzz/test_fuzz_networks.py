"""A few of the random networks; the command beside tries many."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.live


@pytest.mark.parametrize("seed", [8, 9, 11, 18])
def test_a_random_network_comes_out_right(tmp_path: Path, seed: int) -> None:
    for extra in ("onnx", "onnxruntime"):
        pytest.importorskip(extra, reason=f"{extra}, an optional extra, is not installed")
    from tests.fuzz.networks import check

    assert check(seed, tmp_path) is None
