"""Conformance suites: the requirements for a plug-in of each role.

A suite is a class for pytest. Subclass it in a test module, and name the plug-in in the fixture
``plugin``. The toolkit's own plug-ins are tested by the same suites. Needs ``pytest``.

Imports every role; no other package imports it.
"""

from toolkit.testing.extractors import ExtractorConformance
from toolkit.testing.formats import FormatConformance
from toolkit.testing.models import ModelConformance
from toolkit.testing.schedulers import SchedulerConformance
from toolkit.testing.strategies import StrategyConformance

__all__ = [
    "ExtractorConformance",
    "FormatConformance",
    "ModelConformance",
    "SchedulerConformance",
    "StrategyConformance",
]
