"""A module does one thing. One that passes this size is split, and the number stays."""

from pathlib import Path

import pytest

import duckdb_dp

LINES = 400
PACKAGE = Path(duckdb_dp.__file__).parent


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES


def test_the_public_names_stay_few() -> None:
    assert len(duckdb_dp.__all__) <= 20
