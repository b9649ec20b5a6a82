"""dp_sql on the rows themselves: with the noise off DuckDB's own answers, and what one row could change without bound is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from duckdb_dp import answers
from duckdb_dp.sql.session import Session
from tests.conftest import Loaded

ORDERS = """
CREATE TABLE orders AS SELECT (i % 50)::INTEGER AS user_id, ['north', 'south', 'east', NULL][1 + i % 4] AS region,
    (i * 7919 % 1000 / 10)::DECIMAL(9, 2) AS amount, CASE WHEN i % 5 > 0 THEN i % 100 END::INTEGER AS fee, i * 0.37 AS weight,
    ['San Jose', 'Austin', 'san juan'][1 + i % 3] AS city, i % 3 = 0 AS gift, DATE '2020-01-01' + (i * 3 % 700)::INTEGER AS day,
    TIMESTAMP '2020-01-01 10:00:00' + INTERVAL (i) HOUR AS moment
FROM range(1000) t(i);
CALL dp_protect('orders', unit := 'user_id', max_rows := 20, mu := 1e9);
CALL dp_attribute('orders', 'region', "values" := ['north', 'south', 'east'], nulls := true);
CALL dp_attribute('orders', 'amount', low := 0, high := 100, step := 10);
CALL dp_attribute('orders', 'fee', low := 0, high := 99, nulls := true);
CALL dp_attribute('orders', 'weight', low := 0, high := 370, step := 10);
CALL dp_attribute('orders', 'gift');
CALL dp_attribute('orders', 'day', low := DATE '2020-01-01', high := DATE '2021-12-31', step := INTERVAL 1 DAY);
"""


@pytest.fixture
def orders(exact: Loaded) -> Loaded:
    exact(ORDERS)
    return exact


def answered(loaded: Loaded, select: str | list[str], mu: float = 1e4) -> list[tuple[Any, ...]]:
    """Rows without their errors."""
    call = "FROM dp_sql(?, mu := ?)"
    names = [name for name, *_ in loaded(f"DESCRIBE {call}", [select, mu])]
    errors = ("stddev", "ci_low", "ci_high", "private")
    kept = [i for i, name in enumerate(names) if not name.endswith(errors)]
    return [tuple(row[i] for i in kept) for row in loaded(call, [select, mu])]


def alike(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Whether rows are the same but for rounding to the grid, in any order, and groups that count nobody."""

    def plain(row: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(
            f"{float(x):.5g}" if not isinstance(x, bool | str | type(None)) and is_number(x) else str(x) for x in row
        )

    known = [plain(row) for row in expected]
    return all(row in known for row in map(plain, found) if row[-1] not in ("0", "None", "-0")) and all(
        row in map(plain, found) for row in known
    )


def is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


SELECTS = [
    "SELECT count(*), sum(fee) FROM orders",
    "SELECT count(*) AS n, count(fee) AS known, avg(fee) AS mean FROM orders",
    "SELECT sum(amount) FROM orders",
    "SELECT avg(amount) FROM orders WHERE amount > 33.3",
    "SELECT region, avg(amount) FROM orders GROUP BY region",
    "SELECT region, gift, sum(amount) AS s, avg(weight) AS w FROM orders WHERE fee < 50 GROUP BY region, gift",
    "SELECT region, count(*) FROM orders WHERE city ILIKE 'san %' GROUP BY ALL",
    "SELECT count(*) FROM orders WHERE lower(city) = 'austin' AND NOT gift",
    "SELECT count(*) FROM orders WHERE moment >= TIMESTAMP '2020-02-01' AND hour(moment) BETWEEN 9 AND 17",
    "SELECT sum(amount * fee) FROM orders",
    "SELECT sum(amount + 2 * fee - 1) AS s, avg(-amount) AS m, sum(abs(amount - 50)) AS a FROM orders",
    "SELECT sum(CASE WHEN fee > 50 THEN amount ELSE 0 END) FROM orders",
    "SELECT sum(CASE WHEN fee > 50 THEN amount END) AS s, avg(CASE WHEN fee > 50 THEN amount END) AS m FROM orders",
    "SELECT count(*) FILTER (WHERE fee > 50) AS n, sum(amount) FILTER (WHERE gift) AS s FROM orders",
    "SELECT sum(fee > 50) FROM orders",
    "SELECT count_if(fee > 50) AS n FROM orders",
    "SELECT avg(least(greatest(weight, 10), 200)) FROM orders",
    "SELECT sum(coalesce(fee, 0)) FROM orders",
    "SELECT sum(round(amount)) FROM orders",
    "SELECT avg(amount / 4) FROM orders",
    "SELECT avg(year(day)) FROM orders",
    "SELECT var_pop(amount) FROM orders",
    "SELECT variance(amount) FROM orders",
    "SELECT gift, stddev(amount) FROM orders GROUP BY gift",
    "SELECT stddev_pop(fee) AS a, var_samp(fee) AS b, mean(fee) AS c FROM orders",
    "SELECT year(day) AS y, count(*) FROM orders GROUP BY y",
    "SELECT date_trunc('month', day) AS m, sum(amount) FROM orders GROUP BY m",
    "SELECT year(day) AS y, month(day) AS m, gift, count(*) FROM orders GROUP BY ALL",
    "SELECT extract(year FROM day) AS y, avg(fee) FROM orders GROUP BY 1",
    "SELECT fee // 10 AS tens, count(*) FROM orders GROUP BY tens",
    "SELECT CASE WHEN fee < 10 THEN 'few' WHEN fee < 50 THEN 'some' ELSE 'many' END AS fees, sum(amount) FROM orders GROUP BY 1",
    "SELECT upper(region) AS r, sum(fee) FROM orders GROUP BY upper(region)",
    "SELECT region, avg(amount) FROM orders WHERE region <> 'east' GROUP BY region",
    "SELECT region, gift, sum(amount) FROM orders GROUP BY CUBE (region, gift)",
    "SELECT region, gift, avg(amount) FROM orders GROUP BY GROUPING SETS ((region), (gift), ())",
    "SELECT region, 100 * sum(fee) / sum(amount) AS share FROM orders GROUP BY region",
    "SELECT round(avg(amount), 1) AS m FROM orders",
    "SELECT sum(amount) / count(*) AS a, count(*) - count(fee) AS missing FROM orders",
    "SELECT region, count(*) AS n FROM orders GROUP BY region HAVING count(*) > 249",
    "SELECT region AS r, count(*) AS n FROM orders GROUP BY r HAVING r <> 'north' ORDER BY r",
    "SELECT region AS fee, count(*) AS n FROM orders GROUP BY 1 HAVING fee LIKE '%th' ORDER BY fee",
    "SELECT count(*) AS n, sum(fee) AS s FROM orders WHERE TRUE",
    "SELECT region, count(*) AS n FROM orders WHERE 1 = 1 GROUP BY region ORDER BY region",
    "SELECT count(*) AS n, count(fee) AS k FROM orders WHERE FALSE",
    "SELECT count(*) AS n FROM orders WHERE NULL",
    "SELECT region, avg(fee) AS m FROM orders GROUP BY region ORDER BY m DESC, region LIMIT 4",
    "SELECT count(DISTINCT user_id) FROM orders",
    "SELECT gift, count(DISTINCT user_id) FROM orders GROUP BY gift",
    "SELECT year(day) AS y, count(DISTINCT user_id) AS n FROM orders GROUP BY y",
    "SELECT fee > 50 AS large, count(DISTINCT user_id) AS n, avg(fee) AS m FROM orders WHERE gift GROUP BY ROLLUP (large)",
    "SELECT 'all' AS label, count(*) AS n FROM orders",
    "SELECT strftime(day, '%Y-%m') AS m, count(*) AS n FROM orders GROUP BY m",
    "SELECT floor(avg(amount)) AS f, greatest(sum(fee) - 10, 0) AS g, CAST(count(*) AS BIGINT) AS n FROM orders",
    "SELECT count(DISTINCT user_id) FILTER (WHERE fee > 90) AS n FROM orders",
    "SELECT count(DISTINCT city) FROM orders",
    "SELECT region, count(DISTINCT fee) AS f, count(DISTINCT day) FILTER (WHERE gift) AS d FROM orders GROUP BY region",
    "SELECT gift, count(DISTINCT lower(city) || region) AS c, avg(fee) AS m FROM orders GROUP BY gift",
    "SELECT count(*) FROM orders WHERE fee IS NULL",
    "SELECT count(*) FROM orders WHERE fee NOT IN (1, 2, 3) OR fee IS NULL",
    "SELECT avg(user_id) AS m, sum(user_id) AS s FROM orders WHERE user_id BETWEEN 5 AND 30",
    "SELECT sum(user_id) FILTER (WHERE user_id < 10 AND 0 <= user_id) AS s, avg(amount) AS m FROM orders WHERE amount > 40",
    "SELECT count(*) FROM orders WHERE fee > 1000 OR region = 'nowhere'",
    "SELECT count(*) + 1 AS n FROM orders",
    "SELECT -fee AS fee, count(*) AS n FROM orders WHERE fee < 9 GROUP BY orders.fee ORDER BY fee LIMIT 3",
    "SELECT sum(round(weight, -2)) AS r, sum(least(fee, -amount)) AS l FROM orders",
    "SELECT avg(fee + 1e15) AS a FROM orders",
    "SELECT count(*) AS n, avg(fee) AS m, sum(fee) AS s, count(fee) AS k, variance(fee) AS v FROM orders WHERE gift",
    "SELECT region, sum(amount) FROM main.orders AS o WHERE o.fee BETWEEN 10 AND 20 GROUP BY o.region",
]  # fmt: skip


@pytest.mark.some(6)
@pytest.mark.parametrize("select", SELECTS)
def test_answers_are_duckdbs_own(orders: Loaded, select: str) -> None:
    assert alike(answered(orders, select), orders(select)), (answered(orders, select), orders(select))


def test_a_count_beside_a_sum_counts_all_rows(exact: Loaded) -> None:
    """Values beyond the bounds are clamped, NULL is skipped, and neither takes a row from a count."""
    exact("CREATE TABLE t AS SELECT CASE WHEN i % 5 = 0 THEN i END AS fee FROM range(100) r(i)")
    exact("CALL dp_protect('t', mu := 1e9); CALL dp_attribute('t', 'fee', low := 0, high := 50)")
    ((count, known, total),) = answered(exact, "SELECT count(*) AS n, count(fee) AS k, sum(fee) AS s FROM t")
    clamped = "SELECT count(*), count(fee), sum(CASE WHEN fee > 50 THEN 50 ELSE fee END) FROM t"
    assert [round(x, 3) for x in (count, known, total)] == [float(x) for x in exact(clamped)[0]]


ODD_NUMBERS = ["'NaN'", "'inf'", "'-inf'", "1e308", "-1e308", "NULL", "0.0", "-0.0", "5e-324"]


def test_odd_numbers_are_clamped_and_none_raises_an_error(exact: Loaded) -> None:
    rows = ", ".join(f"({x}::DOUBLE)" for x in ODD_NUMBERS)
    exact(f"CREATE TABLE t AS SELECT * FROM (VALUES {rows}) v(x)")
    exact("CALL dp_protect('t', mu := 1e9); CALL dp_attribute('t', 'x', bins := [-1, 0, 3])")
    found = answered(exact, "SELECT count(*) AS n, count(x) AS k, sum(x) AS s, avg(x) AS m, sum(1 / x) FILTER (WHERE false) AS z FROM t".replace("1 / x", "x * x"))  # fmt: skip
    assert [round(x, 4) for x in found[0][:4]] == [9, 7, 4, round(4 / 7, 4)]  # NaN is no number


@pytest.mark.parametrize(
    ("type_", "values", "low", "high"),
    [
        ("HUGEINT", ["170141183460469231731687303715884105727", "-5", "3"], -10, 10),
        ("UHUGEINT", ["340282366920938463463374607431768211455", "7"], 0, 10),
        ("DECIMAL(38,10)", ["1234567890123456789012345678.5", "-9999999999999999999999999999", "0.25"], -1, 1),
        ("FLOAT", ["3.4e38", "-3.4e38", "0.5", "NaN"], -1, 1),
        ("BIGINT", ["9223372036854775807", "-9223372036854775808"], -4, 3),
        ("UTINYINT", ["255", "0", "3"], 0, 15),
    ],
)
def test_extreme_values_of_every_type(exact: Loaded, type_: str, values: list[str], low: int, high: int) -> None:
    listed = ", ".join(f"('{value}'::{type_})" for value in values)
    exact(f"CREATE TABLE t AS SELECT * FROM (VALUES {listed}, (NULL)) v(x); CALL dp_protect('t', mu := 1e9)")
    exact(f"CALL dp_attribute('t', 'x', bins := [{low}, {low + 1}, {high}])")
    ((total, squares),) = answered(exact, "SELECT sum(x) AS s, sum(x * x) AS q FROM t")
    clamped = [min(max(float(value), low), high) for value in values if value != "NaN"]
    assert total == pytest.approx(math.fsum(clamped), abs=1e-5)
    worst = max(low * low, high * high)
    assert abs(squares) <= worst * len(values) * (1 + 1e-6)  # what overflows beyond the declared values counts nothing


@pytest.mark.parametrize(
    "key", ["round(z / 10)", "trunc(z / 10)", "ceil(z / 10)", "z * 0.0::DOUBLE", "-(z * 0.0::FLOAT)"]
)
def test_both_zeros_are_one_group(exact: Loaded, key: str) -> None:
    exact("CREATE TABLE t AS SELECT (i * 31 % 100) - 50 AS z FROM range(300) s(i); CALL dp_protect('t', mu := 1e9)")
    exact("CALL dp_attribute('t', 'z', low := -50, high := 49)")
    select = f"SELECT {key} AS k, count(*) AS n FROM t GROUP BY k"
    assert sorted(answered(exact, select)) == sorted((k, pytest.approx(n, abs=1e-3)) for k, n in exact(select))


@pytest.mark.parametrize("where", ["x BETWEEN 0 AND 1000", "x >= 0 AND 1000 >= x", "x > 50 AND x <= 900", "x = 700"])
def test_a_condition_that_says_both_ends_holds_beyond_the_domain(exact: Loaded, where: str) -> None:
    exact("CREATE TABLE t AS SELECT i::DOUBLE AS x FROM range(1000) s(i); CALL dp_protect('t', mu := 1e9)")
    exact("CALL dp_attribute('t', 'x', bins := [0, 50, 100])")
    select = f"SELECT avg(x) AS a, sum(x) AS s, count(*) AS n FROM t WHERE {where}"
    assert answered(exact, select) == [tuple(pytest.approx(one, rel=1e-5) for one in exact(select)[0])]


REFUSED = [
    ("SELECT max(amount) FROM orders", "ask a quantile: quantile_cont(amount, 0.99)"),
    ("SELECT min(amount) FROM orders", "quantile_cont(amount, 0.01)"),
    ("SELECT median(city) FROM orders", "is VARCHAR, which has no order"),
    ("SELECT median(gift) FROM orders", "is BOOLEAN, which has no order"),
    ("SELECT quantile_cont(amount, 1.5) FROM orders", "write one number from 0 to 1"),
    ("SELECT quantile_cont(amount, fee) FROM orders", "write one number from 0 to 1"),
    ("SELECT quantile_cont(amount, '0.5') FROM orders", "write one number from 0 to 1"),
    ("SELECT median(DISTINCT amount) FROM orders", "only count takes DISTINCT"),
    ("SELECT median(max(amount)) FROM orders", "where the values of one row are asked for"),
    ("SELECT percentile_cont(0.75) WITHIN GROUP (ORDER BY amount, fee) FROM orders", "WITHIN GROUP"),
    ("SELECT mode() WITHIN GROUP (ORDER BY amount) FROM orders", ""),
    ("SELECT mode(amount) FROM orders", "ask count(*) with GROUP BY"),
    ("SELECT sum(city) FROM orders", ""),
    ("SELECT sum(day) FROM orders", ""),
    ("SELECT string_agg(city, ',') FROM orders", "one row can change"),
    ("SELECT list(city) FROM orders", "one row can change"),
    ("SELECT mode(city) FROM orders", "ask count(*) with GROUP BY the column"),
    ("SELECT first(city) FROM orders", "one row can change"),
    ("SELECT sum(city) FROM orders", "city"),
    ("SELECT sum(DISTINCT fee) FROM orders", "only count takes DISTINCT"),
    ("SELECT count(DISTINCT city, fee) FROM orders", "takes the unit, or one expression"),
    ("SELECT count(DISTINCT sum(fee)) FROM orders", "where the values of one row are asked for"),
    ("SELECT city, count(*) FROM orders GROUP BY city", "'orders'.'city' has no declared domain"),
    ("SELECT city, sum(fee) FROM orders", 'add GROUP BY "city"'),
    ("SELECT sum(fee) FROM orders WHERE citi = 'a'", "Did you mean 'city'?"),
    ("SELECT sum(fee) FROM orders WHERE random() < 0.5", "is not among what may be worked out of a row"),
    ("SELECT sum(fee) FROM orders WHERE now() > moment", "is not among what may be worked out of a row"),
    ("SELECT sum(fee) FROM orders WHERE getenv('HOME') = 'x'", "is not among what may be worked out of a row"),
    ("SELECT sum(fee) FROM orders WHERE fee IN (SELECT 1)", ""),
    ("SELECT sum(fee) FROM orders WHERE EXISTS (SELECT 1)", ""),
    ("SELECT sum(fee) FROM orders WHERE fee > (SELECT avg(fee) FROM orders)", ""),
    ("SELECT count(*) FROM orders WHERE fee < 'abc'", "'abc' is no"),
    ("SELECT sum(fee) OVER () FROM orders", "has a window; work on the result"),
    ("SELECT sum((SELECT 1)) FROM orders", ""),
    ("SELECT read_text('x') AS t, sum(fee) FROM orders", "reads a file; make a table of it"),
    ("SELECT sum(fee) FROM orders LIMIT 10%", ""),
    ("SELECT sum(fee) FROM orders WHERE fee > 'a' || 1", ""),
    ("SELECT sum(fee) FROM orders WHERE city > 3 + day", ""),
    ("SELECT avg(fee) AS stddev FROM orders", "names two result columns alike"),
    ("SELECT sum(fee) FROM orders WHERE sum(fee) > 1", "where the values of one row are asked for"),
    ("SELECT sum(sum(fee)) FROM orders", "where the values of one row are asked for"),
    ("SELECT sum(fee) FROM orders WHERE COLUMNS(*) = 1", ""),
    ("SELECT sum(COLUMNS('f.*')) FROM orders", ""),
    ("SELECT sum(fee ORDER BY day) FROM orders", ""),
    ("SELECT sum(fee) FILTER (WHERE random() > 1) FROM orders", "is not among"),
    ("SELECT sum(list_sum([fee])) FROM orders", "is not among"),
    ("SELECT sum(x -> 1) FROM orders", ""),
    ("SELECT sum(fee) FROM orders QUALIFY true", "QUALIFY"),
    ("SELECT summ(fee) FROM orders", "no such aggregate is known; sum may be meant"),
    ("SELECT geomean(fee) FROM orders", "avg(ln(x))"),
    ("SELECT count(*) + n AS n FROM orders", 'says "n" in what it calls "n"'),
    ("SELECT region, count(*) AS rows FROM orders GROUP BY region ORDER BY rowz", "rows may be meant"),
    ("SELECT count(*) FROM orders WHERE sqrt(fee) > 'x'", "'x' is no DOUBLE"),
    ("SELECT count(*) AS n FROM orders HAVING n > 'a'", "convert string 'a' to DOUBLE"),
    ("SELECT count(*) // 2 AS n FROM orders", "no whole numbers, and // is for these"),
    ("SELECT region, sum(fee) // count(*) AS n FROM orders GROUP BY region", "no whole numbers"),
    ("SELECT n // 2 AS h FROM (SELECT count(*) AS n FROM orders)", "no whole numbers"),
    ("SELECT count(*) FROM orders WHERE levenshtein(city, 'Oslo') < 2", "a time that a row decides"),
    ("SELECT count(*) FROM orders WHERE regexp_matches(city, region)", "write the regular expression as a literal"),
    ("SELECT count(*) / 0 AS n FROM orders", "divides by 0"),
    ("SELECT count(*) % 0 AS n FROM orders", "divides by 0"),
    ("SELECT round(sum(fee) / (2 - 2), 1) AS n FROM orders", "divides by 0"),
    ("SELECT sum(fee // 0) AS n FROM orders", "divides by 0"),
    ("SELECT region, count(*) AS n FROM orders GROUP BY region ORDER BY n / '0'", "divides by 0"),
    ("WITH a AS (SELECT count(*) AS n FROM orders) SELECT n / -0.0 AS r FROM a", "divides by 0"),
    ("SELECT count(*) FROM orders WHERE now() > day", "write a literal"),
    ("SELECT avg(age(DATE '2025-01-01', day)) FROM orders", "date_sub('year', born"),
    ("SELECT sum(fee) FROM orders ORDER BY year('a')", ""),
    ("SELECT sum(nope.fee) FROM orders", "uses nope.fee, which is no column of"),
    ("SELECT sum(orders.fee) FROM orders AS o", "uses orders.fee, which is no column of"),
    ("SELECT variance(least(greatest(weight, -1e300), 1e300)) FROM orders", "bounds go from 1e-100 to 1e100"),
    ("SELECT sum(fee * 1e-310) FROM orders", "bounds go from 1e-100 to 1e100"),
    ("SELECT sum(date_trunc(city, day)) FROM orders", "is not among"),
    ("SELECT sum($1) FROM orders", ""),
    ("SELECT sum(?) FROM orders", ""),
]  # fmt: skip


@pytest.mark.some(5)
@pytest.mark.parametrize(("select", "message"), REFUSED)
def test_what_has_no_bound_or_is_no_expression_of_a_row_is_refused(
    shared_orders: Loaded, select: str, message: str
) -> None:
    line = shared_orders.refused("FROM dp_sql(?, mu := 1)", [select])
    assert message in line
    assert line.startswith("Invalid Input Error: dp_sql: ")


@pytest.fixture(scope="module")
def shared_orders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        folder = tmp_path_factory.mktemp("orders") / "l.dp"
        duckdb_dp.testing.load_exact(connection, folder)
        loaded = Loaded(connection, folder)
        loaded(ORDERS)
        yield loaded


def test_errors_have_the_size_that_is_told(orders: Loaded) -> None:
    """Equal shares: k rows of a unit, each of which adds at most the clamp's distance."""
    call = "FROM dp_sql('SELECT count(*) AS n, sum(fee) AS s FROM orders', mu := 10)"
    ((n, n_sd, n_low, n_high, _, s_sd, *_),) = orders(call)
    assert n_sd == pytest.approx(20 * math.sqrt(2) / 10, rel=1e-6)
    assert (n_high - n_low) / 2 == pytest.approx(1.959963984540054 * n_sd)
    assert n == pytest.approx(1000)
    assert s_sd == pytest.approx(99 * n_sd, rel=1e-6)
    explained = orders(
        "SELECT marginal, cells, stddev, mechanism FROM dp_explain('orders', 'SELECT count(*) AS n, sum(fee) AS s FROM orders', mu := 10)"
    )
    assert explained == [("count(*)", 1, n_sd, "direct"), ('sum("fee")', 1, s_sd, "direct")]


def test_units_that_are_counted_cost_less(orders: Loaded) -> None:
    ((one,),) = orders("SELECT stddev FROM dp_sql('SELECT count(DISTINCT user_id) AS n FROM orders', mu := 10)")
    assert one == pytest.approx(1 / 10, rel=1e-6)
    two = orders(
        "SELECT stddev FROM dp_sql('SELECT gift, count(DISTINCT user_id) AS n FROM orders GROUP BY gift', mu := 10)"
    )
    assert two[0][0] == pytest.approx(math.sqrt(2) / 10, rel=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        "CASE WHEN fee > 90 THEN user_id WHEN gift THEN user_id END",
        "nullif(user_id, 7)",
        "if(gift, user_id, NULL)",
        "(user_id)",
    ],
)
def test_the_unit_or_null_is_counted_as_the_unit(orders: Loaded, value: str) -> None:
    ((n, one),) = orders(f"SELECT n, stddev FROM dp_sql('SELECT count(DISTINCT {value}) AS n FROM orders', mu := 10)")
    assert one == pytest.approx(1 / 10, rel=1e-6)
    assert n == orders(f"SELECT count(DISTINCT {value}) FROM orders")[0][0]


