"""Transfer over an evolved pool: for spaces that are too large to be listed or sampled well."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from toolkit.records import Candidate
from toolkit.search.models.encoding import number_codes
from toolkit.search.moves.pool import sampled_pool
from toolkit.search.strategies.transfer import Transfer, TransferOptions


class TransferEvolvedOptions(TransferOptions):
    """Options of transfer, and of the evolution of its pool."""

    batch: int = Field(default=8, ge=1, description="proposals between two corrections, at first")
    samples: int = Field(
        default=500, ge=1, description="candidates that a pool begins with where it is evolved"
    )
    generations: int = Field(default=2, ge=0, description="times that a pool is evolved")
    first: int = Field(
        default=4,
        ge=1,
        description="times as many candidates (and twice the generations) for the first proposals",
    )
    parents: int = Field(default=64, ge=1, description="candidates that have mutants, best first")
    children: int = Field(default=4, ge=1, description="mutants of each of them")


class TransferEvolved(Transfer):
    """Transfer whose pool is bred for its own bound, instead of drawn at random.

    In a space that cannot be listed a random sample rarely holds what either model likes best.
    Before each batch the pool is mutated where the bound (prediction, correction and uncertainty)
    is highest, a few generations long; part of what is kept has a factor of a tile that was
    never measured, for the turns that look for something new. In a finite space it is ``transfer``.
    """

    name = "transfer-evolved"
    source = "transfer; the evolution is that of Zheng et al. 2020 (Ansor), section 5"
    Options = TransferEvolvedOptions
    options: TransferEvolvedOptions

    def setup(self) -> None:
        """Start without predictions."""
        self._predicted: dict[str, float] = {}
        super().setup()

    def values(self, columns: NDArray[np.float32]) -> NDArray[np.int64]:
        """Single factors of tiles: nearly every tile of a large space is one never measured."""
        return super().values(columns) if self._finite else number_codes(columns)

    def predictions(self, candidates: list[Candidate]) -> NDArray[np.float64]:
        """Ask the model once for each candidate."""
        new = [c for c in candidates if c.candidate_id not in self._predicted]
        if new:
            scores = super().predictions(new).tolist()
            self._predicted.update(zip((c.candidate_id for c in new), scores, strict=True))
        return np.array([self._predicted[c.candidate_id] for c in candidates], dtype=np.float64)

    def _refresh(self) -> None:
        o = self.options
        kept = {trial.candidate.candidate_id: trial.candidate for trial in self._trials}
        # The first proposals stand on the prediction alone: it is worth a closer look.
        more, longer = (1, 1) if self._trials else (o.first, 2)
        samples, parents = more * o.samples, more * o.parents
        self._fill([*kept.values(), *sampled_pool(self.space, self.rng, samples, self._trials)])
        for _ in range(longer * o.generations):
            order = np.argsort(-self._bound(), kind="stable")
            best = [self._pool[i] for i in order[: max(parents, samples // 2)].tolist()]
            # Else the turns that look for something new would find nothing but the same again.
            rest = order[parents:]
            novel = rest[self._novel()[rest]]
            new = [self._pool[i] for i in novel[: samples // 4].tolist()]
            breeding = [*best[:parents], *new[: parents // 4]]
            self._fill([*kept.values(), *best, *new, *self._children(breeding)])

    def _bound(self) -> NDArray[np.float64]:
        """Upper confidence bound of the pool, the mean over the processes."""
        o = self.options
        exploration = o.exploration if self._trials else 0.0
        posteriors = [process.posterior() for process in self._processes]
        bounds = [mean + exploration * deviation for mean, deviation in posteriors]
        return np.asarray(np.where(self._open, np.mean(bounds, axis=0), -np.inf))

    def _fill(self, candidates: Iterable[Candidate]) -> None:
        self._set_pool({c.candidate_id: c for c in candidates}.values())
        self._take_in_all()

    def _children(self, parents: list[Candidate]) -> list[Candidate]:
        found: list[Candidate] = []
        for parent in parents:
            directions = self.space.directions(parent)
            if not directions:
                continue
            for i in self.rng.integers(len(directions), size=self.options.children).tolist():
                moved = self.space.mutate(parent, directions[i], self.rng)
                if moved is not None:
                    found.append(moved)
        return found
