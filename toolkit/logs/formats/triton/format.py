"""Triton's autotune cache (``KERNEL.autotune.json``, written with ``cache_results=True``).

One file per kernel and key, as ``triton/runtime/autotuner.py`` writes it::

    {"key": [4096, 4096, "torch.float16"], "configs_timings": [
      [{"kwargs": {"BLOCK_M": 64}, "num_warps": 4, "num_ctas": 1, "num_stages": 2, "maxnreg": null,
        "pre_hook": null, "ir_override": null}, [median, 20th, 80th percentile in ms]], ...]}

The median is used: Triton chooses by it. A configuration that does not compile or needs too many
resources has the time ``Infinity``; the file does not say which.
"""

from __future__ import annotations

import math
import re
from typing import Any

from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.format import DocumentFormat
from toolkit.logs.rows.identity import make_task
from toolkit.logs.rows.parameters import Entry, ParameterDocument, shallow
from toolkit.logs.rows.results import BlockResult
from toolkit.records import TrialState

NAME = "triton"
_INFINITY = re.compile(rb"(?<=[\[,\s])Infinity(?=\s*[,\]])")
_UNSET = ("pre_hook", "kwargs")


class AutotuneCache(ParameterDocument):
    """A cache of one kernel and key."""

    around = (rb'"configs_timings"\s*:\s*\[', b"]}", False)

    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        super().__init__(document, name, machine)
        entries = document.get("configs_timings")
        if not isinstance(entries, list):
            raise BadLine("the cache has no timings")
        self.entries, self.choices = entries, {}
        self.task = make_task(
            format=NAME,
            workload=name,
            arguments=shallow(document.get("key")),
            target=NAME,
            target_kind="unknown",
            machine=machine,
        )

    def entry(self, raw: Any) -> Entry:
        if not isinstance(raw, list) or len(raw) != 2 or not isinstance(raw[0], dict):
            raise BadLine("a timing is not [configuration, times]")
        configuration, times = raw
        chosen = configuration.get("kwargs", {})
        if not isinstance(chosen, dict):
            raise BadLine("the configuration's kwargs are not an object")
        launch = {key: value for key, value in configuration.items() if value is not None}
        values = chosen | {key: value for key, value in launch.items() if key not in _UNSET}
        first = times[0] if isinstance(times, list) and times else times
        if first is None:  # Infinity
            return values, TrialState.UNKNOWN, [], None, None
        if type(first) not in (int, float) or not math.isfinite(first):
            raise BadLine("the times are not numbers")
        return values, TrialState.OK, [first * 1e-3], None, None


class TritonCache(DocumentFormat):
    """Triton's autotune caches."""

    name = NAME
    extractor = "parameters"

    def recognises(self, head: bytes) -> bool:
        return head.lstrip()[:1] == b"{" and b'"configs_timings"' in head and b'"key"' in head

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        # Infinity is not JSON. The replacement has the same length, so that positions stay.
        return AutotuneCache.load(_INFINITY.sub(b"null    ", data), name, machine)
