"""Members: predictors that were fitted to some tasks and never saw the others."""
