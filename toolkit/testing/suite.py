"""Base of all conformance suites."""

from __future__ import annotations

from typing import Any

import pytest


class Suite:
    """Tests of one plug-in; a subclass says which, in the fixture ``plugin``."""

    @pytest.fixture
    def plugin(self) -> Any:
        """The plug-in's class."""
        raise NotImplementedError("override the fixture 'plugin': it returns the plug-in's class")
