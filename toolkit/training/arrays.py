"""Array types of ``toolkit.training``."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Matrix = NDArray[np.float32]
"""Features: one row per candidate, NaN where a quantity does not exist."""
