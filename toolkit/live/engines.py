"""Opens what builds and measures, by where the device is."""

from __future__ import annotations

from typing import Any

from toolkit.live.device import Device
from toolkit.live.protocol import Protocol


def open_engine(target: str, protocol: Protocol, **options: Any) -> Any:
    """Open an engine: a context manager with ``measure_many`` (see ``toolkit.live.oracle``)."""
    return Device(target, protocol, **options)
