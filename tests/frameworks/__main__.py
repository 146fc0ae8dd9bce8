"""Run the tests of frameworks, keep what they found, and write the README's table.

``python -m tests.frameworks`` runs what is installed; a row whose framework is not
installed keeps its last results. ``--check`` writes nothing: it compares.
"""

from __future__ import annotations

import sys

from tests.frameworks.table import main

sys.exit(main(sys.argv[1:]))
