"""Kernel Tuner's metadata of the machine (``store_metadata_file``), in a file beside T4 results.

T4 metadata (``schema/T4/1.0.0/metadata-schema.json``)::

    {"schema_version": "1.0.0", "metadata": {"hardware": {"lshw": [...]}, "environment":
      {"device_query": {"nvidia-smi": {...}, "rocm-smi": {...}}, "requirements": [...]}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from toolkit.logs.files.places import Place
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.format import Beside, DocumentFormat
from toolkit.logs.rows.json_text import part
from toolkit.logs.rows.results import BlockResult
from toolkit.logs.rows.rows import Rows

_BEGIN = re.compile(rb'\s*\{\s*("schema_version"\s*:\s*"[^"]*"\s*,\s*)?"metadata"\s*:\s*\{')
_OF_MACHINE = (b'"lshw"', b'"hardware_description"', b'"device_query"')


class T4MetadataFiles(DocumentFormat):
    """Descriptions of machines, for the results beside them; they hold no records."""

    name = "t4-metadata"

    def recognises(self, head: bytes) -> bool:
        """Whether it begins like metadata and describes a machine (results have metadata, too)."""
        return bool(_BEGIN.match(head)) and any(word in head for word in _OF_MACHINE)

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise BadLine(f"not JSON: {error}") from None
        return BlockResult(Rows().table(), lines=0, counted=0)


class T4Metadata(Beside):
    """The machine that a file beside the results names; none if it names several."""

    def __init__(self, place: Place | None) -> None:
        self.machine = None if place is None else _machine(place)


def metadata_of(results: Place, known: Sequence[Place]) -> Place | None:
    """Find the metadata of results in their folder: by name, or the only one there."""
    stem = results.stem
    names = {stem.replace("results", "metadata"), f"{stem}-metadata", f"{stem}_metadata"} - {stem}
    # Perhaps only the results were given: look beside them.
    found = [place for place in results.siblings() if place.stem in names]
    found = found or [place for place in known if place.folder == results.folder]
    return found[0] if len(found) == 1 else None


def _machine(place: Place) -> str | None:
    metadata = part(place.json(), "metadata")
    query = part(part(metadata, "environment"), "device_query")
    gpus = set(_nvidia(query)) | set(_amd(query))
    hardware = part(metadata, "hardware")
    names = gpus or set(_processors(hardware.get("lshw") or hardware.get("hardware_description")))
    return names.pop() if len(names) == 1 else None


def _nvidia(query: dict[str, Any]) -> Iterator[str]:
    gpus = part(part(query, "nvidia-smi"), "nvidia_smi_log").get("gpu")
    for gpu in gpus if isinstance(gpus, list) else [gpus]:
        if isinstance(gpu, dict) and isinstance(gpu.get("product_name"), str):
            yield gpu["product_name"]


def _amd(query: dict[str, Any]) -> Iterator[str]:
    for card in part(query, "rocm-smi").values():
        for key, value in card.items() if isinstance(card, dict) else ():
            if key.lower() in ("card series", "device name") and isinstance(value, str):
                yield value
                break


def _processors(nodes: Any) -> Iterator[str]:
    """Products of the processors in the output of ``lshw -json``."""
    waiting = [nodes]  # no recursion: damaged data may be nested too deeply for Python
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if node.get("class") == "processor" and isinstance(node.get("product"), str):
                yield node["product"]
            waiting.append(node.get("children"))
