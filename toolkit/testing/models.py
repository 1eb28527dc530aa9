"""Requirements for every model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit.errors import ModelError
from toolkit.testing.suite import Suite
from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import ModelOptions


def made_rows(count: int = 400, seed: int = 0) -> TrainingRows:
    """Rows of four tasks; the target follows the first column, the second is half NaN."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(0, 4, (count, 3)).astype(np.float32)
    features[::2, 1] = np.nan
    target = features[:, 0].astype(np.float64) + 0.1 * rng.normal(size=count)
    return TrainingRows(features, target, np.ones(count), np.repeat(np.arange(4), count // 4))


class ModelConformance(Suite):
    """Tests on rows of four tasks."""

    @pytest.fixture
    def options(self, plugin: Any) -> ModelOptions:
        """Options that train in a second; override it if the model has its own parameters."""
        return ModelOptions.model_validate({"library": plugin.library, "rounds": 20})

    def _fitted(self, plugin: Any, options: ModelOptions) -> Model:
        model: Model = plugin.fit(made_rows(), options, seed=0, threads=1, device="cpu")
        return model

    def _asked(self) -> Matrix:
        return made_rows(200, seed=1).features

    def test_it_says_what_it_is(self, plugin: Any, options: ModelOptions) -> None:
        assert plugin.library
        assert plugin.suffix.startswith(".")
        assert isinstance(self._fitted(plugin, options), Model)

    def test_it_learns_what_counts(self, plugin: Any, options: ModelOptions) -> None:
        """Higher is faster; rows with absent values (NaN) get a number too."""
        found = self._fitted(plugin, options).predict(self._asked())
        assert found.dtype == np.float64
        assert found.shape == (200,)
        assert np.isfinite(found).all()
        assert np.corrcoef(found, made_rows(200, seed=1).target)[0, 1] > 0.7

    def test_the_same_seed_gives_the_same_model(self, plugin: Any, options: ModelOptions) -> None:
        both = [self._fitted(plugin, options).predict(self._asked()) for _ in range(2)]
        assert np.array_equal(both[0], both[1])

    def test_it_survives_being_written_and_read(
        self, plugin: Any, options: ModelOptions, tmp_path: Path
    ) -> None:
        model = self._fitted(plugin, options)
        path = tmp_path / f"member{plugin.suffix}"
        model.save(path)
        assert np.allclose(plugin.load(path).predict(self._asked()), model.predict(self._asked()))

    def test_a_damaged_file_is_a_named_error(self, plugin: Any, tmp_path: Path) -> None:
        path = tmp_path / f"member{plugin.suffix}"
        with pytest.raises(ModelError):
            plugin.load(path)
        path.write_bytes(b"no model")
        with pytest.raises(ModelError):
            plugin.load(path)

    def test_importance_has_a_share_for_every_column(
        self, plugin: Any, options: ModelOptions
    ) -> None:
        shares: Floats = self._fitted(plugin, options).importance()
        assert shares.shape == (3,)
        assert shares.sum() == pytest.approx(1.0)
        assert (shares >= 0).all()
