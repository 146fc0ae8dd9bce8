"""The version, in one place that every layer may read."""

from typing import Final

__version__: Final = "0.1.0"
