"""Datasets: ingest logs into Parquet, open, query, describe, export and merge them."""

from toolkit.datasets.describe import DatasetSummary, describe, task_name
from toolkit.datasets.export import ExportReport, export
from toolkit.datasets.read.integrity import IntegrityReport, check
from toolkit.datasets.read.open import Dataset, open_dataset
from toolkit.datasets.read.query import query, select_records
from toolkit.datasets.write.ingest import follow, ingest
from toolkit.datasets.write.merge import merge
from toolkit.datasets.write.report import IngestReport

__all__ = [
    "Dataset",
    "DatasetSummary",
    "ExportReport",
    "IngestReport",
    "IntegrityReport",
    "check",
    "describe",
    "export",
    "follow",
    "ingest",
    "merge",
    "open_dataset",
    "query",
    "select_records",
    "task_name",
]
