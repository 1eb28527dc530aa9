"""Extractor ``per-store``: the features of MetaSchedule's own cost model, by the installed TVM.

TVM (``meta_schedule/feature_extractor/per_store_feature.cc``) extracts one row for each store;
``stores.py`` folds them: ``ps_max_<i>``, ``ps_main_<i>`` and ``ps_stores``. Only databases that the
installed TVM can load are supported (TVM 0.27: not those of 0.18 or 0.23), and only candidates
whose schedules are at hand.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence

import orjson

from toolkit import children
from toolkit.compiler import require_tvm
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.stores import WORKER, StoreExtractor
from toolkit.records import Task


class PerStoreExtractor(StoreExtractor):
    """TVM's per-store features, one candidate at a time.

    Parameters
    ----------
    command
        What runs a worker; another interpreter may be named.
    timeout_s
        Longest time for one candidate, in seconds; what takes longer counts as a crash.
    """

    name = "per-store"
    prefix = "ps"
    starts = 3

    def __init__(self, command: Sequence[str] | None = None, timeout_s: float = 60.0) -> None:
        super().__init__(command or children.python(str(WORKER)), timeout_s)

    def supports(self, task: Task) -> bool:
        """MetaSchedule tasks whose workload is written as TVM 0.23 and later do."""
        if task.format != "metaschedule" or not task.blob:
            return False
        try:
            return b'"root_index"' in base64.b64decode(orjson.loads(task.blob)[1])
        except (ValueError, IndexError, TypeError):
            return False

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Extract every candidate of a group.

        Raises
        ------
        DatasetError
            When the group comes without schedules, or TVM does not load its workload.
        """
        if group.schedules is None:
            raise DatasetError(
                "per-store features need the candidates' schedules",
                cure="use the extractor 'primitives' for candidates that are not recorded",
            )
        require_tvm()
        task = group.task
        self.header = {"workload": task.blob, "target": task.target, "arguments": task.arguments}
        with contextlib.closing(self):
            return self.rows_of(group.schedules)

    def refusal(self, why: str) -> DatasetError:
        """Say that TVM does not load the workload."""
        return DatasetError(
            f"TVM does not load this workload: {why}",
            cure="use the extractor 'primitives', which needs no TVM",
        )
