"""Results are typed objects and the mapping that ``--json`` prints."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import orjson
import pytest

from toolkit.results import Result


@dataclass(frozen=True, repr=False)
class Sample(Result):
    best_s: float
    rows: list[dict[str, Any]]
    reached_share: float = 0.5
    network: Result | None = None


def test_a_result_is_frozen_and_a_mapping() -> None:
    sample = Sample(2e-6, [{"a": 1}])
    assert sample.best_s == sample["best_s"] == 2e-6
    assert {**sample, "out": "x"} == {
        "best_s": 2e-6, "rows": [{"a": 1}], "reached_share": 0.5, "out": "x",
    }  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        sample.best_s = 1.0  # type: ignore[misc]
    with pytest.raises(KeyError):
        sample["nothing"]


def test_what_is_not_there_is_no_key() -> None:
    assert "network" not in Sample(1.0, [])
    nested = Sample(1.0, [], network=Sample(3.0, [{"b": (1, 2)}]))
    assert orjson.loads(orjson.dumps(nested.to_json())) == {
        "best_s": 1.0, "rows": [], "reached_share": 0.5,
        "network": {"best_s": 3.0, "rows": [{"b": [1, 2]}], "reached_share": 0.5},
    }  # fmt: skip


def test_a_result_is_shown_with_units() -> None:
    sample = Sample(2e-6, [{"a": "<b>"}] * 9)
    assert "µs" in repr(sample) and "9 rows" in repr(sample) and "50.0" in repr(sample)
    assert "<table>" in sample._repr_html_()
    assert "&lt;b&gt;" in Sample(1.0, [{"a": "<b>"}])._repr_html_()
