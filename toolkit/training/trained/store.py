"""A trained model on disk: ``manifest.json`` and its members in their libraries' own formats."""

from __future__ import annotations

import os
import re
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from toolkit import __version__
from toolkit.atomic import replacing, sweep, write_atomically
from toolkit.datasets.urls import store_errors
from toolkit.errors import ModelError
from toolkit.locks import LOCK_FILE
from toolkit.records import content_id
from toolkit.training.members.crossfit import Member
from toolkit.training.members.ensemble import Ensemble, FailureEnsemble
from toolkit.training.members.gain_models import MixedGains
from toolkit.workspace import RUN_FILE

_ENSEMBLES: dict[str, Any] = {
    "ensemble": Ensemble,
    "failure": FailureEnsemble,
    "mixed-gains": MixedGains,
}

MANIFEST = "manifest.json"
FITS = ".fits"
"""Folder inside a model's folder with the fits of an interrupted training."""
MODEL_VERSION = 4
_OWN = re.compile(r"members-[0-9a-f]+|\.(members|manifest\.json)\.\d+\.tmp")
"""Names of files that a training leaves if it is killed while it writes its model."""

AGAIN = "train it again"
CHANGED = "damaged: the file was changed since it was written"


def versions() -> dict[str, str]:
    """Versions of the toolkit and of the libraries that a model depends on."""
    from importlib.metadata import version

    names = ("lightgbm", "xgboost", "scikit-learn", "numpy")
    return {"tvm-tuning-toolkit": __version__, **{name: version(name) for name in names}}


def save_model(folder: Path, manifest: dict[str, Any], members: dict[str, Member]) -> None:
    """Write members to a new folder, then the manifest that names it, in one atomic step.

    An earlier model in ``folder`` is replaced; an interrupted write leaves it unchanged.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    fresh = folder / f".members.{os.getpid()}.tmp"
    try:
        entries = {
            name: {
                **_saved_fit(fresh / name, member.ensemble),
                "training_task_ids": sorted(member.training_task_ids),
                "training_workloads": sorted(member.workloads),
            }
            for name, member in members.items()
        }
        files = checksums(fresh)
        written = folder / f"members-{content_id(*files, *files.values())}"
        if not written.is_dir() or checksums(written) != files:
            shutil.rmtree(written, ignore_errors=True)
            fresh.replace(written)
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    content = {"model_version": MODEL_VERSION, **manifest, "members": entries}
    content |= {"folder": written.name, "files": files}
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    # Plain values, as they are read back: checksums must not depend on NumPy's types.
    plain = orjson.loads(orjson.dumps(content, option=options))
    write_atomically(folder / MANIFEST, orjson.dumps(seal(plain), option=options))
    for path in folder.glob("members*"):
        if path != written:
            shutil.rmtree(path, ignore_errors=True)
    # They belonged to the earlier model.
    (folder / "recipe.toml").unlink(missing_ok=True)
    if (folder / "validity" / MANIFEST).is_file():
        shutil.rmtree(folder / "validity")


def check_folder(folder: Path) -> None:
    """Raise ``ModelError`` if the path is a file, or a folder that holds something else."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise ModelError(
            "it is a file where a folder is needed", where=there, cure="give another folder"
        )
    if not folder.is_dir() or (folder / MANIFEST).is_file():
        return
    names = {path.name for path in folder.iterdir()} - {LOCK_FILE, FITS, RUN_FILE}
    if not all(_OWN.fullmatch(name) for name in names):
        raise ModelError(
            "the folder is not empty and holds no model", where=folder, cure="give another folder"
        )


class KeptFits:
    """Fits stored in a model's folder during training, so that it can be resumed.

    ``key`` identifies everything that a fit depends on; fits of another key are removed.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder / FITS / key
        sweep(self._folder)
        for path in self._folder.parent.glob("*"):
            if path.name != key:
                shutil.rmtree(path, ignore_errors=True)

    def get(self, name: str) -> Any:
        """Return a member's fit; ``None`` where none is kept, or it is damaged."""
        folder = self._folder / name
        try:
            entry = orjson.loads((folder / MANIFEST).read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return None
        if checksums(folder / "models") != entry["files"]:
            return None
        return _class_of(entry["type"]).load(folder / "models", entry["models"])

    def put(self, name: str, fit: Any) -> None:
        """Keep a member's fit."""
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._folder / name, ignore_errors=True)
        with replacing(self._folder / name) as temporary:
            entry = _saved_fit(temporary / "models", fit)
            entry["files"] = checksums(temporary / "models")
            (temporary / MANIFEST).write_bytes(
                orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY)
            )

    def remove(self) -> None:
        """Remove all fits, after the model was written."""
        shutil.rmtree(self._folder.parent, ignore_errors=True)


def _saved_fit(folder: Path, fit: Any) -> dict[str, Any]:
    kinds = (name for name, kind in _ENSEMBLES.items() if isinstance(fit, kind))
    return {"type": next(kinds, "classifier"), "models": fit.save(folder)}


def _class_of(kind: str) -> Any:
    if kind in _ENSEMBLES:
        return _ENSEMBLES[kind]
    # XGBoost takes a second to import, and few models are of this kind.
    from toolkit.training.members.rule_classifier import RuleClassifier

    return RuleClassifier


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files
    }


def seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the checksum of everything else in it."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return {**content, "checksum": sha256(text).hexdigest()}


def read_manifest(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Read a model's manifest; raise ``ModelError`` where there is none of that kind."""
    path = folder / MANIFEST
    try:
        with store_errors(folder):
            manifest: Any = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            "there is no model", where=folder, cure=f"run: toolkit train {kind or 'throughput'}"
        ) from None
    except (OSError, orjson.JSONDecodeError) as error:
        raise ModelError(f"damaged: {error}", where=path, cure=AGAIN) from None
    if not isinstance(manifest, dict):
        raise ModelError("damaged: it is not a JSON object", where=path, cure=AGAIN)
    version, own = manifest.get("model_version"), manifest.get("kind")
    if version != MODEL_VERSION:
        said = f"has model version {version}; this toolkit reads version {MODEL_VERSION}"
        raise ModelError(said, where=path, cure=AGAIN)
    if seal(manifest) != manifest:
        raise ModelError(CHANGED, where=path, cure=AGAIN)
    if kind is not None and own != kind:
        raise ModelError(
            f"is a {own} model, not a {kind} model", where=path, cure=f"give a {kind} model"
        )
    return manifest


def told_kind(folder: Path) -> str | None:
    """Return a model's kind, even if it is damaged or older; ``None`` if it is unreadable."""
    try:
        kind = orjson.loads((folder / MANIFEST).read_bytes())["kind"]
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return kind if isinstance(kind, str) else None


def load_members(folder: Path, manifest: dict[str, Any]) -> dict[str, Member]:
    """Read a model's members; raise ``ModelError`` where one is absent or damaged.

    A changed file is never passed to its library: some libraries end the process on such files.
    """
    written = folder / manifest["folder"]
    found = checksums(written)
    for name, checksum in manifest["files"].items():
        if found.get(name) != checksum:
            what = CHANGED if name in found else "the file is missing"
            raise ModelError(what, where=written / name, cure=AGAIN)
    return {
        name: Member(
            name=name,
            ensemble=_class_of(entry["type"]).load(written / name, entry["models"]),
            training_task_ids=frozenset(entry["training_task_ids"]),
            workloads=frozenset(entry["training_workloads"]),
        )
        for name, entry in manifest["members"].items()
    }
