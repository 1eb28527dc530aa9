"""What people ask of a log first, answered in one typed result."""

from toolkit.datasets.analysis.analyse import analyse
from toolkit.datasets.analysis.result import Analysis, TaskAnalysis

__all__ = ["Analysis", "TaskAnalysis", "analyse"]
