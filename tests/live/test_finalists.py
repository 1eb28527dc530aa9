"""Finalists: heats find the best program, failures leave, the database's first is the winner."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm.s_tir import meta_schedule as ms

from tests.live.conftest import PROTOCOL
from toolkit.cli.commands.tune import tune as tune_command
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.finalists import (
    FINALISTS,
    LAST,
    ReadRounds,
    hold_heats,
    rounds_elsewhere,
    rounds_here,
)
from toolkit.live.tune.resume import ranked_trials, recorded_trials
from toolkit.live.tune.settings import TuneSettings, for_network
from toolkit.live.tune.tune import tune
from toolkit.live.tune.winner import name_winner
from toolkit.networks.tasks import tasks_of
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

NAMES = [f"p{i}" for i in range(12)]


def reader(
    true_s: Mapping[str, float], rng: np.random.Generator, spread: float, asked: list[list[str]]
) -> ReadRounds:
    """Rounds with drift that all programs share and a spread of their own."""

    def read(names: Sequence[str], last: bool) -> Iterator[Mapping[str, MeasureResult]]:
        asked.append(list(names))
        for _ in range(20 if last else 10):
            drift = rng.lognormal(0.0, 0.3)
            yield {
                name: MeasureResult(
                    TrialState.OK, (true_s[name] * drift * rng.lognormal(0.0, spread),)
                )
                for name in names
            }

    return read


@given(st.integers(0, 2**31), st.integers(2, 12))
def test_the_heats_find_the_best_whatever_all_share(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    names = NAMES[:count]
    # 5 % apart, in an order that the names do not tell.
    true_s = dict(
        zip(rng.permutation(names).tolist(), 1e-3 * 1.05 ** np.arange(count), strict=True)
    )
    asked: list[list[str]] = []
    standing = hold_heats(names, reader(true_s, rng, 0.005, asked))
    assert standing.order[0] == min(true_s, key=true_s.__getitem__)
    assert sorted(standing.order) == sorted(names) and standing.failed == {}
    levels = [standing.levels[name] for name in standing.order]
    assert levels == sorted(levels)
    assert [len(each) for each in asked][-1] == LAST
    assert all(len(b) == max(LAST, (len(a) + 1) // 2) for a, b in pairwise(asked))


def test_one_reading_would_have_misled_where_the_heats_do_not() -> None:
    found = lucky = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        true_s = dict(zip(NAMES, 1e-3 * 1.02 ** np.arange(len(NAMES)), strict=True))
        lowest = min(NAMES, key=lambda name: true_s[name] * rng.lognormal(0.0, 0.08))
        lucky += true_s[lowest] <= 1.02 * 1e-3
        standing = hold_heats(NAMES, reader(true_s, rng, 0.03, []))
        found += true_s[standing.order[0]] <= 1.02 * 1e-3
    assert found >= 36 and lucky <= 24


def test_a_program_that_fails_in_a_heat_leaves_and_the_others_are_ranked() -> None:
    rng = np.random.default_rng(0)
    true_s = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    calls = 0

    def read(names: Sequence[str], last: bool) -> Iterator[Mapping[str, MeasureResult]]:
        nonlocal calls
        failed = False
        for turn in reader(true_s, rng, 0.001, [])(names, last):
            calls += 1
            if "a" in turn and calls == 12:
                failed = True
                yield {**turn, "a": MeasureResult(TrialState.RUNTIME, error="died")}
            else:
                yield {n: r for n, r in turn.items() if n != "a" or not failed}

    standing = hold_heats(list(true_s), read)
    assert standing.failed["a"].error == "died"
    assert standing.order[0] == "b" and sorted(standing.order) == ["b", "c", "d"]
    every = {name: MeasureResult(TrialState.COMPILE, error="no") for name in true_s}
    standing = hold_heats(list(true_s), lambda names, _: iter([{n: every[n] for n in names}]))
    assert standing.order == [] and set(standing.failed) == set(true_s)


@pytest.fixture(scope="module")
def programs(design: DesignSpace) -> dict[str, Program]:
    drawn = [design.sample(np.random.default_rng(seed)) for seed in range(6)]
    made = [timed_program(d.schedule, design.inputs) for d in drawn if d is not None]
    return {str(place): program for place, program in enumerate(made[:3])}


def test_finalists_are_read_on_this_machine_and_by_an_engine(
    programs: dict[str, Program], target: str
) -> None:
    rng = np.random.default_rng(0)
    broken = {**programs, "broken": Program("x", '{"no": "module"}', [], 0)}
    with rounds_here(broken, target, PROTOCOL, rng) as read:
        standing = hold_heats(list(broken), read)
    assert sorted(standing.order) == sorted(programs)
    assert standing.failed["broken"].state is TrialState.COMPILE
    with (
        open_engine(target, PROTOCOL, builders=1) as engine,
        rounds_elsewhere(broken, engine, rng) as read,
    ):
        standing = hold_heats(list(broken), read)
    assert sorted(standing.order) == sorted(programs)
    assert standing.failed["broken"].state is TrialState.COMPILE


def test_a_lucky_reading_does_not_name_the_winner(target: str, tmp_path: Path) -> None:
    (task,) = tasks_of(["matmul:64,64,64"], target)
    common = {"target": target, "protocol": PROTOCOL, "guides": TrainedModels()}
    settings = TuneSettings(trials=10, strategy="random", check=False, finalists=0)
    tune([task], tmp_path, settings=settings, **common)
    space = MetaScheduleSpace(DesignSpace(task.module, target, seed=1))
    with DatabaseWriter(tmp_path, target) as writer:
        ranked = ranked_trials(space, writer)
        (best_s, _, best), (slow_s, _, lucky) = ranked[0], ranked[-1]
        assert slow_s > 1.5 * best_s, "ten random programs differ by more than that"
        read = [0.99 * best_s]
        writer.records[lucky][1][1] = read
        again = {"finalists": 2, "rng": np.random.default_rng(0), "now": count(7.0).__next__}
        with open_engine(target, PROTOCOL, builders=1) as engine:
            how = {"target": target, "protocol": PROTOCOL, **again}

            def settle() -> int:
                """How many were read again."""
                before = [line.get("final_clock_s") for line in writer.trials]
                # A busy machine decides nothing: again, then.
                for _ in range(20):
                    if name_winner(space, writer, engine, **how) is None:
                        now = [line.get("final_clock_s") for line in writer.trials]
                        return sum(a != b for a, b in zip(before, now, strict=True))
                raise AssertionError("a machine that stays busy")

            assert settle() == 2
            first, second = dict(writer.trials[best]), dict(writer.trials[lucky])
            (first_s, _, winner), *_ = ranked_trials(space, writer)
            # Each time at least one is new, until all of the best have been read again.
            times = 0
            while settle():
                times += 1
            assert times < len(writer.records)
            # Killed between the two files: the records are as they were read.
            writer.records[lucky][1][1] = read
            assert settle() == 2
        assert (first["final_place"], second["final_place"]) == (1, 2)
        assert first["final_clock_s"] == 7.0 and second["searched_s"] == read
        # The winner keeps what the search read of it.
        assert winner == best and first_s == best_s
        searched = {p: t for t, _, p in recorded_trials(space, writer, as_searched=True)}
        assert searched[lucky].latency_s == pytest.approx(read[0])
        (named_s, _, named), *_ = ranked_trials(space, writer)
        assert named != lucky
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    (top,) = database.get_top_k(database.commit_workload(task.module), 1)
    assert float(np.mean([float(s) for s in top.run_secs])) == pytest.approx(named_s)


def test_where_every_finalist_fails_nothing_is_condemned(target: str, tmp_path: Path) -> None:
    (task,) = tasks_of(["matmul:8,12,16"], target)
    settings = TuneSettings(trials=4, strategy="random", check=False, finalists=0)
    tune(
        [task],
        tmp_path,
        target=target,
        protocol=PROTOCOL,
        settings=settings,
        guides=TrainedModels(),
    )
    before = (tmp_path / "database_tuning_record.json").read_bytes()
    space = MetaScheduleSpace(DesignSpace(task.module, target, seed=1))
    hasty = replace(PROTOCOL, build_timeout_s=0.0)
    with DatabaseWriter(tmp_path, target) as writer:
        for record in writer.records:
            record[1][1] = [1e-6]
        with open_engine(target, PROTOCOL, builders=1) as engine:
            slowed = name_winner(
                space,
                writer,
                engine,
                target=target,
                protocol=hasty,
                finalists=2,
                rng=np.random.default_rng(0),
                now=lambda: 1.0,
            )
        assert slowed is None
        assert all(line["state"] == "ok" for line in writer.trials)
    assert (tmp_path / "database_tuning_record.json").read_bytes() == before


def test_the_commands_default_is_the_searchs() -> None:
    """None is given on: a workload has the search's finalists, a network none."""
    default = inspect.signature(tune_command).parameters["finalists"].default
    assert default is None and TuneSettings().finalists == FINALISTS
    assert for_network(TuneSettings(), stop=True).finalists == 0
