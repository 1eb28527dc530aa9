"""Extractors that need no TVM run their role's conformance suite on the formats that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loglines
import pytest

from toolkit.datasets import ingest, open_dataset
from toolkit.features import EXTRACTORS
from toolkit.features.base import CandidateGroup
from toolkit.testing import ExtractorConformance

AUTOTVM = [loglines.autotvm(i, tiles) for i, tiles in enumerate([(4, 8, 2), (2, 8, 4), (8, 4, 1)])]
ANSOR = [
    loglines.ansor(loglines.ansor_steps(tile=tile)) for tile in ((1, 2, 4), (2, 2, 4), (4, 2, 1))
]
TRITON = [
    {
        "key": [512, [2, 64], "torch.float16"],
        "configs_timings": [
            [{"kwargs": {"BLOCK": block, "order": word}, "num_warps": 4}, [0.1, 0.1, 0.2]]
            for block, word in ((16, "a"), (32, "b"), (64, "a"))
        ],
    }
]


class TestExtractors(ExtractorConformance):
    @pytest.fixture(
        params=[("knobs", AUTOTVM), ("primitives", ANSOR), ("parameters", TRITON)],
        ids=lambda case: case[0],
    )
    def case(self, request: pytest.FixtureRequest) -> tuple[str, list[Any]]:
        return request.param

    @pytest.fixture
    def plugin(self, case: tuple[str, list[Any]]) -> Any:
        return EXTRACTORS.get(case[0])

    @pytest.fixture
    def group(self, case: tuple[str, list[Any]], tmp_path: Path) -> CandidateGroup:
        ingest(loglines.write(tmp_path / "log.json", *case[1]), tmp_path / "dataset")
        ((group, _),) = open_dataset(tmp_path / "dataset").groups()
        return group
