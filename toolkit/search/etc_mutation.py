"""Both of Han et al. 2025 together: explore-then-commit over sketches, guided mutation."""

from __future__ import annotations

from toolkit.search.etc_sketch import EtcSketch, EtcSketchOptions
from toolkit.search.movers import GuidedMover, Mover
from toolkit.search.mutation_guided import MutationGuidedOptions


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
