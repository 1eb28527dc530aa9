"""Offline toolkit for tuning logs of tensor compilers: ingest, train, replay, confirm live.

The commands are thin wrappers around these functions::

    import toolkit

    toolkit.ingest(["logs/"], "tuning/dataset")
    dataset = toolkit.open_dataset("tuning/dataset")
    toolkit.train_throughput(dataset, toolkit.load_recipe("throughput"), "tuning/models/throughput")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Name → module, imported on first use, so that ``import toolkit`` stays quick.
_PUBLIC = {
    "ingest": "toolkit.datasets",
    "open_dataset": "toolkit.datasets",
    "describe": "toolkit.datasets",
    "load_recipe": "toolkit.training",
    "train_throughput": "toolkit.training",
    "train_mutation": "toolkit.training",
    "evaluate_model": "toolkit.training",
    "load_throughput": "toolkit.training",
    "load_mutation": "toolkit.training",
    "load_scenario": "toolkit.replay",
    "simulate": "toolkit.replay",
    "collect": "toolkit.live.tune.collect",
    "validate_dataset": "toolkit.live.confirm.session",
    "run_demo": "toolkit.cli.commands.demo",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'toolkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
