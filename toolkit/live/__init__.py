"""The device phase: TVM's spaces, building and measuring, confirmation, and a warm cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.compiler import require_tvm

require_tvm()

__all__ = ["cost_model", "strategy"]


def cost_model(path: str | Path, *, seen: bool = False, machine: str | None = None) -> Any:
    """Return a trained throughput model as a TVM ``CostModel`` that keeps learning.

    For ``ms.tune_tir(..., cost_model=toolkit.live.cost_model("tuning/models/throughput"))``.

    Parameters
    ----------
    path
        Model folder.
    seen
        Score tasks of the training data with the member that was trained on all tasks. By
        default the member that left a task out scores it, so that the run is a fair test.
    machine
        Name of this machine in the model's dataset.

    Raises
    ------
    ModelError
        When there is no throughput model.
    """
    # Imported here: importing this module must not load TVM.
    from toolkit.live.tvm.warm_cost_model import WarmCostModel
    from toolkit.training import load_throughput

    return WarmCostModel(load_throughput(path), seen, machine)


def strategy(
    name: str,
    *,
    model: Path | str | Sequence[Path | str] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    machine: str | None = None,
) -> Any:
    """Return a strategy of ``toolkit.search`` as a TVM ``SearchStrategy``.

    For ``ms.tune_tir(..., strategy=toolkit.live.strategy("etc-mutation", model=...))``.

    Parameters
    ----------
    name, options
        As for ``toolkit tune``.
    model
        Model folder or folders. By default no model is loaded.
    machine
        Name of this machine in the models' dataset.

    Raises
    ------
    ModelError
        When a folder holds no model.
    SearchError
        In TVM's ``pre_tuning``, when the strategy needs a model that was not given.
    """
    from toolkit.live.space.intrinsics import load_intrinsics
    from toolkit.live.tvm.tvm_strategy import ToolkitStrategy
    from toolkit.training.trained.models import load_trained

    load_intrinsics()
    folders = [model] if isinstance(model, (str, Path)) else list(model or [])
    return ToolkitStrategy(name, dict(options or {}), load_trained(folders), seed, machine)
