"""The command ``duckdb-dp``, from a file as it is installed."""

import sys

from duckdb_dp.cli import main

sys.exit(main())
