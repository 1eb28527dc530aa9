"""Records ↔ Parquet: ingest, open, describe."""

from toolkit.datasets.describe import describe, task_name
from toolkit.datasets.export import export
from toolkit.datasets.follow import follow
from toolkit.datasets.ingest import ingest
from toolkit.datasets.integrity import check
from toolkit.datasets.open import Dataset, open_dataset
from toolkit.datasets.query import query
from toolkit.datasets.report import IngestReport
from toolkit.datasets.select import select_records

__all__ = [
    "Dataset",
    "IngestReport",
    "check",
    "describe",
    "export",
    "follow",
    "ingest",
    "open_dataset",
    "query",
    "select_records",
    "task_name",
]
