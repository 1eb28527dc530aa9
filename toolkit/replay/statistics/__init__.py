"""What runs achieved, and how sure that is. Imports ``replay.record``."""
