"""A reading as the row that it becomes."""

from typing import Any

from toolkit.logs.rows.base import Reading
from toolkit.logs.rows.rows import Rows


def row_of(reading: Reading) -> dict[str, Any]:
    """The columns of one reading's row by name, its ids among them."""
    rows = Rows()
    rows.add(reading, 1)
    (row,) = rows.table().to_pylist()
    return row
