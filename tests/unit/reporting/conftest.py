"""Databases with releases to report on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp

HOSTILE = "<script>alert('x')</script>&\"</style>"
"""A name that must come out as text."""

DECLARED = """
CREATE TABLE adult AS FROM '{data}';
CALL dp_protect('adult', epsilon := 3, delta := 1e-9);
CALL dp_attribute('adult', 'age', bins := [0, 18, 25, 35, 45, 55, 65, 120]);
CALL dp_attribute('adult', 'sex', "values" := ['Female', 'Male']);
CALL dp_attribute('adult', 'race', "values" := ['White', 'Black'], other := true);
CALL dp_attribute('adult', 'hours_per_week', low := 1, high := 99);
"""
RELEASES = """
FROM dp_marginals('adult', [['age', 'sex'], ['hours_per_week'], [], ['age', 'hours_per_week'], ['sex', 'race', 'age']],
    epsilon := 0.5, release := 'overview', mechanism := 'residual', objective := 'max');
FROM dp_marginals('adult', [['sex'], ['race']], weights := [2, 1], rho := 0.001, release := 'weighted');
FROM dp_marginals('adult', ['hours_per_week', 'race', 'age', 'sex'], mu := 0.03, release := 'large');
FROM dp_queries('adult', [{'age': 'range', 'sex': 'identity'}, {'hours_per_week': 'range'}, {'age': 'prefix', 'weight': 2},
    {'age+hours_per_week': 'affine'}], epsilon := 0.25, release := 'ranges');
FROM dp_queries('adult', {'age': ['age < 25', 'age >= 65']}, epsilon := 0.1, release := 'conditions');
FROM dp_sql(['SELECT count(*) AS n FROM adult WHERE hours_per_week BETWEEN 30 AND 40',
    'SELECT sex, race, count(*) AS n FROM adult WHERE age < 65 GROUP BY CUBE (sex, race)',
    'SELECT sex, sum(hours_per_week) AS n FROM adult GROUP BY sex',
    'SELECT count(*) AS n FROM adult WHERE hours_per_week > 40 OR age < 25'], epsilon := 0.3, mechanism := 'querysmasher', release := 'selects');
"""


@pytest.fixture(scope="package")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The shipped data with a release of every kind."""
    folder = tmp_path_factory.mktemp("reporting")
    with duckdb.connect(folder / "census.duckdb") as con:
        duckdb_dp.load(con, progress=False)
        run(con, DECLARED.format(data=Path(duckdb_dp.__file__).parent / "data_files" / "adult.parquet"))
        run(con, RELEASES)
        yield con


@pytest.fixture(scope="package")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """A table, a column, labels, a unit and a release with names that are markup."""
    folder = tmp_path_factory.mktemp("hostile")
    text, name = HOSTILE.replace("'", "''"), HOSTILE.replace('"', '""')
    quoted = '"' + name + '"'
    with duckdb.connect() as con:
        duckdb_dp.load(con, ledger=folder / "ledger.dp", progress=False)
        con.execute(f"CREATE TABLE {quoted} AS SELECT '{text}' AS {quoted}, 'a' AS b, 1 AS \"<i>unit\"")
        table = quoted.replace("'", "''")
        run(con, f"CALL dp_protect('{table}', rho := 1, unit := '<i>unit', max_rows := 3)")
        run(con, f"CALL dp_attribute('{table}', '{text}', \"values\" := ['{text}', '<b>'], nulls := true)")
        run(con, f"FROM dp_marginals('{table}', ['{text}'], rho := 0.1, release := '{text}')")
        yield con


def run(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    for statement in con.extract_statements(sql):
        con.execute(statement).fetchall()


@pytest.fixture
def pages(adult: duckdb.DuckDBPyConnection) -> Any:
    """name -> page."""
    from duckdb_dp.reporting import report

    return lambda name: report(adult, name).html
