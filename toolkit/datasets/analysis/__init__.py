"""Analysis of a dataset: convergence, failures, noise, decisions and tuners in one result."""

from toolkit.datasets.analysis.analyse import analyse
from toolkit.datasets.analysis.result import Analysis, TaskAnalysis

__all__ = ["Analysis", "TaskAnalysis", "analyse"]
