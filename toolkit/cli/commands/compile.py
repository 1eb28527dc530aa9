"""``toolkit compile``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from toolkit.cli.commands.live import Target
from toolkit.cli.commands.tune import Layout, Shapes, parse_layout, parse_shapes
from toolkit.cli.common import BarProgress, Json, Seed, command, out, print_json, print_warnings
from toolkit.show import interval, plural, ratio, seconds
from toolkit.workspace import Workspace

if TYPE_CHECKING:
    from toolkit.networks.compile import CompileResult

KERNELS = 8
"""So many of the slowest kernels are printed; all are in ``--json`` and in ``network.json``."""


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command(name="compile")(compile_)


@command
def compile_(
    network: Annotated[
        str, typer.Argument(help="An .onnx or .pt2 file, or a Python file with a Relax module.")
    ],
    database: Annotated[
        Path | None,
        typer.Option(help="Folder that 'toolkit tune' wrote (default: tuning/tuned)."),
    ] = None,
    target: Target = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare with: onnxruntime, openvino, or a folder of another compiled network; "
            "repeatable (default: the runtimes that are installed)."
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option("--seconds", min=0.0, help="For the comparison; 0: outputs are checked only."),
    ] = 60.0,
    seed: Seed = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder (default: tuning/compiled/NETWORK).")
    ] = None,
    json: Json = False,
) -> None:
    """Compile a network with a tuned database: a library, checked and timed, and run.py beside it.

    Says how many functions use a tuned record, compares outputs with ONNX Runtime's (or with the
    unscheduled network's), and reads the whole network beside other runtimes.

    Example: toolkit compile model.onnx --database tuning/tuned
    """
    from toolkit.live.measure import machine as here
    from toolkit.networks.compile import compile_network, tuned_target
    from toolkit.networks.tasks import network_of

    workspace = Workspace()
    source = database or workspace.tuned
    chosen = here.parse_target(
        target or tuned_target(source) or here.default_target(here.physical_cores())
    )
    shapes = parse_shapes(shape)
    graph = network_of(network, chosen, shapes=shapes, layout=parse_layout(layout))
    result = compile_network(
        graph,
        folder or workspace.compiled(graph.name),
        database=source,
        target=chosen,
        model=Path(network) if network.endswith(".onnx") else None,
        shapes=shapes,
        against=against,
        seconds=budget,
        seed=seed,
        progress=BarProgress(),
    )
    if json:
        print_json(result.to_json())
        return
    print_warnings(result.warnings)
    _print(result)


def _print(result: CompileResult) -> None:
    out.print(
        f"{result.network}: {result.tuned} of {plural(result.functions, 'function')} use a tuned "
        f"record; layout {result.layout}; outputs agree with {result.checked_against or 'nothing'}",
        highlight=False,
    )
    if result.latency_s is not None:
        table = Table("network", "latency", "this one's over it", "95 %", "this one is")
        table.add_row("this one", seconds(result.latency_s), "1", "", "")
        for row in result.against:
            table.add_row(
                row["against"],
                seconds(row["latency_s"]),
                ratio(row["ratio"]),
                interval(row["interval"], "ratio"),
                row["verdict"],
            )
        out.print(table)
    if result.kernels:
        whole = sum(row["seconds"] for row in result.kernels)
        table = Table("kernel", "calls", "time a run", "share")
        for row in result.kernels[:KERNELS]:
            share = f"{row['seconds'] / whole:.1%}"
            table.add_row(row["kernel"], f"{row['calls']:g}", seconds(row["seconds"]), share)
        out.print(table)
    out.print(f"run it: python {result.out}/run.py", highlight=False)
