"""Lines to rows, in as many processes as one likes. Imports ``logs.formats``, names none."""
