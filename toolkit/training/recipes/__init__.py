"""What to train, as a file says it."""
