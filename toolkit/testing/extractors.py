"""Requirements for every feature extractor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolkit.features.base import CandidateGroup, Extractor, FeatureBlock
from toolkit.testing.suite import Suite


class ExtractorConformance(Suite):
    """Tests on candidates that the extractor supports: override the fixture ``group``."""

    @pytest.fixture
    def group(self) -> CandidateGroup:
        """At least three candidates of one task and sketch."""
        raise NotImplementedError("override the fixture 'group': it returns candidates")

    def test_it_says_what_it_is(self, plugin: Any) -> None:
        assert isinstance(plugin(), Extractor)
        assert plugin().name
        assert plugin().version >= 1

    def test_it_supports_its_format_and_no_unknown_one(
        self, plugin: Any, group: CandidateGroup
    ) -> None:
        """``supports`` is called before ``extract``."""
        assert plugin().supports(group.task)
        assert not plugin().supports(replace(group.task, format="of nobody", blob=None))

    def test_a_block_has_a_row_a_candidate(self, plugin: Any, group: CandidateGroup) -> None:
        block = plugin().extract(group)
        assert block.values.dtype == np.float32
        assert block.values.shape == (len(group), len(block.columns))
        assert len(set(block.columns)) == len(block.columns) > 0

    def test_it_is_a_pure_function(self, plugin: Any, group: CandidateGroup) -> None:
        """The same candidates have the same features, and are not changed."""
        before = group.decisions.copy()
        first, second = plugin().extract(group), plugin().extract(group)
        assert np.array_equal(group.decisions, before)
        assert first.columns == second.columns
        assert np.array_equal(first.values, second.values, equal_nan=True)

    def test_a_candidate_s_features_do_not_depend_on_its_fellows(
        self, plugin: Any, group: CandidateGroup
    ) -> None:
        """Alone or among others, in any order."""
        whole = _by_name(plugin().extract(group))
        order = np.arange(len(group))[::-1]
        turned = _by_name(plugin().extract(_taken(group, order)))
        alone = _by_name(plugin().extract(_taken(group, order[:1])))
        for name, values in whole.items():
            assert np.array_equal(turned[name], values[order], equal_nan=True), name
            if name in alone:
                assert np.array_equal(alone[name], values[order[:1]], equal_nan=True), name


def _by_name(block: FeatureBlock) -> dict[str, Any]:
    return {name: block.values[:, place] for place, name in enumerate(block.columns)}


def _taken(group: CandidateGroup, rows: Any) -> CandidateGroup:
    schedules = group.schedules
    kept = None if schedules is None else [schedules[row] for row in rows.tolist()]
    return replace(group, decisions=group.decisions[rows], schedules=kept)
