"""Tasks of one search teach each other, and a task learns nothing from itself that way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.conftest import PROTOCOL
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.tune.relatives import RelatedScorer, Relatives
from toolkit.live.tune.settings import TuneSettings, for_network
from toolkit.live.tune.tasks import TuneTask
from toolkit.live.tune.tune import tune
from toolkit.live.workloads.named import parse_workload
from toolkit.records import Trial, TrialState
from toolkit.training.trained.models import load_trained

pytestmark = pytest.mark.live

NAMES = ("matmul:8,12,16", "matmul:16,12,8")


def spaces(target: str) -> list[Any]:
    made = (DesignSpace(parse_workload(name)[0].module, target) for name in NAMES)
    return [MetaScheduleSpace(design) for design in made]


def against(scores: Any, candidates: Any) -> list[Trial]:
    """Trials whose latencies are the opposite of what a model believes."""
    ranks = np.argsort(np.argsort(scores)) + 1.0
    return [
        Trial(candidate=c, state=TrialState.OK, run_times_s=(1e-5 * r,), elapsed_s=0.1)
        for c, r in zip(candidates, ranks.tolist(), strict=True)
    ]


def test_what_one_task_measured_corrects_the_other(model: Path, target: str) -> None:
    guides = load_trained([model])
    rng = np.random.default_rng(0)
    here, there = spaces(target)
    told, asked = here.sample(rng, 60), there.sample(rng, 60)

    def taught(reverse: bool) -> tuple[RelatedScorer, RelatedScorer]:
        relatives = Relatives()
        one = relatives.scorer(guides.throughput.for_task(here.task), here)
        other = relatives.scorer(guides.throughput.for_task(there.task), there)
        trials = against(one.score(here, told), told)
        for trial in reversed(trials) if reverse else trials:
            relatives.take(0, trial)
        relatives.take(0, Trial(told[0], TrialState.RUNTIME, (), 0.1, error="crashed"))
        return one, other

    one, other = taught(reverse=False)
    believed = other.score(there, asked)
    assert not one.refresh()
    assert other.refresh() and not other.refresh()
    corrected = other.score(there, asked)
    assert np.corrcoef(believed, corrected - believed)[0, 1] < -0.5
    assert np.array_equal(one.score(here, told), one.base.score(here, told))
    # In whatever order readings came in: a search that goes on must ask for the same.
    _, again = taught(reverse=True)
    again.refresh()
    assert np.array_equal(again.score(there, asked), corrected)


def test_a_search_of_several_tasks_uses_it(
    model: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = []
    refresh = RelatedScorer.refresh

    def watched(self: RelatedScorer) -> bool:
        found = refresh(self)
        learnt.append((self.number, found))
        return found

    monkeypatch.setattr(RelatedScorer, "refresh", watched)
    tasks = [
        TuneTask(f"net:{name}", parse_workload(name)[0].module, 1.0, network=True) for name in NAMES
    ]
    # In turns: else it depends on what is read whether a task has one after the other's.
    settings = TuneSettings(
        trials=60, strategy="transfer-evolved", scheduler="round-robin", check=False
    )
    settings = for_network(settings, stop=False)
    result = tune(
        tasks,
        tmp_path / "tuned",
        target=target,
        protocol=PROTOCOL,
        settings=settings,
        guides=load_trained([model]),
    )
    assert result["trials"] == 60
    assert {number for number, found in learnt if found} == {0, 1}
