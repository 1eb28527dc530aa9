"""Models inside strategies: the residual process, acquisition, diversity, the mutation guide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from toolkit.records import Candidate, Direction
from toolkit.search import STRATEGIES
from toolkit.search.base import Space
from toolkit.search.models.cost_model import CostModelOptions, OnlineCostModel
from toolkit.search.models.encoding import number_codes
from toolkit.search.models.ensemble import expected_improvement
from toolkit.search.models.residual_process import LEVEL, ResidualOptions, ResidualProcess, matern
from toolkit.search.moves.movers import ANSOR_WEIGHTS, GuidedMover, WeightedMover, rule_shares
from toolkit.search.moves.steps import t_test_p_value
from toolkit.search.runner import Budget, SimulatedClock, run
from toolkit.search.strategies.annealing import diverse
from toolkit.search.strategies.sketch_choice import ExploreThenCommit
from toolkit.testing.spaces import (
    TILES,
    FormulaOracle,
    OpenSpace,
    finite_space,
    toy_candidate,
    toy_latency,
)


def direct_posterior(
    columns: NDArray[np.float64],
    prior: NDArray[np.float64],
    measured: Sequence[int],
    residuals: NDArray[np.float64],
    o: ResidualOptions,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The posterior by inverting the whole kernel matrix."""
    gaps = (columns[:, None, :] - columns[None, :, :]) ** 2
    shifted = prior - prior.max()
    kernel = LEVEL**2 + o.slope**2 * np.outer(shifted, shifted)
    kernel = kernel + o.main**2 * matern(gaps / o.main_length**2).mean(axis=2)
    kernel = kernel + o.interaction**2 * matern(gaps.sum(axis=2) / o.interaction_length**2)
    m = list(measured)
    inverse = np.linalg.inv(kernel[np.ix_(m, m)] + o.noise**2 * np.eye(len(m)))
    mean = shifted + kernel[:, m] @ inverse @ residuals
    variance = np.diag(kernel) - np.einsum("ij,jk,ik->i", kernel[:, m], inverse, kernel[:, m])
    return mean, np.sqrt(np.maximum(variance, 1e-12))


