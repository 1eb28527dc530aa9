"""What a model is worth on tasks that it never saw."""
