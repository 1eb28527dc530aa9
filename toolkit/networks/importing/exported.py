"""Reads a program that ``torch.export.save`` wrote as a Relax module.

PyTorch decomposes operators before TVM imports them. Operators that TVM imports better as a whole
are not decomposed. Attention is decomposed without the steps that only a mask needs.
"""

from __future__ import annotations

import gc
import importlib
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from toolkit.errors import LiveError
from toolkit.live.space.quiet import quiet

KEPT = (
    "hardsigmoid.default",
    "hardswish.default",
    "leaky_relu.default",
    "prelu.default",
    "roll.default",
    "selu.default",
    "silu.default",
    "softplus.default",
    "upsample_bicubic2d.vec",
)
"""Operators that are not decomposed: some have parts that block layouts, others dozens of parts."""

MISSING = r"Unsupported function types \[(.*)\]"
"""Message of TVM's importer about operators that it does not know."""

ONNX = "torch.onnx.export(model.eval(), inputs, 'model.onnx')"
EXPORT = "torch.export.save(torch.export.export(model.eval(), inputs), 'model.pt2')"


def load_exported(path: Path, shapes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """Import an exported program, its weights as constants; ``shapes`` are for dynamic inputs.

    Raises
    ------
    LiveError
        For a file of another kind, a model in training mode, operators that TVM does not import, or
        an input without a known shape.
    """
    with _silent():
        torch = importlib.import_module("torch")
        from tvm.relax.frontend.torch import from_exported_program

        try:
            program = torch.export.load(str(path))
        except Exception:  # of many types, with messages that rarely name the problem
            raise LiveError(
                "PyTorch cannot read the file as an exported program",
                where=path,
                cure=f"write it with {EXPORT}, in this version of PyTorch ({torch.__version__})",
            ) from None
        _refuse_training(program, path)
        try:
            module = from_exported_program(
                program.run_decompositions(_decompositions(torch)),
                run_ep_decomposition=False,
                unwrap_unit_return_tuple=True,
                custom_convert_map=IMPORTED,
            )
            problem = None
        except Exception as error:  # TVM's and PyTorch's errors have no common type
            problem = not_imported(
                error, path, MISSING, f"export the model without these, or as ONNX: {ONNX}",
                f"export the model as ONNX: {ONNX}",
            )  # fmt: skip
        if problem is not None:
            gc.collect()  # TVM's builder warns when it is destroyed: now, while warnings are off
            raise problem
    return _with_shapes(module, shapes, path)


@contextmanager
def _silent() -> Iterator[None]:
    """Silence both packages: their warnings are about things that a user cannot change."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _decompositions(torch: Any) -> Any:
    """Return PyTorch's table of decompositions, without the operators in ``KEPT``."""
    aten, table = torch.ops.aten, torch.export.default_decompositions()
    for name in KEPT:
        packet, overload = name.split(".")
        table.pop(getattr(getattr(aten, packet), overload), None)
    attention = aten.scaled_dot_product_attention.default
    usual = table[attention]

    def plain_attention(query: Any, key: Any, value: Any, *args: Any, **options: Any) -> Any:
        """Compute attention without PyTorch's check of each row for a mask that leaves nothing."""
        names = ("attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args, strict=False)), **options}
        is_masked = given.get("attn_mask") is not None
        if is_masked or given.get("dropout_p") or given.get("enable_gqa"):
            return usual(query, key, value, *args, **options)
        scale = given.get("scale") or query.shape[-1] ** -0.5
        scores = torch.matmul(query * scale, key.transpose(-2, -1))
        if given.get("is_causal"):  # a row keeps its first column at least
            later = torch.full(scores.shape[-2:], -torch.inf, dtype=scores.dtype).triu(1)
            scores = scores + later
        return torch.matmul(torch.softmax(scores, -1), value)

    table[attention] = plain_attention
    return table


def _select(node: Any, importer: Any) -> Any:
    """Import the choice of one index. TVM's own reads beyond the tensor if it is negative."""
    source, axis, index = importer.env[node.args[0]], int(node.args[1]), int(node.args[2])
    extent = int(source.ty.shape.values[axis]) if index < 0 else 0
    begin, emit = index + extent, importer.block_builder.emit
    one = emit(relax.op.strided_slice(source, axes=[axis], begin=[begin], end=[begin + 1]))
    return emit(relax.op.squeeze(one, axis=[axis]))


def _index(node: Any, importer: Any) -> Any:
    """Import the choice of several indices; negative ones count from the end.

    TVM's own import reads beyond the tensor for negative indices, and takes every pair of indices
    of several axes.
    """
    source, emit = importer.env[node.args[0]], importer.block_builder.emit
    chosen = {
        axis: _from_end(importer.env[index], int(source.ty.shape.values[axis]), emit)
        for axis, index in enumerate(node.args[1])
        if index is not None
    }
    if len(chosen) == 1:
        ((axis, index),) = chosen.items()
        return emit(relax.op.take(source, index, axis=axis))
    axes, most = list(chosen), max(index.ty.ndim for index in chosen.values())
    rest = [axis for axis in range(source.ty.ndim) if axis not in chosen]
    indices = [
        emit(relax.op.expand_dims(index, list(range(most - index.ty.ndim))))
        if index.ty.ndim < most
        else index
        for index in chosen.values()
    ]
    front = emit(relax.op.permute_dims(source, [*axes, *rest])) if rest else source
    found = emit(relax.op.index_tensor(front, indices))
    # The chosen axes keep their position if they are neighbours.
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    if before == 0:
        return found
    order = [*range(most, most + before), *range(most), *range(most + before, most + len(rest))]
    return emit(relax.op.permute_dims(found, order))


def _from_end(index: Any, extent: int, emit: Any) -> Any:
    kind = str(index.ty.dtype)
    if not kind.startswith("int"):
        raise NotImplementedError("a mask as index is not supported: the output's shape is unknown")
    behind = relax.op.add(index, relax.const(extent, kind))
    return emit(relax.op.where(relax.op.less(index, relax.const(0, kind)), behind, index))


def _grid_sample(node: Any, importer: Any) -> Any:
    """Import a sampled grid. PyTorch has its two coordinates last, TVM second."""
    grid = node.args[1]
    given = importer.env[grid]
    importer.env[grid] = importer.block_builder.emit(relax.op.permute_dims(given, [0, 3, 1, 2]))
    found = importer._grid_sampler_2d(node)
    importer.env[grid] = given
    return found


def _most(node: Any, importer: Any) -> Any:
    """Import the maximum or the minimum along axes."""
    reduced = relax.op.max if node.target.__name__.startswith("amax") else relax.op.min
    axes = [int(axis) for axis in node.args[1]] if len(node.args) > 1 else []
    keep = bool(node.args[2]) if len(node.args) > 2 else False
    found = reduced(importer.env[node.args[0]], axes or None, keepdims=keep)
    return importer.block_builder.emit(found)


IMPORTED = {
    "amax.default": _most,
    "amin.default": _most,
    "grid_sampler_2d.default": _grid_sample,
    "index.Tensor": _index,
    "select.int": _select,
}
"""Operators that TVM does not import, or imports wrongly (0.27)."""


def _refuse_training(program: Any, path: Path) -> None:
    for node in program.graph.nodes:
        arguments = getattr(getattr(node.target, "_schema", None), "arguments", ())
        given = dict(zip((one.name for one in arguments), node.args, strict=False)) | node.kwargs
        if any(given.get(name) is True for name in ("train", "training")):
            raise LiveError(
                f"the model was exported in training mode (operator {node.target})",
                where=path,
                cure=f"call model.eval() before the export: {EXPORT}",
            )


def not_imported(
    error: Exception, path: Path, missing: str, without: str, cure: str | None = None
) -> LiveError:
    """Return the error for a file that TVM does not import.

    ``missing`` is a regular expression; its group names the operators that TVM does not know.
    ``without`` is the cure for these, ``cure`` the cure for all other errors.
    """
    said = str(error).strip() or type(error).__name__
    if found := re.search(missing, said):
        problem = f"TVM does not import the operators {found[1].strip()}"
        return LiveError(problem, where=path, cure=without)
    return LiveError(
        f"TVM cannot import the file: {said.splitlines()[-1][-200:]}", where=path, cure=cure
    )


def refuse_unknown(shapes: Mapping[str, Any], inputs: Sequence[str], path: Path) -> None:
    """Raise ``LiveError`` for a shape of an input that the network does not have."""
    for name in shapes:
        if name not in inputs:
            raise LiveError(
                f"the network has no input {name!r}",
                where=path,
                cure=f"its inputs: {', '.join(inputs)}",
            )


def open_shape(name: str, example: str, path: Path) -> LiveError:
    """Return the error for an input without a known shape."""
    return LiveError(
        f"the input {name!r} has no fixed shape",
        where=path,
        cure=f"give one, for example: --shape {name}={example}",
    )


def _with_shapes(
    module: tvm.IRModule, shapes: Mapping[str, Sequence[int]], path: Path
) -> tvm.IRModule:
    """Bind the dynamic dimensions of an exported program."""
    inputs = {str(one.name): list(one.ty.shape.values) for one in module["main"].params}
    refuse_unknown(shapes, list(inputs), path)
    bound: dict[Any, int] = {}
    for name, dims in inputs.items():
        known = [int(dim) if isinstance(dim, tvm.tirx.IntImm) else None for dim in dims]
        given = shapes.get(name)
        if given is None and any(isinstance(dim, tvm.tirx.Var) for dim in dims):
            raise open_shape(name, ",".join(str(extent or 1) for extent in known), path)
        if given is None:
            continue
        fits = (extent in (None, int(wanted)) for extent, wanted in zip(known, given, strict=False))
        if len(given) != len(known) or not all(fits):
            exported = ",".join("?" if extent is None else str(extent) for extent in known)
            raise LiveError(
                f"the input {name!r} was exported with the shape {exported}",
                where=path,
                cure="give a shape that fits, or export with dynamic_shapes of torch.export.export",
            )
        for dim, extent in zip(dims, given, strict=True):
            if isinstance(dim, tvm.tirx.Var) and bound.setdefault(dim, int(extent)) != int(extent):
                raise LiveError(
                    f"an extent of input {name!r} is {extent}, and {bound[dim]} in another input",
                    where=path,
                    cure="give both inputs the same: they were exported with one dimension",
                )
    return relax.transform.BindSymbolicVars(bound)(module) if bound else module
