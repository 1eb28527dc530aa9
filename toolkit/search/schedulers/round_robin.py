"""One task after the other."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.search.schedulers.base import BaseScheduler, TaskProgress


class RoundRobin(BaseScheduler):
    """The task with the fewest rounds."""

    name = "round-robin"
    source = "TVM 0.16, auto_scheduler/task_scheduler.py (strategy 'round-robin')"

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Return the task with the fewest rounds, the first of several."""
        return min(alive, key=lambda i: tasks[i].rounds)
