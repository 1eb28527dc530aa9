"""Every registered model runs its role's conformance suite."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.testing import ModelConformance
from toolkit.training.models import MODELS
from toolkit.training.recipes.recipe import ModelOptions


class TestModels(ModelConformance):
    @pytest.fixture(params=MODELS.names())
    def plugin(self, request: pytest.FixtureRequest) -> Any:
        return MODELS.get(request.param)

    @pytest.fixture
    def options(self, plugin: Any) -> ModelOptions:
        return ModelOptions.model_validate({"library": plugin.library, "rounds": 60})
