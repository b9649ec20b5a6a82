"""``python -m duckdb_dp``: the command ``duckdb-dp``."""

import sys

from duckdb_dp.cli import main

sys.exit(main())
