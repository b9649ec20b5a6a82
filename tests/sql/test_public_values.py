"""Groups of public columns of all types: NaN, infinite numbers and dates, long decimals and nanoseconds are values as any other."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import duckdb_dp.testing
from tests.conftest import Loaded
from tests.sql.earlier_forms import check_found_again

VALUES = {
    "DOUBLE": "['nan', '-nan', 'inf', '-inf', '0', '-0.0', NULL, '0.1', '1e300']",
    "FLOAT": "['nan', 'inf', '-0.0', '0', NULL, '0.1', '-3e38', '1', '2']",
    "DATE": "['infinity', '-infinity', '2020-01-01', NULL, '1900-02-28', '2020-01-01', '2020-01-02', '2021-01-01', '2022-01-01']",
    "TIMESTAMP": "['infinity', '-infinity', '2020-01-01 10:00:00.12', NULL, '1900-02-28', '2020-01-01', '2020-01-02', '2020-01-01 10:00:00.13', '2022-01-01']",
    "TIMESTAMP_NS": "['2020-01-01 10:00:00.123456789', '2020-01-01 10:00:00.123456788', NULL, '2020-01-01', '2020-01-02', '2020-01-03', '2020-01-04', '2020-01-05', '2020-01-06']",
    "TIMESTAMP_S": "['2020-01-01 10:00:00', NULL, '2020-01-01', '2020-01-02', '2020-01-03', '2020-01-04', '2020-01-05', '2020-01-06', '2020-01-07']",
    "DECIMAL(38, 2)": "['12345678901234567890123456789012345.25', '12345678901234567890123456789012345.26', NULL, '0', '1', '2', '3', '4', '-5.5']",
    "DECIMAL(5, 2)": "['1.5', '1.25', NULL, '0', '1', '2', '3', '4', '-5.5']",
    "VARCHAR": "['', 'nan', NULL, 'a', 'A', 'ä', ' ', '''', '\"']",
    "HUGEINT": "['170141183460469231731687303715884105727', '-1', NULL, '0', '1', '2', '3', '4', '5']",
    "BOOLEAN": "['true', 'false', NULL, 'true', 'true', 'false', 'false', 'true', 'true']",
    "TIME": "['00:00:00', '23:59:59.999999', NULL, '01:00', '02:00', '03:00', '04:00', '05:00', '06:00']",
}  # fmt: skip
FROM = "stays JOIN wards w USING (ward_id)"
SELECTS = [
    f"SELECT w.ward_id, first(w.x) AS x, count(*) AS n FROM {FROM} GROUP BY w.ward_id",
    f"SELECT name, min(w.x) AS x, max(w.x) AS y, count(*) AS n FROM {FROM} GROUP BY name",
    f"SELECT ward_id, any_value(w.x) AS x, count(*) AS n FROM {FROM} GROUP BY ward_id, kind",
    f"SELECT w.x, count(*) AS n FROM {FROM} GROUP BY w.x",
    f"SELECT w.x, w.name, count(*) AS n FROM {FROM} GROUP BY ALL",
    f"SELECT kind, w.x AS y, count(*) AS n FROM {FROM} GROUP BY ALL",
    f"SELECT w.x, d.title, count(*) AS n FROM {FROM} JOIN doctors d USING (doc_id) GROUP BY ALL",
]


def opened(folder: Path, type_: str) -> Loaded:
    connection = duckdb.connect()
    connection.execute(
        f"""
        CREATE TABLE wards (ward_id INTEGER PRIMARY KEY, name VARCHAR, x {type_});
        INSERT INTO wards SELECT i, 'w' || i, CAST(({VALUES[type_]})[i + 1] AS {type_}) FROM range(9) t(i);
        CREATE TABLE doctors (doc_id INTEGER PRIMARY KEY, title VARCHAR); INSERT INTO doctors SELECT i, ['Dr', 'Prof'][1 + i % 2] FROM range(4) t(i);
        CREATE TABLE patients (id INTEGER PRIMARY KEY); INSERT INTO patients FROM range(100);
        CREATE TABLE stays (stay INTEGER PRIMARY KEY, id INTEGER NOT NULL REFERENCES patients (id), ward_id INTEGER NOT NULL REFERENCES wards (ward_id),
            doc_id INTEGER NOT NULL REFERENCES doctors (doc_id), kind VARCHAR);
        INSERT INTO stays SELECT i, i % 100, i % 9, i % 4, ['a', 'b'][1 + i % 2] FROM range(300) t(i);
        """
    )
    duckdb_dp.testing.load_exact(connection, folder / "wards.dp")
    found = Loaded(connection, folder / "wards.dp")
    found("CALL dp_public(['wards', 'doctors'])")
    found(
        "CALL dp_protect(['patients', 'stays'], unit := 'patients.id', max_rows := {'stays': 3}, epsilon := 1e8, delta := 1e-9)"
    )
    found("CALL dp_attribute('stays', 'kind', \"values\" := ['a', 'b'])")
    return found


@pytest.fixture(scope="module", params=VALUES)
def wards(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    found = opened(tmp_path_factory.mktemp("wards"), request.param)
    yield found
    found.connection.close()


@pytest.mark.some(12)
@pytest.mark.parametrize("select", SELECTS)
def test_public_values_of_all_types_are_groups(wards: Loaded, select: str) -> None:
    """As DuckDB groups them: NaN is one value, and so are 0 and -0."""
    names = [name for name, *_ in wards.connection.execute(select).description]
    as_text = [f"CASE WHEN \"{one}\"::VARCHAR = '-0.0' THEN '0.0' ELSE \"{one}\"::VARCHAR END" for one in names[:-1]]
    shown = ", ".join([*(f"replace({one}, '-nan', 'nan')" for one in as_text), "round(n)::INTEGER"])
    truth = sorted(wards(f"SELECT {shown} FROM ({select})"), key=str)
    found = sorted(wards(f"SELECT {shown} FROM dp_sql(?, epsilon := 1e4)", [select]), key=str)
    assert [row for row in found if row[-1]] == truth
    if "w.x, count" not in select and "kind" not in select and "doctors" not in select:
        assert len(found) == len(truth)  # and no group is of values that no ward has


@pytest.mark.slow
@pytest.mark.some(4)
@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("type_", ["FLOAT", "DECIMAL(5, 2)", "TIMESTAMP_S", "INTEGER"])
def test_what_was_answered_before_is_found_again(tmp_path: Path, type_: str, select: str) -> None:
    """Columns of these types were grouped by each by itself, with groups that no row has."""
    values = "range(20, 29)" if type_ == "INTEGER" else VALUES[type_].replace("'nan', 'inf'", "'7', '8'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VALUES, type_, values)
        found = opened(tmp_path, type_)
    check_found_again(found, select, 6)
