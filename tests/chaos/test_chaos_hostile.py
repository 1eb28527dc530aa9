"""Recipes, scenarios and models that mean no good: one line each, and never a traceback."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from kills import SEED
from made_autotvm import write_autotvm
from made_commands import QUICK
from running import toolkit
from typer.testing import CliRunner

from toolkit.cli.main import app

VALUES = (
    "-1", "0", "1e308", "-1e-308", "nan", "inf", "true", '""', '"x"', '"../.."', '"[/red]"', "[]",
    "[[1]]", "{}", "1000000000000", "99999999999999999999", '"\\u0000"', "1979-05-27", '"a\\nb"',
)  # fmt: skip
RECIPE = (
    "kind", "extractor", "seed", "device", "validity", "data", "data.min_records",
    "data.judged_records", "data.rows_per_task", "data.max_rows", "data.table_rows", "split.by",
    "split.folds", "split.leave_one_out", "mutation.tie", "mutation.level", "search.outer_folds",
    "search.space.rounds", "models", "no_such", "data.no_such",
)  # fmt: skip
MODEL = (
    "library", "target", "objective", "rounds", "early_stopping", "seeds", "weight", "min_tasks",
    "emphasis", "params", "params.num_leaves", "params.learning_rate", "params.num_leafs",
)  # fmt: skip
SCENARIO = (
    "name", "description", "batch_size", "seeds", "baseline", "missing", "measuring_workers",
    "count_strategy_time", "stop_at_best", "resamples", "confidence", "tasks", "tasks.ids",
    "tasks.minimum_candidates", "tasks.largest", "budget.evaluations", "budget.seconds",
    "cost.build_s", "cost.repeats", "network", "network.by", "network.schedulers",
    "network.round_size", "no_such",
)  # fmt: skip
STRATEGY = ("name", "label", "batch_size", "options", "options.population", "no_such")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_autotvm(folder / "logs" / "log.json")
    (folder / "quick.toml").write_text(QUICK)
    assert toolkit("ingest", "logs", cwd=folder)[0] == 0
    assert toolkit("train", "throughput", "--recipe", "quick.toml", cwd=folder)[0] == 0
    return folder


def recipe(name: str, value: str, of_model: bool) -> str:
    base = {"kind": '"throughput"', "data.min_records": "20", "data.judged_records": "50"}
    model = {"library": '"lightgbm"', "rounds": "3"}
    return toml(base, "models", model, name, value, of_model)


def scenario(name: str, value: str, of_strategy: bool) -> str:
    base = {"seeds": "1", "resamples": "100", "tasks.minimum_candidates": "10"}
    strategy = {"name": '"genetic"' if name.startswith("options") else '"random"'}
    return toml(base, "strategy", strategy, name, value, of_strategy)


def toml(
    base: dict[str, str], part: str, of_part: dict[str, str], name: str, value: str, inside: bool
) -> str:
    """A file with one value in another's place; a table in the place of a table's values."""
    chosen = of_part if inside else base
    for known in [one for one in chosen if one == name or one.startswith(f"{name}.")]:
        del chosen[known]
    chosen[name] = value
    lines = [f"{key} = {text}" for key, text in base.items()]
    if name != part:
        lines += [f"[[{part}]]", *(f"{key} = {text}" for key, text in of_part.items())]
    return "\n".join(lines) + "\n"


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["recipe", "scenario"])
def test_hostile_files_are_one_line_each(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(workplace)
    made, outer, inner = {
        "recipe": (recipe, RECIPE, MODEL),
        "scenario": (scenario, SCENARIO, STRATEGY),
    }[kind]
    command = {
        "recipe": ["train", "throughput", "--recipe", "hostile.toml", "--out", "model"],
        "scenario": ["simulate", "--scenario", "hostile.toml", "--out", "sim", "--workers", "1"],
    }[kind]
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for name, inside in [*((n, False) for n in outer), *((n, True) for n in inner)]:
        for value in VALUES:
            text = made(name, value, inside)
            (workplace / "hostile.toml").write_text(text)
            done = CliRunner().invoke(app, command)
            told = done.exit_code == 1 and done.stderr.count("error: ") == 1
            quiet = done.exception is None or isinstance(done.exception, SystemExit)
            if not quiet or not (told or done.exit_code == 0):
                wrong.append(f"{name} = {value} (inside: {inside}): {done.exception!r}")
            counts["refused" if done.exit_code else "taken"] += 1
    assert wrong == []
    print(f"hostile {kind}s: {dict(counts)}, no traceback")  # noqa: T201
    assert sum(counts.values()) >= 200


@pytest.mark.chaos
def test_damaged_models_are_one_line_each(workplace: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    model = tmp_path / "model"
    original = workplace / "tuning" / "models" / "throughput"
    names = sorted(p.relative_to(original) for p in original.rglob("*") if p.is_file())
    counts: Counter[str] = Counter()
    for number in range(60):
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(original, model)
        path = model / rng.choice(names)
        content = bytearray(path.read_bytes())
        how = ("cut", "flipped", "empty", "absent", "other", "grown")[number % 6]
        if how == "cut":
            del content[rng.randrange(len(content)) :]
        elif how == "flipped":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        elif how == "empty":
            content.clear()
        elif how == "other":
            content = bytearray((model / rng.choice(names)).read_bytes() + b"\n")
        elif how == "grown":
            content += content[: rng.randrange(1, len(content))]
        path.write_bytes(content)
        if how == "absent":
            path.unlink()
        code, _, err = toolkit("evaluate", model, cwd=workplace)
        assert code == 1, (how, path, code, err)
        assert "Traceback" not in err and err.count("error: ") == 1
        counts[how] += 1
    print(f"damaged models: {dict(counts)}, all refused, no process ended by a signal")  # noqa: T201
