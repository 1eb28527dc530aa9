"""Scenarios are checked before anything runs, and say what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolkit.errors import RecipeError
from toolkit.replay import load_scenario, parse_scenario
from toolkit.workspace import bundled

GOOD: dict[str, Any] = {"name": "x", "strategy": [{"name": "random"}]}


@pytest.mark.parametrize("path", sorted(bundled("replay").glob("*.toml")), ids=lambda p: p.stem)
def test_bundled_scenarios_fit(path: Path) -> None:
    scenario = load_scenario(path.stem)
    assert scenario.name == path.stem
    assert scenario.description
    assert scenario.baseline in scenario.labels


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 3}, "seeds"),
        ({"strategy": [{"name": "randon"}]}, "random"),
        ({"budget": {"evaluation": 3}}, "evaluations"),
        ({"strategy": [{"name": "random"}, {"name": "random"}]}, "label"),
        ({"strategy": []}, "strategy"),
        ({"tasks": {"minimum": 3}}, "minimum_candidates"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": "3"}, "seeds: must be a valid integer, not '3'"),
        ({"strategy": [{"label": "a"}]}, "strategy.0.name: is missing"),
        ({"seeds": True}, "seeds"),
        ({"seeds": 10**9}, "10000"),
        ({"resamples": 10**9}, "100000"),
        ({"measuring_workers": 10**9}, "10000"),
        ({"network": {"round_size": 10**9}}, "1000000"),
        ({"network": {"rounds_per_task": 10**9}}, "1000000"),
        ({"network": {"options": {"gradeint": {"alpha": 0.1}}}}, "did you mean 'gradient'"),
        ({"budget": {"evaluations": 10**12}}, "1000000"),
        ({"budget": {"seconds": float("inf")}}, "finite"),
        ({"batch_size": 10**9}, "1000000"),
        ({"strategy": [{"name": "random", "batch_size": 10**9}]}, "1000000"),
        ({"strategy": [{"name": "random", "optoins": {}}]}, "did you mean 'options'"),
        ({"cost": {"build": 1.0}}, "build_s"),
        ({"stop_at_best": 1}, "boolean"),
        ({"name": "../.."}, "no name for a folder"),
        ({"name": 3}, "name"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        parse_scenario(GOOD | change)


def test_a_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('seeds = 3\n[[strategy]]\nname = "random"\nlabel = "r"\n')
    scenario = load_scenario(path)
    assert (scenario.name, scenario.seeds, scenario.labels) == ("mine", 3, ["r"])
    path.write_text("seeds = [")
    with pytest.raises(RecipeError, match=r"mine\.toml"):
        load_scenario(path)
    with pytest.raises(RecipeError, match="no such"):
        load_scenario(tmp_path / "other.toml")


def test_unknown_names_come_with_near_ones() -> None:
    with pytest.raises(RecipeError, match="quick"):
        load_scenario("quik")


def test_the_fingerprint_is_of_what_matters() -> None:
    one = parse_scenario(GOOD)
    assert one.fingerprint() == parse_scenario(GOOD | {"description": "words"}).fingerprint()
    assert one.fingerprint() != parse_scenario(GOOD | {"seeds": 9}).fingerprint()


def test_a_baseline_that_is_not_compared_is_refused() -> None:
    content = {"name": "x", "strategy": [{"name": "grid"}, {"name": "random"}]}
    with pytest.raises(RecipeError, match="baseline") as caught:
        parse_scenario(content | {"baseline": "gird"})
    assert "grid" in str(caught.value)
    # The default is no wish: without random search there are no ratios.
    parse_scenario(content | {"strategy": [{"name": "grid"}]})
