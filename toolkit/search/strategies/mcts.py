"""Monte Carlo tree search over decisions, without a model: UCT on measurements alone.

Kocsis & Szepesvári 2006, "Bandit based Monte-Carlo Planning": UCB1 chooses the way down
the tree, one node is added per descent, the other decisions are random, and the reward is averaged
in all nodes on the way. ProTuner (Haj-Ali et al. 2020, arXiv 2005.13685) searches Halide's
schedules in this way, by a cost model and measurements; here every reward is a measurement. A batch
is chosen with virtual loss (Chaslot, Winands & van den Herik 2008, "Parallel Monte-Carlo Tree
Search"): a candidate without a result yet counts as a visit without a reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import log, sqrt

from pydantic import Field, NonNegativeFloat, PositiveInt

from toolkit.records import Candidate, Trial
from toolkit.search.moves.movers import sampled_pool
from toolkit.search.strategy import BaseStrategy, StrategyOptions, shuffled, throughput

Value = tuple[int, ...] | str
"""A decision: the sketch's id, or the free parts of a knob."""


class MctsOptions(StrategyOptions):
    """Options of tree search."""

    exploration: NonNegativeFloat = Field(
        default=1.0, description="weight of UCB1's bonus; rewards lie between 0 and 1"
    )
    samples: PositiveInt = Field(
        default=256, description="candidates considered per batch if the space cannot be listed"
    )


class _Node:
    """A prefix of decisions: the open candidates below it, and the rewards gained there."""

    __slots__ = ("children", "open", "total", "visits")

    def __init__(self) -> None:
        self.open: list[int] = []
        self.children: dict[Value, _Node] | None = None
        self.visits = 0
        # A sum of throughputs in 1/s: it is divided by the best so far when it is compared.
        self.total = 0.0


class Mcts(BaseStrategy):
    """Pure Monte Carlo tree search (UCT): first the sketch, then its knobs one after the other.

    A reward is a measured throughput relative to the best so far; a failure has none. A candidate
    is measured once, and a branch without unmeasured candidates is skipped.

    If the space cannot be listed, each batch adds a part of it to the tree: samples, and mutants of
    the fastest measured. Without the mutants, no two candidates would share more than a few
    decisions.
    """

    name = "mcts"
    source = "Kocsis & Szepesvári 2006, Bandit based Monte-Carlo Planning (UCT)"
    Options = MctsOptions
    options: MctsOptions

    def setup(self) -> None:
        self._free = {s.sketch_id: [k.free for k in s.knobs] for s in self.space.sketches}
        self._root = _Node()
        self._pool: list[Candidate] = []
        self._decisions: list[list[Value]] = []
        self._known: set[str] = set()
        self._ways: dict[str, list[_Node]] = {}
        self._trials: list[Trial] = []
        self._best = 0.0
        # Equal branches are taken in this order: the order of a record must not help.
        self._show(shuffled(self.rng, self.space.candidates() if self.finite else []))

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self.finite:
            self._show(sampled_pool(self.space, self.rng, self.options.samples, self._trials))
        return [self._descend() for _ in range(min(n, len(self._root.open)))]

    def learn(self, trials: Sequence[Trial]) -> None:
        self._trials += trials
        for trial in trials:
            gained = throughput(trial)
            self._best = max(self._best, gained)
            for node in self._ways.pop(trial.candidate.candidate_id, ()):
                node.total += gained

    def _show(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates to the nodes that exist."""
        for candidate in candidates:
            key = candidate.candidate_id
            if key in self._known:
                continue
            self._known.add(key)
            knobs = [candidate.decisions[free] for free in self._free[candidate.sketch_id]]
            # The id comes last: candidates with equal knobs are separate leaves.
            self._decisions.append([candidate.sketch_id, *knobs, key])
            self._pool.append(candidate)
            row = len(self._pool) - 1
            for node in self._existing(row, make=True):
                node.open.append(row)

    def _existing(self, row: int, *, make: bool = False) -> Iterator[_Node]:
        """Nodes that a candidate lies below, from the root; ``make`` adds a missing last one."""
        node = self._root
        yield node
        for value in self._decisions[row]:
            if node.children is None:
                return
            if make and value not in node.children:
                node.children[value] = _Node()
            node = node.children[value]
            yield node

    def _children(self, node: _Node, depth: int) -> list[_Node]:
        """Child nodes that have an open candidate."""
        if node.children is None:
            node.children = {}
            for row in node.open:
                value = self._decisions[row][depth]
                node.children.setdefault(value, _Node()).open.append(row)
        return [child for child in node.children.values() if child.open]

    def _descend(self) -> Candidate:
        """Follow UCB1 to a node that is new, and complete it at random."""
        node, way = self._root, [self._root]
        while len(node.open) > 1:
            children = self._children(node, len(way) - 1)
            new = [child for child in children if not child.visits]
            if new:
                node = new[int(self.rng.integers(len(new)))]
            else:
                node = max(children, key=self._bound(node.visits))
            way.append(node)
            if new:
                break
        row = node.open[int(self.rng.integers(len(node.open)))]
        for passed in way:
            passed.visits += 1  # a visit without a reward, until it is measured
        for holder in self._existing(row):
            holder.open.remove(row)
        candidate = self._pool[row]
        self._ways[candidate.candidate_id] = way
        return candidate

    def _bound(self, visits: int) -> Callable[[_Node], float]:
        """Return UCB1 of a child, by the visits of its parent (higher is better)."""
        best = self._best or 1.0
        weight = self.options.exploration * sqrt(2.0 * log(visits))
        return lambda child: child.total / (child.visits * best) + weight / sqrt(child.visits)
