"""Where each command leaves its work, so that the next one finds it without options."""

from __future__ import annotations

import re
from pathlib import Path

from toolkit.records import content_id

RUN_FILE = ".mlflow.json"
"""In a folder of work that MLflow is told of: which run of MLflow it is."""

NAME_LENGTH = 100
"""Characters of a name that becomes a folder's; a file system takes 255 bytes."""


class Workspace:
    """The folder ``tuning/`` of a working directory (every part has its own option)."""

    def __init__(self, root: Path = Path("tuning")) -> None:
        self.root = root
        self.dataset = root / "dataset"
        self.collected = root / "collected"  # logs measured on this machine
        self.validation = root / "validation"  # live verdicts
        self.tuned = root / "tuned"  # tuned databases
        self.race = root / "race"  # races against TVM's own tuner
        self.report = root / "report.html"

    def model(self, kind: str) -> Path:
        """The model of a kind: ``throughput`` or ``mutation``."""
        return self.root / "models" / kind

    def simulation(self, scenario: str) -> Path:
        """Results of a replay scenario."""
        return self.root / "simulations" / scenario

    def compiled(self, network: str) -> Path:
        """A compiled network."""
        return self.root / "compiled" / folder_name(network)


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
