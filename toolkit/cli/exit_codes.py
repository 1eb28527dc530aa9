"""What the exit code of a command says."""

from __future__ import annotations

EXIT_ERROR = 1
EXIT_NOT_BETTER = 3
"""The winner is not better than what it was compared with."""

EXIT_UNDECIDED = 4
"""Measurements did not decide."""

EXIT_INTERRUPTED = 130
