"""Expressions of a row: their bounds hold for every row, and nothing but the row can be read."""

import itertools

import duckdb
import pytest
from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import declare
from duckdb_dp.domain.expression_bounds import bounds, limits
from duckdb_dp.domain.row_expressions import checked
from duckdb_dp.errors import DPError

DECLARED = {
    "n": declare(name="n", type="INTEGER", low=-3, high=4),
    "x": declare(name="x", type="DOUBLE", bins=[-1.5, 0, 2.25]),
    "d": declare(name="d", type="DECIMAL(6,2)", values=[-0.25, 1.5, 7.75]),
    "b": declare(name="b", type="BOOLEAN"),
    "t": declare(name="t", type="DATE", low="2024-02-27", high="2024-03-02"),
    "u": declare(name="u", type="DATE", bins=["2023-12-31", "2024-03-01", "2025-01-01"]),
    "v": declare(name="v", type="TIMESTAMP", bins=["2024-01-01", "2024-06-01"]),
}
COLUMNS = {name: name for name in (*DECLARED, "free", "s")}
VALUES = {
    "n": [-3, -1, 0, 2, 4, None],
    "x": [-1.5, -0.3, 0.0, 1.0, 2.25, None],
    "d": [-0.25, 1.5, 7.75, None],
    "b": [True, False, None],
    "t": ["2024-02-27", "2024-02-29", "2024-03-02", None],
    "u": ["2023-12-31", "2024-03-01", "2025-01-01", None],
    "v": ["2024-01-01", "2024-03-01 23:59:59.999999", "2024-06-01", None],
}
EXPRESSIONS = [
    "n", "-n", "n + x", "n - x", "n * x", "x * x", "n * d - x", "abs(n)", "abs(x - 5)", "round(x)", "round(d, 1)", "round(d, -1)",
    "floor(x)", "ceil(d)", "CAST(d AS INTEGER)", "CAST(x AS DOUBLE)", "TRY_CAST(n AS DOUBLE)", "n / 2", "n / (d + 10)",
    "coalesce(n, 9)", "nullif(n, 2)", "least(n, x)", "greatest(n, 1)", "least(greatest(d, 0), 5)", "least(n, -x)",
    "CASE WHEN b THEN n WHEN x > 0 THEN d END", "CASE WHEN b THEN n ELSE 20 END", "if(b, x, -d)", "sqrt(d + 1)", "b", "n > 2", "NOT b",
    "n IN (1, 2)", "n BETWEEN 1 AND 2", "x IS NULL", "(n + 1) * (x - 2) / 4 + abs(d)", "-(-n)", "1 - n * n", "n + 1e15",
    "t - u", "u - t", "t - DATE '2024-03-01'", "DATE '2030-01-01' - u", "CAST(v AS DATE) - t", "(t - u) * n", "abs(u - t) / 7", "t - u + n",
    "CASE WHEN b THEN t - u ELSE 0 END", "year(u)", "CAST('2024-01-01' AS DATE) - CAST(v AS DATE)",
    *(
        f"{cast}({column} AS {type_})"
        for type_ in ("BOOLEAN", "TINYINT", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "DECIMAL(5)", "DECIMAL(5,0)", "DECIMAL(6,1)", "DECIMAL(38,20)")
        for column in ("n", "x", "d", "x - 0.55", "-x * 10")
        for cast in ("CAST", "TRY_CAST")
    ),
    "CAST(CAST(d AS BOOLEAN) AS INTEGER) * 7", "CAST(n AS DECIMAL(9,2)) / 3",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_value_lies_between_the_bounds(text: str) -> None:
    node = checked(parse_one(text, dialect="duckdb"), COLUMNS)
    found = bounds(node, DECLARED)
    assert found is not None
    names = sorted({name for name in DECLARED if f'"{name}"' in node.sql("duckdb")})
    rows = list(itertools.product(*(VALUES[name] for name in names)))
    columns = [[row[i] for row in rows] for i in range(len(names))]
    lists = ", ".join(f'CAST(unnest(?) AS {DECLARED[name].type}) AS "{name}"' for name in names)
    with duckdb.connect() as con:
        asked = f"SELECT CAST(({node.sql('duckdb')}) AS DOUBLE) FROM (SELECT {lists})"
        values = [value for (value,) in con.execute(asked, columns).fetchall() if value is not None]
    assert found[0] <= min(values)
    assert max(values) <= found[1]


@pytest.mark.parametrize(
    "text", ["t", "t + 3 - u", "t - free", "u - 3", "CAST(free AS DATE) - t", "v - CAST(t AS TIMESTAMP)", "b - t"]
)
def test_dates_have_bounds_only_as_differences_of_declared_ones(text: str) -> None:
    node = checked(parse_one(text, dialect="duckdb"), COLUMNS)
    try:
        assert bounds(node, DECLARED) is None
    except DPError as error:
        assert "only numbers have a sum" in str(error) or "has no declared bounds" in str(error)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("free BETWEEN 1 AND 5", (1, 5)),
        ("free >= -2 AND free < 7", (-2, 7)),
        ("3 > free AND (free > 1)", (1, 3)),
        ("free = 4", (4, 4)),
        ("n > 1 AND free <= 2 AND free > -1e3", (-1000, 2)),
        ("free > 5 AND free < 1", (1, 5)),  # no row at all
    ],
)
def test_conditions_bound_columns(condition: str, expected: tuple[float, float]) -> None:
    found = checked(parse_one(condition, dialect="duckdb"), COLUMNS)
    assert bounds(parse_one('"free"', dialect="duckdb"), DECLARED, [found]) == expected


