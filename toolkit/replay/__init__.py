"""Replay: strategies against recorded measurements, with the statistics of many runs."""

from toolkit.replay.models import ModelSet, load_models
from toolkit.replay.oracle import RecordedOracle
from toolkit.replay.scenario import Scenario, load_scenario, parse_scenario
from toolkit.replay.simulate import simulate
from toolkit.replay.space import RecordedSpace
from toolkit.replay.table import RecordedTable, load_tables

__all__ = [
    "ModelSet",
    "RecordedOracle",
    "RecordedSpace",
    "RecordedTable",
    "Scenario",
    "load_models",
    "load_scenario",
    "load_tables",
    "parse_scenario",
    "simulate",
]
