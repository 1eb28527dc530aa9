"""What constants alone decide is computed once, while a network is prepared."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from toolkit.networks.graph.constants import fold_constants
from toolkit.networks.graph.prepare import operators

pytestmark = pytest.mark.live


@I.ir_module
class Masked:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            low = R.full((2, 3), R.const(-np.inf, "float32"), dtype="float32")
            y = R.add(x, low)
            R.output(y)
        return y


def test_what_is_filled_with_infinities_is_a_constant() -> None:
    folded = fold_constants(Masked)
    assert operators(folded) == {"relax.add": 1}
    value = folded["main"].body.blocks[0].bindings[-1].value.args[1]
    np.testing.assert_array_equal(value.value.numpy(), np.full((2, 3), -np.inf, "float32"))
    relax.transform.LegalizeOps()(folded)
