"""``toolkit compile``."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from toolkit.cli import common
from toolkit.cli.network_options import Layout, Shapes, parse_layout, parse_shapes
from toolkit.cli.tables import print_table, print_warnings, say
from toolkit.show import interval, number, percent, plural, ratio, seconds
from toolkit.workspace import Workspace

KERNELS = 8
"""Number of the slowest kernels to print; ``--json`` and ``network.json`` have all."""


def compile(
    network: Annotated[
        str, Argument(help="An .onnx or .pt2 file, or a Python file with a Relax module.")
    ],
    database: Annotated[
        Path | None,
        Option(help="Folder that 'toolkit tune' wrote (default: tuning/tuned, if it is there)."),
    ] = None,
    model: common.Models = None,
    target: common.Target = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    against: Annotated[
        list[str] | None,
        Option(
            help="Compare with: onnxruntime, openvino, torch (for .pt2), or the folder of another "
            "compiled network; repeatable (default: the installed runtimes)."
        ),
    ] = None,
    choose: Annotated[
        float,
        Option(
            "--choose-seconds",
            min=0.0,
            help="Seconds to measure each function's best programs inside the network; 0: take "
            "the best outside it.",
        ),
    ] = 60.0,
    budget: Annotated[
        float, Option("--seconds", min=0.0, help="Seconds to compare; 0: only check the outputs.")
    ] = 60.0,
    seed: common.Seed = 0,
    folder: Annotated[
        Path | None, common.OutOption(help="Folder (default: tuning/compiled/NETWORK).")
    ] = None,
    json: common.Json = False,
) -> None:
    """Compile a network with a tuned database into a checked, timed library with a run.py.

    Says how many functions use a tuned record. For the other functions, models choose a program
    that was never measured. Compares the outputs with ONNX Runtime's; those of a .pt2 file with
    PyTorch's, those of other files with the unscheduled network's. Measures the whole network
    beside other runtimes.

    Example: toolkit compile model.onnx --database tuning/tuned
    """
    from toolkit.live.measure import machine as here
    from toolkit.networks import compile as networks
    from toolkit.networks.importing.files import is_model_file
    from toolkit.networks.tasks import network_of
    from toolkit.training.trained.models import load_trained

    workspace = Workspace()
    source = database or (workspace.tuned if workspace.tuned.is_dir() else None)
    tuned = None if source is None else networks.tuned_target(source)
    chosen = here.parse_target(target or tuned or here.default_target(here.physical_cores()))
    guides = load_trained(model)
    print_warnings(guides.warnings(chosen))
    shapes = parse_shapes(shape)
    graph = network_of(
        network,
        chosen,
        shapes=shapes,
        layout=parse_layout(layout),
        tolerance=0.0 if source is None else networks.tuned_tolerance(source),
    )
    result = networks.compile_network(
        graph,
        folder or workspace.compiled(graph.name),
        database=source,
        target=chosen,
        model=Path(network) if is_model_file(network) else None,
        shapes=shapes,
        against=against,
        guides=guides,
        choose_seconds=choose,
        seconds=budget,
        seed=seed,
        progress=common.BarProgress(),
    )
    common.answer(result, json, _show)


def _show(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    say(
        f"{result['network']}: {result['tuned']} of {plural(result['functions'], 'function')} "
        f"use{'s' if result['functions'] == 1 else ''} a tuned record; "
        f"layout {result['layout']}; {_agreement(result)}"
    )
    if result["latency_s"] is not None:
        own = {"against": "this one", "latency_s": result["latency_s"], "ratio": 1.0}
        print_table(
            {
                "network": itemgetter("against"),
                ">latency alone": lambda row: seconds(row["latency_s"]),
                ">this one / other, in turns": lambda row: ratio(row["ratio"]),
                "95 %": lambda row: interval(row.get("interval"), "ratio"),
                "this one is": lambda row: row.get("verdict", ""),
            },
            [own, *result["against"]],
        )
    if result["kernels"]:
        whole = sum(row["seconds"] for row in result["kernels"])
        print_table(
            {
                "kernel": itemgetter("kernel"),
                ">calls": lambda row: f"{row['calls']:g}",
                ">time a run": lambda row: seconds(row["seconds"]),
                ">share": lambda row: percent(row["seconds"] / whole),
                ">GFLOP/s": lambda row: number(row["gflop_per_s"]),
            },
            result["kernels"][:KERNELS],
        )
    if result["peak_gflop_per_s"] is not None:
        peak = number(result["peak_gflop_per_s"])
        say(f"measured peak of the processor: {peak} GFLOP/s (multiply-adds in registers)")
    say(f"run it: python {result['out']}/run.py")


def _agreement(result: Mapping[str, Any]) -> str:
    if result["checked_against"] is None:
        return "outputs were not compared"
    return (
        f"outputs agree with {result['checked_against']} "
        f"(to {result['difference']:.1g} of their range)"
    )
