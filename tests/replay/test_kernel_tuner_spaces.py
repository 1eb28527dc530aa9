"""Kernel Tuner caches as spaces: numbers, booleans and words, searched by every strategy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from zlib import crc32

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from toolkit.datasets import ingest, open_dataset
from toolkit.records import Candidate, Direction
from toolkit.replay import RecordedSpace, load_tables, parse_scenario
from toolkit.replay.execute.task_run import replay_once
from toolkit.search import STRATEGIES
from toolkit.search.base import Space
from toolkit.search.strategies.kernel_tuner_side import parameters_of

PARAMETERS = {
    "block_size_x": [16, 32, 64, 128, 256],
    "tile": [1, 2, 3, 4],
    "padding": [True, False],
    "layout": ["row", "column", "blocked"],
}


def milliseconds(x: int, tile: int, padding: bool, layout: str) -> float:
    """Lowest at 64, 3, no padding, blocked; a bowl in each parameter."""
    bowl = 0.3 * (np.log2(x) - 6) ** 2 + 0.2 * (tile - 3) ** 2
    return float(1.0 + bowl + 0.4 * padding + 0.5 * ["blocked", "row", "column"].index(layout))


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> RecordedSpace:
    """A cache as Kernel Tuner writes it, ingested; one configuration fails, one is missing."""
    cache = {}
    for number, values in enumerate(product(*PARAMETERS.values())):
        if number == 7:
            continue
        time = milliseconds(*values)
        entry = dict(zip(PARAMETERS, values, strict=True)) | {
            "time": "RuntimeFailedConfig" if number == 3 else time,
            "times": [] if number == 3 else [time] * 5,
            "compile_time": 500.0,
            "benchmark_time": 50.0,
            "timestamp": "2024-01-01 00:00:00.000000+00:00",
        }
        cache[",".join(map(str, values))] = entry
    content = {
        "device_name": "toy",
        "kernel_name": "toy",
        "problem_size": [64, 64],
        "tune_params_keys": list(PARAMETERS),
        "tune_params": PARAMETERS,
        "objective": "time",
        "cache": cache,
    }
    folder = tmp_path_factory.mktemp("kernel-tuner")
    (folder / "toy.json").write_bytes(orjson.dumps(content))
    ingest(folder / "toy.json", folder / "dataset")
    (table,) = load_tables(open_dataset(folder / "dataset")).values()
    return RecordedSpace(table)


class Guesses:
    """A model that knows nothing, the same way each time."""

    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.array([int(c.candidate_id[:4], 16) / 65536 for c in candidates])

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        return np.linspace(0.0, 1.0, len(directions))


def test_the_whole_cache_is_the_space(space: RecordedSpace) -> None:
    assert len(space.table) == 119
    assert {knob.kind for knob in space.table.sketches[0].knobs} == {"categorical"}
    assert space.table.best_s == pytest.approx(1.0e-3)


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_every_strategy_searches_numbers_booleans_and_words(
    name: str, space: RecordedSpace
) -> None:
    if name == "kernel-tuner":
        pytest.importorskip("kernel_tuner", reason="pip install '.[kernel-tuner]'")
    # A population as large as the space would leave a genetic tuner nothing to breed.
    options = (
        {"population": 16} if "population" in STRATEGIES.get(name).Options.model_fields else {}
    )
    content = {"name": "x", "batch_size": 8, "strategy": [{"name": name, "options": options}]}
    scenario = parse_scenario(content)
    run = replay_once(
        space, scenario.strategies[0], scenario, 0, scorer=Guesses(), direction_scorer=Guesses()
    )
    assert run.metrics["evaluations"]
    if name != "droplet-faithful":  # its published stop criterion may end it on the way
        assert run.metrics["evaluations_to_1pct"] is not None


def test_words_have_the_same_hash_in_every_process(space: RecordedSpace) -> None:
    """Kernel Tuner goes through sets of values: in another order a run would be another one."""
    values = [value for known in parameters_of(space).values.values() for value in known]
    words = [value for value in values if isinstance(value, str)]
    assert len(words) == 5
    assert [hash(word) for word in words] == [crc32(word.encode()) for word in words]


def test_droplet_moves_along_every_parameter(space: RecordedSpace) -> None:
    """A parameter that is never moved could never be tuned."""
    content = {"name": "x", "batch_size": 8, "strategy": [{"name": "droplet"}]}
    scenario = parse_scenario(content)
    run = replay_once(space, scenario.strategies[0], scenario, 0)
    reached = run.metrics["evaluations_to_1pct"]
    assert isinstance(reached, int)
    assert reached < 60  # random search needs 60 on average
    decisions = np.array([space.candidates()[i].decisions for i in run.replayed.candidate])
    assert all(len(np.unique(column)) > 1 for column in decisions.T)
