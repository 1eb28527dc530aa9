"""From a scheduled network to one shared library: weights packed, functions compiled, linked."""
