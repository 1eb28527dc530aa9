"""The folders that commands write to, where the next command finds them without options."""

from __future__ import annotations

import re
from pathlib import Path

from toolkit.records import content_id

RUN_FILE = ".mlflow.json"
"""File in an output folder that identifies its MLflow run."""

NAME_LENGTH = 100
"""Most characters in a folder's name; a file system takes 255 bytes."""


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
        """Folder of a model: ``throughput`` or ``mutation``."""
        return self.root / "models" / kind

    def simulation(self, scenario: str) -> Path:
        """Folder with the results of a replay scenario."""
        return self.root / "simulations" / scenario

    def compiled(self, network: str) -> Path:
        """Folder of a compiled network."""
        return self.root / "compiled" / folder_name(network)


def is_name(text: str) -> bool:
    """Whether a text can be a folder's name unchanged (and is not a path)."""
    return bool(re.fullmatch(r"[\w(][\w .,+=()@:~-]*", text)) and len(text) <= NAME_LENGTH


def folder_name(name: str) -> str:
    """Turn any name into a valid name of a folder."""
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-")
    if plain.strip(".") and len(plain) <= NAME_LENGTH:
        return plain
    return f"{plain[:NAME_LENGTH].strip('.')}-{content_id(name)}".strip("-")


def bundled(kind: str) -> Path:
    """Return the folder of the bundled ``datasets``, ``training`` recipes or ``replay`` scenarios.

    It is at the top level of a checkout, and under ``toolkit/_bundled`` in a wheel.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_bundled" / kind
    return installed if installed.is_dir() else package.parent / kind
