"""Replay: strategies against recorded measurements, with the statistics of many runs."""

from toolkit.replay.record.models import ModelSet, load_models
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable, load_tables
from toolkit.replay.scenario import Scenario, load_scenario, parse_scenario
from toolkit.replay.simulate import SimulationSummary, simulate

__all__ = [
    "ModelSet",
    "RecordedOracle",
    "RecordedSpace",
    "RecordedTable",
    "Scenario",
    "SimulationSummary",
    "load_models",
    "load_scenario",
    "load_tables",
    "parse_scenario",
    "simulate",
]
