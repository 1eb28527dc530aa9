"""From a model file to the graph that is tuned: imported, rewritten, laid out, fused."""