@pytest.mark.parametrize("condition", ["free > 5", "free > 1 OR free < 0", "NOT free BETWEEN 1 AND 2", "free < s", "free <> 3", "-free < 3 AND free < 'a'"])  # fmt: skip
def test_other_conditions_do_not(condition: str) -> None:
    found = checked(parse_one(condition, dialect="duckdb"), COLUMNS)
    with pytest.raises(DPError, match="has no declared bounds"):
        bounds(parse_one('"free"', dialect="duckdb"), DECLARED, [found])


def test_conditions_narrow_declared_bounds() -> None:
    found = limits([parse_one('"n" > 0 AND "n" <= 100', dialect="duckdb")])
    assert found == {"n": (0, 100)}
    assert bounds(parse_one('"n"', dialect="duckdb"), DECLARED, [parse_one('"n" > 0', dialect="duckdb")]) == (0, 4)


@pytest.mark.parametrize(
    "text",
    [
        "random()", "now()", "current_date", "getenv('HOME')", "read_text('x')", "(SELECT 1)", "EXISTS (SELECT 1)", "n IN (SELECT 1)",
        "count(*)", "sum(n)", "row_number() OVER ()", "[n][1]", "{'a': n}", "list_sum([n])", "n::INTEGER[]", "x -> 1", "$1", "?",
        "current_setting('threads')", "nextval('s')", "COLUMNS('n')", "s COLLATE nocase", "date_trunc(s, s)",
        "CAST(n AS mood)", "uuid()", "repeat(s, 1000000000)", "nothing", "*",
    ],
)  # fmt: skip
def test_what_is_no_expression_of_a_row_is_refused(text: str) -> None:
    with pytest.raises(DPError):
        checked(parse_one(text, dialect="duckdb"), COLUMNS)


def test_long_expressions_are_read_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of each part, with all that is in it, would take quadratic time."""
    copied = []
    copy = exp.Expr.copy
    monkeypatch.setattr(exp.Expr, "copy", lambda node: copied.append(sum(1 for _ in node.walk())) or copy(node))
    text = 'CAST("n" AS DOUBLE)' + ' + ABS("n") * 2' * 150
    assert checked(parse_one(text, dialect="duckdb"), COLUMNS).sql("duckdb") == text
    assert sum(copied) < 1000
