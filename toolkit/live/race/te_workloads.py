"""Register the operators of TVM's MetaSchedule suite (C1D, C2D, GMM, ...) as Ansor's workloads.

A file of workloads for an older TVM, like a user's own file: run by its path, with Python 3.7 or
later, without the toolkit. A workload's key is the operator's name and its arguments.
"""

from __future__ import annotations

from typing import Any

from tvm import auto_scheduler

try:
    from tvm.meta_schedule.testing.te_workload import CONFIGS
except ImportError:  # TVM 0.8: a user's own files register everything
    CONFIGS = {}


def _register(name: str) -> None:
    function = CONFIGS[name][0]

    def tensors(*arguments: Any) -> list[Any]:
        return list(function(*arguments))

    auto_scheduler.register_workload(name, tensors, override=True)


for _name in CONFIGS:
    _register(_name)
