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


def test_a_reshape_to_a_shape_that_is_not_known_stays() -> None:
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            unknown = relax.DataflowVar("unknown", relax.TensorType(dtype="float32", ndim=2))
            constant = relax.const(np.zeros((2, 3), "float32"))
            builder.emit_normalized(relax.VarBinding(unknown, constant))
            y = builder.emit_output(relax.op.expand_dims(unknown, 0))
        builder.emit_func_output(y)
    assert operators(fold_constants(builder.get())) == {"relax.expand_dims": 1}
