"""Mutation models on logs that the tests write: quality, leaks, what the search sees."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from made_autotvm import SHAPES, write_autotvm

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError, ModelError, RecipeError
from toolkit.records import Candidate, Direction, Sketch, Task
from toolkit.replay.record.space import RecordedSpace
from toolkit.search.base import DirectionScorer
from toolkit.training import evaluate_model, load_mutation, train_mutation
from toolkit.training.evaluate.mutation_metrics import TaskGains, summarize_gains
from toolkit.training.evaluate.noise import occasion_noise
from toolkit.training.members import gain_models
from toolkit.training.members.gain_models import DIRECTION_COLUMNS, MixedGains, direction_rows
from toolkit.training.recipes.recipe import MutationOptions, Recipe
from toolkit.training.table.mutation_labels import Choices
from toolkit.training.tasks import mutation
from toolkit.training.trained.store import seal


def recipe_for(
    quick: Recipe, method: str, level: str = "knob", rounds: int | None = None
) -> Recipe:
    """A recipe of a method; fewer rounds than usual where it need not be good.

    ``mixed`` is ``expected`` with a model of gains beside that of throughput.
    """
    models = quick.models
    if method == "mixed":
        method = "expected"
        models = (*models, models[0].model_copy(update={"objective": "gains", "weight": 0.5}))
    options = MutationOptions(method=method, level=level)  # type: ignore[arg-type]
    if method == "classifier":
        models = (models[0].model_copy(update={"library": "xgboost", "params": {}}),)
    if rounds is not None:
        models = tuple(model.model_copy(update={"rounds": rounds}) for model in models)
    update = {"kind": "mutation", "mutation": options, "models": models}
    return quick.model_copy(update=update)


@pytest.mark.parametrize(
    ("method", "level", "share"),
    [
        ("expected", "knob", 0.8),
        ("mixed", "knob", 0.8),
        ("direct", "knob", 0.5),
        ("classifier", "rule", 0.3),
    ],
)
def test_it_picks_directions_on_tasks_that_it_never_saw(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, method: str, level: str, share: float
) -> None:
    recipe = recipe_for(quick, method, level)
    result = train_mutation(made_dataset, recipe, tmp_path / "model", threads=1)
    assert result["gain_share"] > share
    assert result["gain_share_interval"][0] > result["gain_share_base_rate"]
    assert result["gain_share_interval"][0] > result["gain_share_fixed_weights"]
    assert result["ahead_of_base_rate_interval"][0] > 0
    assert 0 < result["accuracy"] <= 1
    assert result["n_test_tasks"] == len(SHAPES)
    assert set(result["levels"]) == {"knob", "rule", "way"} - {level}
    # Every space of the made logs was recorded completely, on two occasions each.
    assert result["enumerated"]["gain_share"] == pytest.approx(result["gain_share"])
    assert result["gain_share_blind_ceiling"] > 0.95
    assert 0.9 < result["gain_share_ceiling"] <= 1
    low, high = result["gain_share_ceiling_interval"]
    assert low <= result["gain_share_ceiling"] <= high
    assert 0 <= result["calibration_error"] <= 1
    assert sum(entry["picks"] for entry in result["reliability"]) == result["judged_candidates"]

    again = evaluate_model(tmp_path / "model", made_dataset)
    assert again["gain_share"] == pytest.approx(result["gain_share"])
    assert again["levels"]["way"]["accuracy"] == pytest.approx(result["levels"]["way"]["accuracy"])

    model = load_mutation(tmp_path / "model")
    for task_id in made_dataset.tasks():
        assert task_id not in model.for_task(task_id).training_task_ids


def test_elsewhere_the_base_rate_of_the_training_tasks_is_unknown(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    """It was a uniform choice under another name."""
    recipe = recipe_for(quick, "expected", rounds=5)
    train_mutation(made_dataset, recipe, tmp_path / "model", threads=1)
    write_autotvm(tmp_path / "log.json", [(48, 96, 14)])
    ingest([tmp_path / "log.json"], tmp_path / "elsewhere")
    judged = evaluate_model(tmp_path / "model", open_dataset(tmp_path / "elsewhere"))
    assert judged["n_test_tasks"] == 1
    assert np.isfinite([judged["gain_share"], judged["gain_share_uniform"]]).all()
    assert np.isnan([judged["gain_share_base_rate"], judged["ahead_of_base_rate"]]).all()


def test_a_model_of_an_earlier_layout_is_refused_in_one_line(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    train_mutation(
        made_dataset, recipe_for(quick, "expected", rounds=5), tmp_path / "model", threads=1
    )
    path = tmp_path / "model" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "model_version": 1}))
    with pytest.raises(ModelError, match="has model version 1"):
        load_mutation(tmp_path / "model")
    path.write_text(json.dumps(seal({**manifest, "extractor_versions": {"knobs": 0}})))
    with pytest.raises(ModelError, match="version 0 of the extractor 'knobs'"):
        load_mutation(tmp_path / "model")


@pytest.mark.parametrize("method", ["expected", "mixed", "direct", "classifier"])
def test_poisoning_the_judged_task_changes_none_of_its_gains(
    tmp_path: Path, quick: Recipe, method: str
) -> None:
    recipe = recipe_for(quick, method, rounds=20)
    # Gains closer than the tie are equal; it is a property of the machine, not of a task.
    tied = recipe.mutation.model_copy(update={"tie": 0.01})
    recipe = recipe.model_copy(update={"mutation": tied})
    if method == "expected":
        differing = recipe.models[0].model_copy(update={"objective": "neighbours"})
        recipe = recipe.model_copy(update={"models": (recipe.models[0], differing)})

    def gains(name: str, factors: dict[tuple[int, int, int], float]) -> list[float]:
        write_autotvm(tmp_path / name / "log.json", factors=factors)
        ingest([tmp_path / name / "log.json"], tmp_path / name / "dataset")
        dataset = open_dataset(tmp_path / name / "dataset")
        train_mutation(dataset, recipe, tmp_path / name / "m", threads=1)
        judged = next(t for t in dataset.tasks().values() if t.arguments[1][1][:2] == [128, 64])
        space = RecordedSpace(dataset, judged.task_id)
        scorer = load_mutation(tmp_path / name / "m").for_task(judged)
        found: list[float] = []
        for candidate in space.candidates()[:40]:
            directions = space.directions(candidate)
            found += scorer.gains(space, candidate, directions).tolist()
        return found

    clean = gains("clean", {})
    assert clean == gains("dirty", {SHAPES[2]: 3.0})
    assert len(set(clean)) > 3


class Open:
    """A space that cannot be listed, over the sketches of a recorded one."""

    def __init__(self, recorded: RecordedSpace) -> None:
        self.task: Task = recorded.task
        self.sketches: Sequence[Sketch] = recorded.sketches
        self.size = None


@pytest.mark.parametrize("method", ["expected", "mixed", "direct", "classifier"])
def test_the_search_sees_gains_in_any_space(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, method: str
) -> None:
    recipe = recipe_for(quick, method, rounds=10)
    train_mutation(made_dataset, recipe, tmp_path / "model", threads=1)
    task_id = next(iter(made_dataset.tasks()))
    scorer = load_mutation(tmp_path / "model").for_task(task_id)
    assert isinstance(scorer, DirectionScorer)
    recorded = RecordedSpace(made_dataset, task_id)
    candidate: Candidate = recorded.candidates()[7]
    directions = [*recorded.directions(candidate), Direction("tile"), Direction("categorical")]
    spaces: list[Any] = [recorded, Open(recorded)]
    for space in spaces:
        gains = scorer.gains(space, candidate, directions)
        assert gains.shape == (len(directions),)
        assert np.isfinite(gains).all()


def test_a_scorer_keeps_the_space_that_it_knows(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    """Another one could not be told from it: Python gives ids of what is gone again."""
    train_mutation(made_dataset, recipe_for(quick, "expected", rounds=2), tmp_path / "m", threads=1)
    task_id = next(iter(made_dataset.tasks()))
    scorer = load_mutation(tmp_path / "m").for_task(task_id)
    space = RecordedSpace(made_dataset, task_id)
    candidate = space.candidates()[7]
    scorer.gains(space, candidate, space.directions(candidate))
    known = weakref.ref(space)
    del space
    gc.collect()
    assert known() is not None


def test_a_classifier_is_not_fitted_on_a_gpu_that_is_not_there(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xgboost, "build_info", lambda: {"USE_CUDA": False})
    recipe = recipe_for(quick, "classifier", rounds=2).model_copy(update={"device": "cuda"})
    with pytest.raises(RecipeError, match="built without CUDA"):
        train_mutation(made_dataset, recipe, tmp_path / "model", threads=1)


def test_models_of_gains_have_their_share_in_the_mean(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    """In spaces that can be listed and that cannot; both parts were fitted alone as well."""
    found: dict[str, list[Any]] = {}
    task_id = next(iter(made_dataset.tasks()))
    recorded = RecordedSpace(made_dataset, task_id)
    candidate: Candidate = recorded.candidates()[7]
    for method in ("expected", "direct", "mixed"):
        recipe = recipe_for(quick, method, rounds=10)
        train_mutation(made_dataset, recipe, tmp_path / method, threads=1)
        scorer = load_mutation(tmp_path / method).for_task(task_id)
        spaces: list[Any] = [recorded, Open(recorded)]
        found[method] = [
            scorer.gains(space, candidate, recorded.directions(candidate)) for space in spaces
        ]
    assert load_mutation(tmp_path / "mixed").manifest["importance"].keys() & set(DIRECTION_COLUMNS)
    for expected, direct, mixed in zip(*found.values(), strict=True):
        assert mixed == pytest.approx((expected + 0.5 * direct) / 1.5)
        assert not np.allclose(expected, direct)


def test_a_large_log_gives_gains_so_many_rows(
    made_dataset: Dataset, quick: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About ``max_rows`` times ``ROWS_A_CANDIDATE``, drawn before they are laid out."""
    laid_out: list[int] = []

    def counted(*given: Any) -> Any:
        rows, places = direction_rows(*given)
        if len(given) == 3:
            laid_out.append(len(rows))
        return rows, places

    monkeypatch.setattr(gain_models, "direction_rows", counted)
    recipe = recipe_for(quick, "direct", rounds=2)
    data = recipe.data.model_copy(update={"max_rows": 300})
    train_mutation(made_dataset, recipe.model_copy(update={"data": data}), threads=1)
    fits = len(SHAPES) if len(SHAPES) > 2 else 2
    assert sum(laid_out) == pytest.approx(fits * 600, rel=0.1)


