"""From an imported network to the graph that is tuned: rewritten, laid out, fused."""