def test_errors_that_are_not_known_are_null(orders: Loaded) -> None:
    """A step inside an expression, or a divisor that noise drowns."""
    asked = "CASE WHEN count(*) > 5 THEN 1 ELSE 0 END AS c, round(sum(fee)) / count(*) AS r, sum(fee) / count(*) AS f"
    ((*found,),) = orders(f"SELECT * EXCLUDE (private) FROM dp_sql('SELECT {asked} FROM orders', mu := 1e4)")
    assert [value is None for value in found] == [False, True, True, True] * 2 + [False] * 4
    drowned = "SELECT sum(amount) / sum(fee) AS r FROM orders WHERE region = 'nowhere'"
    assert orders("FROM dp_sql(?, mu := 1e4)", [drowned])[0][:4] == (None,) * 4


def test_columns_of_a_batch_are_told_apart(orders: Loaded) -> None:
    one = "SELECT gift AS n, sum(fee) AS s FROM orders GROUP BY gift"
    for other in ("SELECT sum(fee) AS n FROM orders", "SELECT gift AS query, sum(fee) AS x FROM orders GROUP BY gift"):
        assert "give it another alias" in orders.refused("FROM dp_sql(?, mu := 1)", [[one, other]])


def test_noise_makes_no_expression_fail(orders: Loaded) -> None:
    """What fails is NULL: no error shows how large a noisy number is."""
    asked = "count(*)::TINYINT AS z, count(*)::UTINYINT AS t"
    row = orders(f"SELECT z, t FROM dp_sql('SELECT {asked} FROM orders', mu := 1e4)")
    assert row == [(None, None)]


