"""Options of commands that take workloads or a network."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from toolkit.errors import LiveError

Workloads = Annotated[
    list[str] | None,
    Option(
        help="NAME:ARGUMENTS of TVM's te_workload (matmul:128,128,128), SET:INDEX (GMM:0), "
        "a Python file that defines WORKLOADS (Relax too), an .onnx or .pt2 file; repeatable."
    ),
]
Shapes = Annotated[
    list[str] | None,
    Option(
        "--shape",
        help="Shape of a dynamic input of a model file: NAME=1,3,224,224; repeatable.",
    ),
]
Layout = Annotated[str, Option(help="Layout of a network's convolutions: auto, NCHW or NHWC.")]
Tolerance = Annotated[
    float,
    Option(
        min=0.0,
        max=0.1,
        help="Error that other algorithms may add to a network's outputs, as a share of their "
        "range: 1e-5 allows one size of Winograd convolutions, 1e-4 two.",
    ),
]


def parse_shapes(texts: list[str] | None) -> dict[str, list[int]]:
    """Read ``NAME=1,3,224,224``; raise ``LiveError`` for other texts."""
    found = {}
    for text in texts or []:
        name, _, extents = text.rpartition("=")
        parts = extents.split(",")
        if not name or not all(part.strip().isdigit() and int(part) for part in parts):
            raise LiveError(
                f"--shape {text!r} is not NAME=EXTENTS", cure="example: --shape data=1,3,224,224"
            )
        found[name] = [int(part) for part in parts]
    return found


def parse_layout(text: str) -> Any:
    """Return the layout by its name; raise ``LiveError`` for other names."""
    known = {"auto": "auto", "nchw": "NCHW", "nhwc": "NHWC"}
    if text.lower() not in known:
        raise LiveError(f"there is no --layout {text!r}", cure="give auto, NCHW or NHWC")
    return known[text.lower()]


def named_tasks(
    workload: list[str] | None, target: Any, shape: list[str] | None, layout: str, tolerance: float
) -> Any:
    """Return the tasks of the workloads, or of an example; raise ``LiveError`` if none."""
    from toolkit.networks.tasks import tasks_of

    return tasks_of(
        workload or ["matmul:128,128,128"],
        target,
        shapes=parse_shapes(shape),
        layout=parse_layout(layout),
        tolerance=tolerance,
    )
