"""Meaning of the commands' exit codes."""

from __future__ import annotations

EXIT_ERROR = 1
EXIT_NOT_BETTER = 3
"""The winner is not proven better, or no longer holds."""

EXIT_UNDECIDED = 4
"""The measurements did not decide."""

EXIT_INTERRUPTED = 130
