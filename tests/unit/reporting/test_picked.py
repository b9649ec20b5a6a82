"""Rows that noisy answers pick are said to be such, where their intervals are shown."""

import pytest

from duckdb_dp.reporting.asked import PICKED
from duckdb_dp.reporting.picked import picked

BY_CITY = "SELECT city, count(*) AS n FROM visits GROUP BY city"
ONLY = ["city", "n", "stddev", "ci_low", "ci_high"]
OF_SEVERAL = ["city", "n", "n_stddev", "n_ci_low", "n_ci_high", "f", "f_stddev", "f_ci_low", "f_ci_high"]
SHORT = ["city", "n", "n_ci"]


@pytest.mark.parametrize("names", [ONLY, OF_SEVERAL, SHORT])
@pytest.mark.parametrize(
    "statement",
    [
        "FROM dp_sql('{} ORDER BY n DESC LIMIT 5', epsilon := 1)",
        "FROM dp_sql('{} ORDER BY 2 LIMIT 5')",
        "FROM dp_sql('{} ORDER BY city, -n LIMIT 5')",
        "FROM dp_sql('{} ORDER BY count(*) DESC FETCH FIRST 3 ROWS ONLY')",
        "FROM dp_sql('{} ORDER BY ALL LIMIT 5')",
        "FROM dp_sql('{} HAVING count(*) > 100')",
        "FROM dp_sql('{} HAVING n > 100')",
        "FROM dp_sql($$ {} HAVING n > 100 $$)",
        "FROM dp_sql('SELECT * FROM ({}) WHERE n > 100')",
        "FROM dp_sql('WITH a AS ({}) SELECT * FROM a WHERE n > 100')",
        "FROM dp_sql('{} QUALIFY row_number() OVER (ORDER BY n) < 3')",
        "FROM dp_sql('{}', epsilon := 1) ORDER BY n DESC LIMIT 5",
        "SELECT * FROM (FROM dp_sql('{}', epsilon := 1)) AS r WHERE n > 100",
        "WITH a AS (FROM dp_sql('{}', epsilon := 1)) SELECT * FROM a WHERE n > 100",
        "SELECT DISTINCT ON (city) * FROM dp_sql('{}') ORDER BY n",
        "SELECT * FROM (SELECT *, rank() OVER (ORDER BY n DESC) AS r FROM dp_sql('{}')) WHERE r <= 2",
        "FROM dp_sql('SELECT city, n FROM (SELECT city, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS r FROM visits GROUP BY city) "
        "WHERE r <= 2')",
        "SELECT m.* FROM dp_sql('{0}') m JOIN (SELECT max(n) AS mx FROM dp_sql('{0}')) ON m.n = mx",
        "FROM dp_sql('{0} UNION ALL {0} ORDER BY n LIMIT 3', epsilon := 1)",
        "FROM dp_sql('SELECT * FROM ({0} UNION {0}) WHERE n > 3', epsilon := 1)",
        "-- the largest\n/* of\nall */ (FROM dp_sql('{} HAVING n > 100'))",
    ],
)
def test_clauses_that_pick(statement: str, names: list[str]) -> None:
    assert picked(statement.format(BY_CITY), names) == [PICKED]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM dp_sql('{}', epsilon := 1)",
        "FROM dp_sql('{} ORDER BY n DESC', epsilon := 1)",
        "FROM dp_sql('{} ORDER BY city LIMIT 5', epsilon := 1)",
        "FROM dp_sql('{} HAVING city IN (1, 2)', epsilon := 1)",
        "FROM dp_sql('{}', epsilon := 1) LIMIT 5",
        "SELECT * FROM (SELECT *, row_number() OVER (ORDER BY city) AS r FROM dp_sql('{}')) WHERE r <= 2",
        "SELECT * FROM dp_sql('{}') JOIN towns ON towns.name = city",
        "FROM dp_sql('{}', epsilon := 1) WHERE city <> 'other'",
        "FROM dp_sql('SELECT city, sum(n) AS n FROM visits WHERE n > 5 GROUP BY city', epsilon := 1)",
        "FROM dp_sql('SELECT city, sum(n) AS n FROM (SELECT * FROM visits) WHERE n > 5 GROUP BY city', epsilon := 1)",
        "FROM dp_sql('SELECT city, count(*) FILTER (WHERE age > 5) AS n FROM visits GROUP BY city', epsilon := 1)",
        "FROM dp_sql('SELECT city FROM ({0} UNION {0} EXCEPT {0}) ORDER BY city LIMIT 3', epsilon := 1)",
        "FROM dp_sql('{}') WHERE " + " AND ".join(["(" * 400 + "city" + ")" * 400 + " = 1"] * 3),
        "EXECUTE having(5)",
        "no SQL LIMIT at all (",
    ],
)
def test_clauses_that_do_not(statement: str) -> None:
    assert picked(statement.format(BY_CITY), OF_SEVERAL) == []


def test_without_an_interval_nothing_is_said_of_it() -> None:
    assert picked(f"SELECT city, n FROM dp_sql('{BY_CITY} HAVING n > 100', epsilon := 1)", ["city", "n"]) == []
