"""Extractor ``per-statement``: TVM's 164 features of every buffer store, kept apart.

A model that adds up a score of each statement (Zheng et al. 2020, section 5.2) needs the stores
themselves, which ``per-store`` folds. A candidate's row holds them side by side as ``ps_<k>_<i>``:
column ``i`` of the store with the ``k``-th most arithmetic, from 0 on; stores that do as much stay
in the program's order. Places beyond a program's stores are NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import Floats
from toolkit.features.extractors.per_store import ARITHMETIC, STORE_COLUMNS, PerStoreExtractor

MOST_STATEMENTS = 8
"""Stores that are kept; of a longer program those with the least arithmetic are left out."""


class PerStatementExtractor(PerStoreExtractor):
    """TVM's per-store features, one set of columns per store; otherwise as ``per-store``."""

    name = "per-statement"

    def columns(self) -> tuple[str, ...]:
        """Names of a row's columns, store after store."""
        stores, own = range(MOST_STATEMENTS), range(STORE_COLUMNS)
        return tuple(f"{self.prefix}_{k}_{i}" for k in stores for i in own)

    def row(self, stores: Floats) -> NDArray[np.float32]:
        """Lay a ``(stores, 164)`` matrix out as one row, the busiest store first."""
        arithmetic = stores[:, :ARITHMETIC].sum(axis=1)
        kept = stores[np.argsort(-arithmetic, kind="stable")[:MOST_STATEMENTS]]
        result = np.full((MOST_STATEMENTS, STORE_COLUMNS), np.nan, dtype=np.float32)
        result[: len(kept)] = kept
        return result.reshape(-1)