def test_an_emulators_noise_is_none_of_a_machines(
    made_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert occasion_noise(made_dataset)[0] is not None
    monkeypatch.setattr(Dataset, "emulated_tasks", lambda self: set(self.tasks()))
    spread, shifts = occasion_noise(made_dataset)
    assert spread is None and not len(shifts)


def made_choices(gain: list[list[float]]) -> Choices:
    return Choices(("tile:a", "tile:b", "unroll:u"), ("tile", "tile", "unroll"), np.array(gain))


def test_policies_by_hand() -> None:
    nan = float("nan")
    found = made_choices([[0.2, -0.1, 0.0], [0.4, nan, 0.1], [nan, nan, 5.0]])
    guess = np.array([[0.0, 1.0, 0.5], [1.0, 9.0, 0.0], [0.0, 0.0, 0.0]])
    gains = TaskGains("t")
    weights = np.array([0.9, 0.9, 0.1])
    gains.add(found, guess, weights, {"unroll:u": 1.0}, tie=0.05, temperature=1.0)
    assert gains.candidates == 2  # the third has one recorded direction only
    assert gains.gain is not None
    assert gains.gain["model"] == pytest.approx(-0.1 + 0.4)  # an unrecorded guess is masked
    assert gains.gain["oracle"] == pytest.approx(0.2 + 0.4)
    assert gains.gain["uniform"] == pytest.approx(0.1 / 3 + 0.25)
    assert gains.gain["base_rate"] == pytest.approx(0.0 + 0.1)
    assert gains.gain["fixed_weights"] == pytest.approx(
        (0.45 * 0.2 - 0.45 * 0.1) + (0.9 * 0.4 + 0.1 * 0.1)
    )
    assert gains.right == 1
    summary = summarize_gains([gains])
    assert summary["gain_share"] == pytest.approx(0.3 / 0.6)
    assert summary["accuracy"] == 0.5


def test_an_oracle_has_share_one_and_a_constant_is_uniform() -> None:
    rng = np.random.default_rng(0)
    found = made_choices(rng.normal(size=(50, 3)).tolist())
    for guess, share in ((found.gain, 1.0), (np.zeros((50, 3)), None)):
        gains = TaskGains("t")
        gains.add(found, guess, np.ones(3), {}, tie=0.0, temperature=1.0)
        summary = summarize_gains([gains])
        expected = summary["gain_share_uniform"] if share is None else share
        assert summary["gain_share"] == pytest.approx(expected)


def test_probabilities_are_judged_by_how_often_they_come_true() -> None:
    """Gains drawn from the model's own probabilities: what was promised is what comes."""
    rng = np.random.default_rng(0)
    guess = rng.normal(size=(4000, 3))
    chance = np.exp(guess / 0.5)
    chance /= chance.sum(axis=1, keepdims=True)
    best = (rng.random((4000, 1)) > chance.cumsum(axis=1)).sum(axis=1)
    gain = np.zeros((4000, 3))
    gain[np.arange(4000), best] = 1.0
    errors = {}
    for temperature in (0.1, 0.5, 2.0):
        gains = TaskGains("t")
        found = made_choices(gain.tolist())
        gains.add(found, guess, np.ones(3), {}, tie=0.0, temperature=temperature)
        summary = summarize_gains([gains])
        errors[temperature] = summary["calibration_error"], summary["log_loss"]
    assert errors[0.5][0] < 0.03
    assert errors[0.5] == min(errors.values())
    assert errors[0.1][0] > 0.1
    assert errors[2.0][0] > 0.1


@pytest.mark.parametrize("dense", [True, False])
def test_models_for_other_neighbourhoods_are_left_out(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, dense: bool
) -> None:
    """A model of gains learns little where a direction has few recorded neighbours."""
    dataset = made_dataset
    if not dense:
        write_autotvm(tmp_path / "log.json")
        lines = (tmp_path / "log.json").read_bytes().splitlines(keepends=True)
        kept = np.random.default_rng(0).permutation(len(lines))[::10]
        (tmp_path / "log.json").write_bytes(b"".join(lines[row] for row in kept))
        ingest([tmp_path / "log.json"], tmp_path / "half")
        dataset = open_dataset(tmp_path / "half")
    mixed = recipe_for(quick, "mixed", rounds=5)
    plain, gains = mixed.models
    models = (
        plain.model_copy(update={"neighbourhood": "sparse"}),
        plain.model_copy(update={"target": "speed"}),
        gains.model_copy(update={"neighbourhood": "dense"}),
    )
    recipe = mixed.model_copy(update={"models": models})
    train_mutation(dataset, recipe, tmp_path / "model", threads=1)
    kept = load_mutation(tmp_path / "model")
    assert kept.recipe.models == (models[1:] if dense else models[:2])
    assert isinstance(kept.members["all"].ensemble, MixedGains) is dense
    again = evaluate_model(tmp_path / "model", dataset)
    assert again["gain_share"] == pytest.approx(kept.manifest["metrics"]["gain_share"])


def test_a_log_that_leaves_no_choice_of_direction_is_told_before_anything_is_fitted(
    quick: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_autotvm(tmp_path / "log.json", [(64, 64, size) for size in (14, 28, 56, 112)])
    fixed = (b'["tile_ic","sp",[-1,4]]', b'["tile_oc","sp",[-1,8]]', b'["unroll_kw","ot",false]')
    lines = (tmp_path / "log.json").read_bytes().splitlines(keepends=True)
    one_knob = [line for line in lines if all(part in line for part in fixed)]
    (tmp_path / "log.json").write_bytes(b"".join(one_knob))
    ingest([tmp_path / "log.json"], tmp_path / "dataset")
    monkeypatch.setattr(mutation, "fit_gains", None)
    few = quick.data.model_copy(update={"min_records": 2, "judged_records": 2})
    recipe = recipe_for(quick, "expected").model_copy(update={"data": few})
    with pytest.raises(DatasetError, match="has neighbours in two directions"):
        train_mutation(open_dataset(tmp_path / "dataset"), recipe, threads=1)
