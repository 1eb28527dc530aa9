"""Evolutionary search that mutates where a trained model expects the most.

Han, Wang, Li, Gao 2025, "Automatic Scheduling Search Optimization Method Based on TVM", section 3,
algorithm 1; with section 4's choice of sketches it is ``etc-mutation``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from toolkit.search.moves.movers import GuidedMover, Mover
from toolkit.search.strategies.evolutionary import Evolutionary, EvolutionaryOptions
from toolkit.search.strategies.sketch_choice import EtcSketch, EtcSketchOptions


class MutationGuidedOptions(EvolutionaryOptions):
    """Options of evolutionary search, and how a direction is taken from the model."""

    mode: Literal["best", "sampled"] = Field(
        default="best",
        description="the direction of the highest expected gain (as published), or one drawn "
        "from the softmax of expected gains",
    )
    temperature: float | None = Field(
        default=None,
        gt=0,
        description="of the softmax, in units of log latency; default: what the model was "
        "calibrated to, 0.1 where it says none",
    )


class MutationGuided(Evolutionary):
    """Evolutionary search whose mutations a trained model chooses, one direction a program."""

    name = "mutation-guided"
    source = "Han et al. 2025, section 3, algorithm 1"
    Options = MutationGuidedOptions
    options: MutationGuidedOptions
    needs_direction_scorer = True

    def make_mover(self) -> Mover:
        """Mutate as the model says."""
        assert self.direction_scorer is not None
        o = self.options
        return GuidedMover(self.space, self.direction_scorer, o.mode, o.temperature)


class EtcMutationOptions(EtcSketchOptions, MutationGuidedOptions):
    """Options of both; ``etc-sketch`` and ``mutation-guided`` are its ablations."""


class EtcMutation(EtcSketch):
    """Sketches by explore-then-commit, mutations by the trained model."""

    name = "etc-mutation"
    source = "Han et al. 2025, sections 3 and 4 together"
    Options = EtcMutationOptions
    options: EtcMutationOptions
    needs_direction_scorer = True

    def make_mover(self) -> Mover:
        """Mutate as the model says."""
        assert self.direction_scorer is not None
        o = self.options
        return GuidedMover(self.space, self.direction_scorer, o.mode, o.temperature)
