"""What the device will show. Imports ``replay.execute``."""
