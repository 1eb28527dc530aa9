"""Records ↔ Parquet: ingest, open, describe."""

from toolkit.datasets.describe import describe, task_name
from toolkit.datasets.ingest import ingest
from toolkit.datasets.open import Dataset, open_dataset
from toolkit.datasets.report import IngestReport

__all__ = ["Dataset", "IngestReport", "describe", "ingest", "open_dataset", "task_name"]
