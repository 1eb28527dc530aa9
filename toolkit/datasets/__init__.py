"""Records ↔ Parquet: ingest, open, describe."""

from toolkit.datasets.describe import describe, task_name
from toolkit.datasets.export import export
from toolkit.datasets.read.integrity import check
from toolkit.datasets.read.open import Dataset, open_dataset
from toolkit.datasets.read.query import query
from toolkit.datasets.read.select import select_records
from toolkit.datasets.write.follow import follow
from toolkit.datasets.write.ingest import ingest
from toolkit.datasets.write.report import IngestReport

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
