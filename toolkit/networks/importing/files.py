"""Reads a model file (ONNX, or from ``torch.export.save``) as a Relax module with constants.

Weights stay in the module as constants: when the graph is prepared, batch norms are folded into
them and their layouts are changed. An ONNX graph is cleaned before TVM reads it, since the importer
makes operators that block later passes (``Sum`` becomes a stack and a sum over five axes, ``Clip``
two calls that no layout passes through, ``Dropout`` a tuple).
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from toolkit.errors import LiveError
from toolkit.networks.importing.exported import (
    load_exported,
    not_imported,
    open_shape,
    refuse_unknown,
)
from toolkit.networks.importing.onnx_rewrites import rewrite

EXTRAS = {".onnx": "onnx", ".pt2": "torch"}
"""Endings of model files, and the extra of the toolkit that reads each."""

MISSING = r"not supported for frontend ONNX: (.*)"
"""Message of TVM's importer about operators that it does not know."""

SINGLE_FILE_BYTES = 1_500_000_000
"""A larger graph does not fit into one protobuf message, so ONNX Runtime cannot return it."""


def is_model_file(text: str) -> bool:
    """Return whether a text names a model file, by its ending."""
    return Path(text).suffix in EXTRAS


def load_model(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> tvm.IRModule:
    """Import a model file as a Relax module whose ``main`` holds the weights as constants.

    ``shapes`` are the shapes of dynamic inputs, by name.

    Raises
    ------
    LiveError
        For a file that cannot be read, an extra that is not installed, an input without a known
        shape, or an operator that TVM does not import.
    """
    if not path.is_file():
        raise LiveError("there is no such file", where=path)
    extra = EXTRAS[path.suffix]
    try:
        if extra == "torch":
            return load_exported(path, shapes or {})
        from tvm.relax.frontend.onnx import from_onnx

        with warnings.catch_warnings():
            # It warns of each name that it changes; files of PyTorch call an input "input.1".
            warnings.simplefilter("ignore")
            return from_onnx(read_onnx(path, shapes or {}), keep_params_in_input=False)
    except ImportError as error:
        raise LiveError(
            f"reading this file needs {extra}: {error}",
            where=path,
            cure=f"install it: pip install 'tvm-tuning-toolkit[{extra}]'",
        ) from None
    except LiveError:
        raise
    except Exception as error:  # TVM's and protobuf's errors have no common type
        cure = "export the model without these, or remove them from the graph"
        raise not_imported(error, path, MISSING, cure) from None


def read_onnx(path: Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Read an ONNX file with known shapes, folded constants, and operators that TVM fuses."""
    model = simplified_onnx(path, shapes)
    rewrite(model, importlib.import_module("onnx"))
    return model


def simplified_onnx(path: Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """Read an ONNX file with known shapes, weights as constants, and folded constants."""
    onnx = importlib.import_module("onnx")
    model = onnx.load(str(path))
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    # Up to IR version 3 every weight was also an input, which a caller could replace.
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    _set_shapes(model.graph.input, shapes, path)
    known = all(value.type.tensor_type.HasField("shape") for value in model.graph.output)
    if not known and model.ByteSize() <= SINGLE_FILE_BYTES:
        model = onnx.shape_inference.infer_shapes(model)  # importers need shapes of outputs
    return _folded(model)


def for_runtimes(path: Path, shapes: Mapping[str, Sequence[int]], folder: Path) -> Path:
    """Return the file for other runtimes: an ONNX file is simplified and written to ``folder``."""
    if EXTRAS[path.suffix] != "onnx":
        return path.resolve()
    out = folder / "model.onnx"
    importlib.import_module("onnx").save(simplified_onnx(path, shapes), str(out))
    return out


def _set_shapes(inputs: Sequence[Any], shapes: Mapping[str, Sequence[int]], path: Path) -> None:
    refuse_unknown(shapes, [value.name for value in inputs], path)
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        given = shapes.get(value.name)
        if given is not None:
            if len(dims) not in (0, len(given)):
                raise LiveError(f"the input {value.name!r} has {len(dims)} dimensions", where=path)
            del dims[:]
            for extent in given:
                dims.add().dim_value = int(extent)
        elif not dims or any(dim.dim_value < 1 for dim in dims):
            known = ",".join(str(max(dim.dim_value, 1)) for dim in dims) or "1,3,224,224"
            raise open_shape(value.name, known, path)


def _folded(model: Any) -> Any:
    """Fold constants and batch norms, and drop operators without effect, with ONNX Runtime.

    Its basic level keeps standard operators. Without ONNX Runtime the graph stays as it is.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return model
    if model.ByteSize() > SINGLE_FILE_BYTES:
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "simplified.onnx")
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = path
        try:
            runtime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return importlib.import_module("onnx").load(path)
        except Exception:  # TVM may know operators that ONNX Runtime does not
            return model
