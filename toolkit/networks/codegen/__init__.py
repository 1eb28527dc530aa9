"""From a scheduled network to one shared library: packs weights, compiles functions, links."""
