"""Training, evaluation and use of models, one module per subject."""
