"""Where the bytes of logs come from: found, decompressed. Imports the ground alone."""
