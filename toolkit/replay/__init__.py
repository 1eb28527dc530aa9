"""Replay: strategies against recorded measurements, with the statistics of many runs."""

from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable, load_tables
from toolkit.replay.scenario import Scenario, load_scenario, parse_scenario
from toolkit.replay.simulate import SimulationSummary, simulate
from toolkit.training.trained.models import TrainedModels, load_trained

__all__ = [
    "RecordedOracle",
    "RecordedSpace",
    "RecordedTable",
    "Scenario",
    "SimulationSummary",
    "TrainedModels",
    "load_scenario",
    "load_tables",
    "load_trained",
    "parse_scenario",
    "simulate",
]
