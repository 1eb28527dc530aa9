"""What is said of errors."""

from __future__ import annotations

import pytest

from toolkit.errors import first_line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\ntwo", "one"),
        ("\n  \n one\r\ntwo", "one"),
        (" \n", "ValueError"),
        ("é" * 999, "é" * 300),
    ],
)
def test_an_error_of_a_library_is_told_on_one_line(text: str, said: str) -> None:
    assert first_line(ValueError(text)) == said
