"""Groups of a timestamp that is declared in bins: what is said where an expression is not known is answered as it is written."""

import re

import pytest

from tests.conftest import Loaded

MONTHS = "low := '2024-01-01', high := '2024-05-01', step := INTERVAL 1 MONTH"


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_S"])
def test_what_a_timestamp_in_bins_is_told_is_answered(exact: Loaded, type_: str) -> None:
    exact(f"""CREATE TABLE calls AS SELECT (TIMESTAMP '2024-01-01' + to_hours(i))::{type_} AS begun FROM range(2900) t(i);
        CALL dp_protect('calls', epsilon := 1e6, delta := 1e-9); CALL dp_attribute('calls', 'begun', {MONTHS})""")
    asked = "FROM dp_sql('SELECT {} AS g, count(*) AS n FROM calls GROUP BY 1', epsilon := 100)"
    told = exact.refused(asked.format("time_bucket(INTERVAL 3 HOUR, begun, INTERVAL 30 MINUTE)"))
    named = re.findall(r"date_trunc\('month', \"begun\"\)|CAST\(\"begun\" AS DATE\)|month\(\"begun\"\)", told)
    assert len(named) == 3
    for part in named:
        found = {str(row[0]): round(row[1]) for row in exact(asked.format(part.replace("'", "''"))) if round(row[1])}
        assert found == {str(key): n for key, n in exact(f"SELECT {part}, count(*) FROM calls GROUP BY 1")}
