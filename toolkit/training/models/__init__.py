"""Regressors and rankers of several libraries behind one interface."""

from toolkit.registry import Registry

MODELS = Registry(
    "model",
    {
        "lightgbm": "toolkit.training.models.lightgbm_model:LightGBMModel",
        "xgboost": "toolkit.training.models.xgboost_model:XGBoostModel",
        "network": "toolkit.training.models.network_model:NetworkModel",
        "hybrid": "toolkit.training.models.hybrid_model:HybridModel",
        "statements": "toolkit.training.models.statement_model:StatementModel",
        "ridge": "toolkit.training.models.ridge_model:RidgeModel",
    },
)