def test_a_model_that_states_an_order_is_measured_in_that_order() -> None:
    class Scored:
        training_task_ids: frozenset[str] = frozenset()

        def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
            return np.array([-toy_latency(c.decisions) for c in candidates])

    class Picky(Scored):
        def preference(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
            return -self.score(space, candidates)

    first = {}
    for scorer in (Scored(), Picky()):
        space = finite_space()
        made = STRATEGIES.get("model-ranked")(
            space, {}, np.random.default_rng(0), scorer=scorer, direction_scorer=None
        )
        first[type(scorer)] = toy_latency(made.ask(1)[0].decisions)
    known = [toy_latency(c.decisions) for c in finite_space().candidates()]
    assert (first[Scored], first[Picky]) == (min(known), max(known))


def test_the_residual_process_is_the_textbook_posterior() -> None:
    rng = np.random.default_rng(0)
    columns, prior = rng.normal(0, 2, (30, 3)), rng.normal(0, 0.5, 30)
    options = ResidualOptions(clip=100.0)
    process = ResidualProcess(columns.astype(np.float32), prior, options)
    residuals = rng.normal(1.0, 0.2, 12)
    for i, residual in enumerate(residuals):
        process.add(2 * i, float(process.prior[2 * i] + residual))
    mean, deviation = process.posterior()
    exact = columns.astype(np.float32).astype(np.float64)
    want_mean, want_deviation = direct_posterior(exact, prior, range(0, 24, 2), residuals, options)
    assert mean == pytest.approx(want_mean, abs=1e-6)
    assert deviation == pytest.approx(want_deviation, abs=1e-5)


def test_a_disaster_does_not_condemn_its_neighbours() -> None:
    columns = np.array([[0.0], [1.0], [2.0], [9.0]], dtype=np.float32)
    for speed in (-3.0, -np.inf):  # much slower than predicted, or a failure
        process = ResidualProcess(columns, np.zeros(4), ResidualOptions())
        for near in (0, 1):
            process.add(near, 0.0)
        process.add(3, speed)
        mean, _ = process.posterior()
        assert mean[2] > -0.3


def test_more_measurements_than_the_first_block() -> None:
    rng = np.random.default_rng(1)
    process = ResidualProcess(
        rng.normal(size=(100, 2)).astype(np.float32), np.zeros(100), ResidualOptions()
    )
    for i in range(100):
        process.add(i, 0.1)
    mean, deviation = process.posterior()
    assert mean == pytest.approx(np.full(100, 0.1), abs=0.02)
    assert (deviation < 0.05).all()


def test_expected_improvement_is_the_mean_of_what_is_gained() -> None:
    rng = np.random.default_rng(2)
    for mean, deviation, best in ((0.2, 0.5, 0.6), (1.0, 0.1, 0.6), (0.0, 0.3, 0.5)):
        draws = np.maximum(rng.normal(mean, deviation, 400_000) - best, 0.0).mean()
        found = expected_improvement(np.array([mean]), np.array([deviation]), best)[0]
        assert found == pytest.approx(draws, abs=3e-3)


def test_a_diverse_plan_covers_values_that_a_greedy_one_misses() -> None:
    scores = np.array([1.0, 0.99, 0.98, 0.5])
    codes = np.array([[0, 0], [0, 0], [0, 0], [1, 1]])
    assert diverse(scores, codes, 2, alpha=0.0) == [0, 1]
    assert diverse(scores, codes, 2, alpha=1.0) == [0, 3]


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("loss", ["rank", "squared"])
def test_online_models_learn_the_order(library: str, loss: str) -> None:
    rng = np.random.default_rng(3)
    features = rng.uniform(0, 4, (300, 3)).astype(np.float32)
    throughput = np.exp(-((features - 2.0) ** 2).sum(axis=1) / 3)
    options = CostModelOptions.model_validate({"library": library, "loss": loss})
    model = OnlineCostModel(options, 0)
    assert not model.fitted
    assert model.predict(features).tolist() == [0.0] * 300
    model.fit(features[:200], throughput[:200])
    found = stats.spearmanr(model.predict(features[200:]), throughput[200:]).statistic
    assert found > (0.6 if loss == "rank" else 0.85)
    again = OnlineCostModel(options, 0)
    again.fit(features[:200], throughput[:200])
    assert np.array_equal(again.predict(features), model.predict(features))


def test_a_model_of_failures_alone_is_none() -> None:
    model = OnlineCostModel(CostModelOptions(), 0)
    model.fit(np.zeros((5, 2), dtype=np.float32), np.zeros(5))
    assert not model.fitted


def test_t_test_is_scipy_s() -> None:
    rng = np.random.default_rng(4)
    for n, m in ((3, 3), (10, 3), (2, 8)):
        a, b = rng.normal(1, 0.1, n), rng.normal(1.1, 0.1, m)
        assert t_test_p_value(a, b) == pytest.approx(float(stats.ttest_ind(a, b).pvalue))
    assert t_test_p_value([1.0], [2.0, 2.1]) == 1.0
    assert t_test_p_value([1.0, 1.0], [2.0, 2.0]) == 0.0


def test_mutations_follow_ansor_s_weights() -> None:
    space, rng = finite_space(), np.random.default_rng(5)
    states = np.zeros(20_000, dtype=np.int64)
    moved = WeightedMover(space, ANSOR_WEIGHTS).numbers(rng, states)
    vectors = np.array([c.decisions for c in space.candidates()])
    unroll = (vectors[moved][:, 4] != vectors[0, 4]).mean()
    assert unroll == pytest.approx(0.04 / 0.94, abs=0.006)
    assert (moved != 0).all()
    assert rule_shares(["tile", "tile", "unroll"], {"tile": 0.9, "unroll": 0.1}).tolist() == [
        0.45,
        0.45,
        0.1,
    ]


class LikesUnroll:
    """Expects something of unrolling alone."""

    training_task_ids: frozenset[str] = frozenset()

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        return np.array([1.0 if d.rule == "unroll" else 0.0 for d in directions])


def test_guided_mutations_follow_the_model() -> None:
    space, rng = finite_space(), np.random.default_rng(6)
    states = np.arange(75)
    moved = GuidedMover(space, LikesUnroll(), "best", 0.1).numbers(rng, states)
    vectors = np.array([c.decisions for c in space.candidates()])
    changed = vectors[moved] != vectors[states]
    assert changed[:, 4].all()
    assert not changed[:, :4].any()
    often = GuidedMover(space, LikesUnroll(), "sampled", 1.0).numbers(rng, np.repeat(states, 200))
    share = (vectors[often] != vectors[np.repeat(states, 200)])[:, 4].mean()
    # e against 1 for each of three to six directions
    assert 0.3 < share < 0.7


class Calibrated(LikesUnroll):
    """The same with a temperature of its own."""

    temperature = 10.0


def test_a_sampled_direction_takes_the_model_s_temperature_unless_told() -> None:
    space = finite_space()
    states = np.repeat(np.arange(75), 100)
    vectors = np.array([c.decisions for c in space.candidates()])

    def share(scorer: LikesUnroll, temperature: float | None) -> float:
        mover = GuidedMover(space, scorer, "sampled", temperature)
        moved = mover.numbers(np.random.default_rng(7), states)
        return float((vectors[moved] != vectors[states])[:, 4].mean())

    assert share(Calibrated(), None) == share(LikesUnroll(), 10.0)
    assert share(Calibrated(), 0.1) == share(LikesUnroll(), None) > 0.95


def test_sketch_means_weigh_the_last_round_and_history() -> None:
    choice = ExploreThenCommit(["a", "b"], warm_up=3, explore=1, last=0.5, other=0.05)
    choice.update(["a", "b", "a"], np.array([0.2, 0.9, 0.4]))
    assert choice.means == {"a": pytest.approx(0.3), "b": 0.9}
    assert choice.best() == "b"
    choice.update(["b", "b"], np.array([0.0, 0.1]))
    assert choice.means["b"] == pytest.approx(0.5 * 0.05 + 0.5 * 0.9)
    for _ in range(5):
        choice.update(["b"], np.array([0.0]))
    assert choice.best() == "a"  # a wrong first impression is mended


@pytest.mark.parametrize(
    "name", ["annealing", "evolutionary", "bayes-ucb", "beam", "droplet", "genetic"]
)
def test_searching_beats_chance(name: str) -> None:
    """Mean latency of what is measured after a first third, over seeds, against random search."""

    def mean_latency(strategy_name: str) -> float:
        found = []
        for seed in range(6):
            options = {
                "annealing": {"plan_size": 12},
                "bayes-ucb": {"plan_size": 12},
                "evolutionary": {"round_size": 12, "population": 64},
                "beam": {"round_size": 12},
                "genetic": {"population": 12},
            }.get(strategy_name)
            plugin = STRATEGIES.get(strategy_name)
            strategy = plugin(finite_space(), options, np.random.default_rng(seed))
            trials = run(
                strategy,
                FormulaOracle(),
                Budget(evaluations=36),
                batch_size=6,
                clock=SimulatedClock(),
            ).trials
            found += [toy_latency(t.candidate.decisions) for t in trials[12:]]
        return float(np.mean(found))

    assert mean_latency(name) < mean_latency("random")


class Misleads:
    """Is certain of the wrong corner: the larger the tiles the better."""

    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.array([3.0 * np.log(c.decisions[1] * c.decisions[3]) for c in candidates])


def evaluations_to_the_best(options: dict[str, object], seed: int) -> int:
    space = finite_space()
    best = min(toy_latency(c.decisions) for c in space.candidates())
    strategy = STRATEGIES.get("transfer")(
        space, options, np.random.default_rng(seed), scorer=Misleads()
    )
    result = run(strategy, FormulaOracle(), Budget(), clock=SimulatedClock())
    latencies = [trial.latency_s or np.inf for trial in result.trials]
    return 1 + next(i for i, latency in enumerate(latencies) if latency <= best)


def test_transfer_recovers_from_a_model_that_is_sure_of_the_wrong_corner() -> None:
    """The rules that take turns bound what a wrong model costs: the space has 75 candidates."""
    found = [evaluations_to_the_best({}, seed) for seed in range(5)]
    assert max(found) < 38  # random search needs 38 on average


@pytest.mark.parametrize(("space", "most"), [(finite_space(), 400), (OpenSpace(), 3)])
def test_transfer_takes_turns_with_neighbours_of_the_best(space: OpenSpace, most: int) -> None:
    """Of the best of all, however few of the measurements the processes learn from."""
    strategy = STRATEGIES.get("transfer")(
        space,
        {"explore_every": 0, "neighbour_every": 1, "most": most},
        np.random.default_rng(0),
        scorer=Misleads(),
    )
    oracle = FormulaOracle()
    best: tuple[float, Candidate] | None = None
    for turn in range(12):
        (asked,) = strategy.ask(8)
        near = [] if best is None else [c.candidate_id for c in space.neighbours(best[1])]
        if turn and best is not None and set(near) - strategy.seen:
            assert asked.candidate_id in near
        (trial,) = oracle.measure([asked])
        latency = trial.latency_s
        if latency is not None and (best is None or latency < best[0]):
            best = (latency, asked)
        strategy.tell([trial])


class Shrugs(Misleads):
    """Finds all alike."""

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.zeros(len(candidates))


class Insists:
    """Has no doubt that the smallest first tile is the best by far, and knows nothing else."""

    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.array([-20.0 * np.log2(c.decisions[1]) for c in candidates])


@pytest.mark.parametrize("name", ["transfer", "transfer-evolved"])
def test_transfer_tries_every_value_of_a_space_that_cannot_be_listed(name: str) -> None:
    """What was measured with one pool is not new to the next."""
    strategy = STRATEGIES.get(name)(
        OpenSpace(), {"batch": 8}, np.random.default_rng(0), scorer=Insists()
    )
    trials = run(
        strategy, FormulaOracle(), Budget(evaluations=40), batch_size=8, clock=SimulatedClock()
    ).trials
    assert {trial.candidate.decisions[1] for trial in trials} == set(TILES)


def test_a_batch_spreads_when_no_more_is_learnt_as_well() -> None:
    """Where the processes hold all they may, the choices of a batch still know of each other."""
    options = {"batch": 6, "most": 2, "explore_every": 0, "neighbour_every": 0, "exploration": 9.0}
    strategy = STRATEGIES.get("transfer")(
        OpenSpace(), options, np.random.default_rng(0), scorer=Shrugs()
    )
    strategy.tell(FormulaOracle().measure([toy_candidate((0, 2, 0, 2, 16))]))
    strategy.tell(FormulaOracle().measure([toy_candidate((0, 4, 0, 2, 16))]))
    tiles = {(c.decisions[1], c.decisions[3]) for c in strategy.ask(6)}
    assert {(1, 1), (1, 16), (16, 1), (16, 16)} <= tiles


def test_what_is_measured_as_expected_changes_no_mean() -> None:
    """So a batch's choices can be taken for measured, and the next goes where less is known."""
    process = ResidualProcess(
        np.array([[0.0], [0.1], [9.0]], dtype=np.float32), np.zeros(3), ResidualOptions()
    )
    process.add(1, 0.0)
    mean, deviation = process.posterior()
    assert deviation[0] < deviation[2]
    process.add(2, float(mean[2]))
    after = process.posterior()
    assert np.allclose(after[0], mean) and after[1][2] < deviation[2]


def test_numbers_of_columns_are_values_of_their_own_column() -> None:
    columns = np.array([[1.0, np.nan], [2.0, 1.0], [1.0, 1.0]], dtype=np.float32)
    assert number_codes(columns).tolist() == [[0, -1], [1, 2], [0, 2]]
