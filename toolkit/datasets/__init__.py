"""Records ↔ Parquet: ingest, open, describe."""

from toolkit.datasets.ingest import ingest
from toolkit.datasets.open import Dataset, open_dataset
from toolkit.datasets.report import IngestReport

__all__ = ["Dataset", "IngestReport", "ingest", "open_dataset"]
