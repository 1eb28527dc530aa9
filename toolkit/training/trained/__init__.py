"""Models on disk, and as a search sees them."""
