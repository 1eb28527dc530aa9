"""Where each command leaves its work, so that the next one finds it without options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from toolkit.records import content_id

RUN_FILE = ".mlflow.json"
"""In a folder of work that MLflow is told of: which run of MLflow it is."""

NAME_LENGTH = 100
"""Characters of a name that becomes a folder's; a file system takes 255 bytes."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder ``tuning/`` of a working directory (every part has its own option)."""

    root: Path = Path("tuning")

    @property
    def dataset(self) -> Path:
        """The Parquet dataset."""
        return self.root / "dataset"

    def model(self, kind: str) -> Path:
        """The model of a kind: ``throughput`` or ``mutation``."""
        return self.root / "models" / kind

    def simulation(self, scenario: str) -> Path:
        """Results of a replay scenario."""
        return self.root / "simulations" / scenario

    @property
    def collected(self) -> Path:
        """Logs measured on this machine."""
        return self.root / "collected"

    @property
    def validation(self) -> Path:
        """Live verdicts."""
        return self.root / "validation"

    @property
    def tuned(self) -> Path:
        """Tuned databases."""
        return self.root / "tuned"

    def compiled(self, network: str) -> Path:
        """A compiled network."""
        return self.root / "compiled" / folder_name(network)

    @property
    def race(self) -> Path:
        """Races against TVM's own tuner."""
        return self.root / "race"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.root / "report.html"


def is_name(text: str) -> bool:
    """Whether a text can be a folder's name as it is, and no path."""
    return bool(re.fullmatch(r"[\w(][\w .,+=()@:~-]*", text)) and len(text) <= NAME_LENGTH


def folder_name(name: str) -> str:
    """Any name as a folder's."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")
    if plain.strip(".") and len(plain) <= NAME_LENGTH:
        return plain
    return f"{plain[:NAME_LENGTH].strip('.')}-{content_id(name)}".strip("-")


def bundled(kind: str) -> Path:
    """Folder of the bundled ``datasets``, ``training`` recipes or ``replay`` scenarios.

    In a checkout they lie at the top level; in a wheel under ``toolkit/_bundled``.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_bundled" / kind
    return installed if installed.is_dir() else package.parent / kind
