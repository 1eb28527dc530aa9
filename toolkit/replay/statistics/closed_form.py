"""What random search without replacement is expected to do, in closed form."""

from __future__ import annotations


def expected_evaluations(n: int, good: int) -> float:
    """Mean number of draws until the first of ``good`` among n candidates; infinite for none.

    The number of draws before it has a negative hypergeometric distribution. Each candidate counts
    once, with its recorded value; failures are candidates that are never good enough.
    """
    return (n + 1) / (good + 1) if good else float("inf")