@pytest.mark.slow
def test_sums_are_no_start_for_marginals_and_have_one_mechanism(orders: Loaded) -> None:
    asked = "SELECT gift, avg(fee) AS m FROM orders GROUP BY gift"
    orders(f"FROM dp_sql('{asked}', mu := 1, release := 'sums')")
    call = "FROM dp_marginals('orders', [['gift', 'fee']], mechanism := 'aim', given := ['sums'], mu := 1)"
    assert "is no measurement of marginals" in orders.refused(call)
    compared = (
        f"SELECT mechanism, noise, ratio_to_best FROM dp_explain('orders', '{asked}', mu := 1, mechanism := 'all')"
    )
    assert orders(compared) == [("direct", "gaussian", 1.0)]


def test_expressions_of_other_values_are_refused(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT ['a', 'b', 'c'][1 + i % 3] AS x FROM range(90) r(i); CALL dp_protect('t', mu := 9)")
    exact("CALL dp_attribute('t', 'x', \"values\" := ['a'], other := true)")
    asked = "SELECT upper(x) AS a, count(*) FROM t GROUP BY a"
    assert "is not known for the other values" in exact.refused("FROM dp_sql(?, mu := 1)", [asked])


@pytest.mark.slow
def test_the_same_sums_under_other_names_are_one_release(orders: Loaded) -> None:
    """Another alias, ORDER BY, LIMIT, HAVING or expression over them; and other sums are another one."""
    asked = "FROM dp_sql(?, mu := 4.25)"
    (first,) = orders(asked, ["SELECT avg(fee) AS m FROM orders WHERE city > 'B'"])
    charges = orders.charges()
    (second,) = orders(
        asked,
        ["SELECT 2 * avg(fee) AS twice, avg(fee) AS n FROM orders WHERE city > 'B' HAVING count(fee) > -1e9 LIMIT 5"],
    )
    assert second[4] == first[0]
    assert second[0] == pytest.approx(2 * first[0])
    assert orders.charges() == charges
    orders(asked, ["SELECT avg(fee) AS m FROM orders WHERE city > 'C'"])
    orders("FROM dp_sql(?, mu := 4.25, fresh := true)", ["SELECT avg(fee) AS other FROM orders WHERE city > 'B'"])
    assert orders.charges() == charges + 2


@pytest.mark.slow
def test_planned_counts_under_other_names_are_one_release(orders: Loaded) -> None:
    asked = "FROM dp_sql(?, mu := 4.25)"
    first = orders(asked, ["SELECT gift, count(*) AS n FROM orders GROUP BY gift"])
    charges = orders.charges()
    again = [
        "SELECT gift AS g, count(*) AS k FROM orders GROUP BY gift",
        "SELECT gift, count(*) FROM orders GROUP BY 1",
        "SELECT g, k FROM (SELECT gift AS g, count(*) AS k FROM orders GROUP BY gift)",
    ]
    for each in again:
        assert orders(asked, [each]) == first
        assert orders.charges() == charges
    names = [column[0] for column in orders.connection.execute(asked, [again[0]]).description or ()]
    assert names[:2] == ["g", "k"]
    for other in ["SELECT region AS gift, count(*) AS n FROM orders GROUP BY region",
                  "SELECT gift, count(*) AS n FROM orders WHERE region = 'north' GROUP BY gift"]:  # fmt: skip
        assert orders(asked, [other]) != first
        charges += 1
        assert orders.charges() == charges


def test_once_ever_by_name_and_in_batches(orders: Loaded) -> None:
    batch = "['SELECT avg(fee) AS m FROM orders', 'SELECT gift, count(*) AS n FROM orders WHERE city > ''B'' GROUP BY gift']"
    call = f"FROM dp_sql({batch}, mu := 5, release := 'both')"
    first = orders(call)
    assert orders(call) == first == orders("FROM dp_release('both')")
    assert orders.charges() == 1
    assert [row[0] for row in first] == [1, 2, 2]
    assert len(orders(call.replace("'both'", "'again', fresh := true"))) == 3
    assert orders.charges() == 2


@pytest.mark.slow
def test_each_select_of_a_batch_keeps_its_order_and_its_limit(orders: Loaded) -> None:
    batch = [
        "SELECT region, sum(fee) AS a FROM orders GROUP BY region ORDER BY region DESC",
        "SELECT gift, sum(fee) AS a FROM orders GROUP BY gift ORDER BY a",
        "SELECT fee, count(*) AS a FROM orders GROUP BY fee ORDER BY fee DESC LIMIT 3",
        "SELECT sum(amount) AS a FROM orders",
        "SELECT year(day) AS y, sum(fee) AS a FROM orders GROUP BY y",
    ]
    rows = orders("SELECT query, region, gift, fee, y FROM dp_sql(?, mu := 1e4)", [batch])
    assert [row[:2] for row in rows[:4]] == [(1, "south"), (1, "north"), (1, "east"), (1, None)]
    assert [(row[0], row[2]) for row in rows[4:6]] == [(2, True), (2, False)]
    assert [(row[0], row[3]) for row in rows[6:9]] == [(3, 99), (3, 98), (3, 97)]
    assert [(row[0], row[4]) for row in rows[9:]] == [(4, None), (5, 2020), (5, 2021)]


def test_pure_budgets_take_laplace_noise(exact: Loaded) -> None:
    exact("CREATE TABLE t AS SELECT i % 10 AS x FROM range(100) r(i); CALL dp_protect('t', epsilon := 100, delta := 0)")
    exact("CALL dp_attribute('t', 'x', low := 0, high := 9)")
    ((total, sd, *_),) = exact("FROM dp_sql('SELECT sum(x) AS s FROM t', epsilon := 3)")
    assert total == pytest.approx(450)
    assert sd == pytest.approx(math.sqrt(2) * 9 / 3, rel=1e-6)


def test_an_answer_of_an_earlier_version_is_read_again(orders: Loaded) -> None:
    """The same call, asked when averages were answered from cells, costs nothing."""
    call = "FROM dp_sql('SELECT sum(fee) AS s FROM orders', mu := 7{})"
    orders(call.format(", mechanism := 'hdmm'"))
    assert orders.charges() == 1


@pytest.mark.slow
def test_what_noise_drowns_is_null(exact: Loaded) -> None:
    """Averages and spreads of nobody; a count and a sum of nobody are 0."""
    exact("CREATE TABLE t AS SELECT 1 AS g, 2 AS x FROM range(50); CALL dp_protect('t', mu := 100)")
    exact("CALL dp_attribute('t', 'g', low := 1, high := 2); CALL dp_attribute('t', 'x', low := 0, high := 9)")
    asked = "avg(x) AS a, variance(x) AS v, stddev_pop(x) AS d, count(x) AS n, sum(x) AS s, 2 * avg(x) AS b"
    some, nobody = exact(f"FROM dp_sql('SELECT g, {asked} FROM t GROUP BY g', mu := 50)")
    assert None not in some
    names = [name for name, _ in exact.columns(f"FROM dp_sql('SELECT g, {asked} FROM t GROUP BY g', mu := 50)")]
    found = dict(zip(names, nobody, strict=True))
    assert {name for name, value in found.items() if value is None} == {
        f"{name}{suffix}" for name in "avdb" for suffix in ("", "_stddev", "_ci_low", "_ci_high")
    }


@pytest.mark.slow
def test_reports_show_sums(orders: Loaded, tmp_path: Path) -> None:
    orders("FROM dp_sql('SELECT region, avg(amount) AS mean, upper(region) AS r FROM orders WHERE fee > 3 GROUP BY region', mu := 5, release := 'sums')")  # fmt: skip
    duckdb_dp.report(orders.connection, "sums", tmp_path / "sums.html")
    page = (tmp_path / "sums.html").read_text()
    assert "mean" in page
    assert "amount&#34; to 0 … 100" in page
    assert "was grouped by are in no group" in page
    assert "north" in page


def test_rows_of_a_unit_beyond_the_bound_are_left_out(exact: Loaded) -> None:
    exact(
        "CREATE TABLE t AS SELECT i // 10 AS u, 1 AS x FROM range(100) r(i); CALL dp_protect('t', unit := 'u', max_rows := 3, mu := 1e9)"
    )
    exact("CALL dp_attribute('t', 'x', low := 0, high := 1)")
    assert [round(x, 3) for x in answered(exact, "SELECT sum(x) AS s, count(*) AS n FROM t")[0]] == [30, 30]


@pytest.mark.slow
def test_a_stored_quantile_is_read_by_the_plan_that_it_was_drawn_with(orders: Loaded) -> None:
    """A search that finds another plan today, or none, changes no stored answer."""
    call = "FROM dp_sql('SELECT gift, median(fee) AS m, sum(user_id) AS s FROM orders GROUP BY gift', mu := 3, release := 'q')"
    before = orders(call)
    answers.direct_plan.cache_clear()
    anew = patch.object(Session, "answers", lambda session, stored: answers.load(session.ledger, stored))
    with anew, patch("duckdb_dp.plan.direct.choose", side_effect=AssertionError):
        assert orders("FROM dp_release('q')") == before


@pytest.mark.slow
def test_quantiles_under_pure_dp(exact: Loaded) -> None:
    """Of many whole numbers too, which are planned by marginals."""
    exact(
        "CREATE TABLE t AS SELECT i % 5000 AS x, i % 2 AS g FROM range(20000) r(i); CALL dp_protect('t', epsilon := 1e6, delta := 0)"
    )
    exact("CALL dp_attribute('t', 'x', low := 0, high := 4999); CALL dp_attribute('t', 'g', low := 0, high := 1)")
    asked = "SELECT g, median(x) AS m, sum(x) AS s FROM t GROUP BY g"
    found = exact("SELECT g, m, m_ci_low, m_ci_high, s FROM dp_sql(?, epsilon := 1e5)", [asked])
    # Half of the rows are at most 2498, to the row, so the noise decides between that and the next value.
    assert all(m in (low, high) for _, m, low, high, _ in found)
    assert [(g, low, high, round(s, -3)) for g, _, low, high, s in found] == [
        (0, 2498, 2500, 24_990_000),
        (1, 2499, 2501, 25_000_000),
    ]


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        ("sqrt(count(*) - {n})", math.sqrt),
        ("ln(count(*) - {n})", math.log),
        ("log10(count(*) - {n})", math.log10),
        ("log2(count(*) - {n})", math.log2),
        ("log(3, count(*) - {n})", lambda x: math.log(x, 3)),
        ("cbrt(count(*) - {n})", math.cbrt),
        ("power(count(*) - {n}, 0.5)", math.sqrt),
        ("1 + 2 * sqrt(count(*) - {n})", lambda x: 1 + 2 * math.sqrt(x)),
    ],
)
def test_partial_functions_have_errors_where_they_are_defined_and_are_null_elsewhere(
    tmp_path: Path, function: str, plain: Callable[[float], float]
) -> None:
    with duckdb.connect() as con:
        duckdb_dp.testing.load_exact(con, tmp_path / "l.dp")
        con.execute("CREATE TABLE t AS SELECT i AS u FROM range(1000) AS r(i); CALL dp_protect('t', mu := 100)")
        asked = f"SELECT {function} AS v FROM t"
        value, stddev, low, high = con.execute("FROM dp_sql(?, mu := 1)", [asked.format(n=0)]).fetchall()[0][:4]
        assert value == pytest.approx(plain(1000))
        assert low < value < high
        assert stddev > 0
        found = con.execute("FROM dp_sql(?, mu := 1)", [asked.format(n=1001)]).fetchall()[0][:4]
        assert "cbrt" in function or found[0] is None
        assert not any(math.isnan(each) for each in found if each is not None)


