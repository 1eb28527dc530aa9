"""One thing to predict a module."""
