"""Read lines into rows, in several processes. Imports ``logs.formats``, but no single format."""
