"""A module does one thing. One that passes this size is split, and the number stays."""

from pathlib import Path

import duckdb_dp

LINES = 400
PACKAGE = Path(duckdb_dp.__file__).parent


def test_modules_stay_small() -> None:
    sizes = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: size for name, size in sizes.items() if size > LINES} == {}


def test_the_public_names_stay_few() -> None:
    assert len(duckdb_dp.__all__) <= 20
