"""From an imported network to the graph that is tuned: rewrites, layout, fusion."""
