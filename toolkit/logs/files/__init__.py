"""Find and decompress log files. Imports only the toolkit's base modules."""
