"""A search on this device that is guided by a model of directions alone."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from running import here

from toolkit.datasets import open_dataset
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.training import train_mutation
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, MutationOptions, Recipe
from toolkit.training.trained.models import load_trained

RECIPE = Recipe(
    kind="mutation",
    models=(ModelOptions(library="lightgbm", rounds=40, params={"num_leaves": 15}),),
    data=DataOptions(min_records=20, judged_records=50, max_rows=4000),
)


@pytest.mark.parametrize(
    ("method", "strategy"), [("expected", "potential"), ("direct", "mutation-guided")]
)
def test_a_search_by_directions_alone(
    model: Path, tmp_path: Path, method: str, strategy: str
) -> None:
    options = MutationOptions(method=method, level="knob")  # type: ignore[arg-type]
    folder = tmp_path / "directions"
    recipe = RECIPE.model_copy(update={"mutation": options})
    train_mutation(open_dataset(model.parent / "dataset"), recipe, folder, threads=1)
    guides = load_trained([folder])
    scorer = guides.direction_scorer("of no task")
    assert isinstance(scorer, DirectionScorer)
    assert isinstance(scorer, Scorer) == (method == "expected")
    assert guides.best_strategy() == strategy
    workload = ("--workload", "matmul:16,48,32", "--threads", "1", "--trials", "12")
    command = ("tune", *workload, "--model", str(folder), "--finalists", "0", "--json")
    code, said, err = here(*command, cwd=tmp_path)
    assert code == 0, err
    assert orjson.loads(said)["trials"] == 12
    named = (*command, "--strategy", "potential", "--out", "other")
    code, said, err = here(*named, cwd=tmp_path)
    assert code == (0 if method == "expected" else 1), err
    assert method == "expected" or ("single steps" in err and "method = 'expected'" in err)