def test_a_macro_in_place_of_a_function_is_not_used(orders: Loaded) -> None:
    asked = "FROM dp_sql('SELECT count(*) FROM orders WHERE lower(city) = ''zz''', mu := 1, fresh := true)"
    own = orders(asked)
    orders("CREATE MACRO lower(x) AS 'zz'")
    assert orders(asked) == own
    orders("DROP MACRO lower")


@pytest.mark.parametrize("function", ["var_pop", "variance", "stddev", "stddev_pop"])
def test_a_variance_that_noise_makes_negative_is_not_exact(db: Loaded, function: str) -> None:
    """Of 400 groups without variance some are so far below 0 that both ends are, and [0, 0] would say that it is known."""
    db("CREATE TABLE flat AS SELECT i % 400 AS g, 3 AS x FROM range(40000) t(i)")
    db("CALL dp_protect('flat', mu := 1000); CALL dp_attribute('flat', 'x', low := 1, high := 5)")
    db("CALL dp_attribute('flat', 'g', low := 0, high := 399)")
    found = db(f"SELECT v, ci_low, ci_high FROM dp_sql('SELECT g, {function}(x) AS v FROM flat GROUP BY g', mu := 0.5)")
    assert any(value == 0 and low is None and high is None for value, low, high in found)
    assert sum(low is not None and low < high for _, low, high in found) > 300
    assert all(low is None or low < high for _, low, high in found)
