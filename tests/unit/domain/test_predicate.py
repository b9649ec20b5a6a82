"""Conditions on cells against DuckDB itself, asked of rows of every cell."""

import itertools
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.predicate import attributes_of, cells_where, parse_condition
from duckdb_dp.errors import DPError

MOOD = "ENUM('sad', 'ok', 'happy')"


def attribute(name: str, type_: str, kind: Any, points: list, **more: bool) -> Attribute:
    return Attribute(name=name, type=type_, kind=kind, points=tuple(points), **more)


ATTRIBUTES = {
    a.name: a
    for a in [
        attribute("n", "INTEGER", "integers", [-1, 3], nulls=True),
        attribute("m", "INTEGER", "integers", [0, 3]),
        attribute("v", "INTEGER", "values", [3, 1, 7], nulls=True),
        attribute("w", "INTEGER", "values", [3, 1, 7], other=True),
        attribute("k", "INTEGER", "integers", [2, 4], other=True, nulls=True),
        attribute("b", "INTEGER", "bins", [0, 3, 6, 10]),
        attribute("bo", "INTEGER", "bins", [0, 3, 6], other=True, nulls=True),
        attribute("r", "DOUBLE", "bins", [0, 1.5, 3], nulls=True),
        attribute("f", "FLOAT", "values", [0.1, 0.5]),
        attribute("c", "DECIMAL(4,1)", "bins", [0, 1.5, 3]),
        attribute("t", "VARCHAR", "values", ["a", "Ab", "b_c", "%x", ""], nulls=True),
        attribute("o", "VARCHAR", "values", ["x", "y"], other=True),
        attribute("p", "VARCHAR", "values", ["x", "y"], other=True, nulls=True),
        attribute("e", MOOD, "values", ["sad", "ok", "happy"], nulls=True),
        attribute("d", "DATE", "bins", ["2020-01-01", "2020-07-01", "2021-01-01"]),
        attribute("s", "TIMESTAMP", "values", ["2020-01-01", "2020-01-01 12:00:00"], nulls=True),
        attribute("q", "BOOLEAN", "values", [False, True], nulls=True),
        attribute(
            "u", "UUID", "values", ["00000000-0000-0000-0000-0000000000ab", "10000000-0000-0000-0000-000000000000"]
        ),
    ]
}
ROWS: dict[str, list[list[str]]] = {  # SQL values in each cell
    "n": [["-1"], ["0"], ["1"], ["2"], ["3"], ["NULL"]],
    "m": [["0"], ["1"], ["2"], ["3"]],
    "v": [["3"], ["1"], ["7"], ["NULL"]],
    "w": [["3"], ["1"], ["7"], ["0", "2", "100", "NULL"]],
    "k": [["2"], ["3"], ["4"], ["1", "5"], ["NULL"]],
    "b": [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8", "9", "10"]],
    "bo": [["0", "1", "2"], ["3", "4", "5", "6"], ["-1", "7"], ["NULL"]],
    "r": [["0", "0.7", "1.4999"], ["1.5", "2", "3"], ["NULL"]],
    "f": [["0.1"], ["0.5"]],
    "c": [["0", "0.7", "1.4"], ["1.5", "2", "3"]],
    "t": [["'a'"], ["'Ab'"], ["'b_c'"], ["'%x'"], ["''"], ["NULL"]],
    "o": [["'x'"], ["'y'"], ["'z'", "''", "'xx'", "NULL"]],
    "p": [["'x'"], ["'y'"], ["'z'", "''", "'other'"], ["NULL"]],
    "e": [["'sad'"], ["'ok'"], ["'happy'"], ["NULL"]],
    "d": [["'2020-01-01'", "'2020-06-30'"], ["'2020-07-01'", "'2021-01-01'"]],
    "s": [["'2020-01-01 00:00:00'"], ["'2020-01-01 12:00:00'"], ["NULL"]],
    "q": [["false"], ["true"], ["NULL"]],
    "u": [["'00000000-0000-0000-0000-0000000000ab'"], ["'10000000-0000-0000-0000-000000000000'"]],
}
CONSTANTS = {
    **{
        key: ["-2", "-1", "0", "1", "2", "3", "4", "6", "7", "11", "1.5", "5.5", "3.0"]
        for key in ["n", "m", "v", "w", "k", "b", "bo"]
    },
    **{key: ["-1", "0", "1.5", "3", "3.5", "0.7"] for key in ["r", "c"]},
    "f": ["0.1", "0.5", "0.3", "1"],
    "t": ["'a'", "'Ab'", "'AB'", "''", "'b'", "'%x'"],
    **{key: ["'x'", "'y'", "'z'", "'other'"] for key in ["o", "p"]},
    "e": ["'sad'", "'ok'", "'happy'"],
    "d": ["'2020-01-01'", "DATE '2020-07-01'", "'2020-07-01'", "'2021-01-01'", "'2021-01-02'", "'2020-03-01'"],
    "s": ["'2020-01-01'", "TIMESTAMP '2020-01-01 12:00:00'", "'2020-01-01 06:00:00'", "DATE '2020-01-02'"],
    "q": ["true", "false"],
    "u": ["'00000000-0000-0000-0000-0000000000AB'", "'10000000-0000-0000-0000-000000000000'"],
}
COMPARISONS = ["=", "<>", "!=", "<", "<=", ">", ">="]

CONNECTION = duckdb.connect()


def shared(values: list[bool]) -> bool | None:
    """What all values say, None where they differ."""
    return values[0] if len(set(values)) == 1 else None


def asked_of_duckdb(condition: str, attributes: list[Attribute]) -> list[bool | None]:
    """Whether DuckDB keeps the rows of each cell; None where some rows of the cell are kept and some are not."""
    cells = list(itertools.product(*(ROWS[a.name] for a in attributes)))
    rows = [(i, *values) for i, cell in enumerate(cells) for values in itertools.product(*cell)]
    table = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
    columns = ", ".join(f'CAST(c{i} AS {a.type}) AS "{a.name}"' for i, a in enumerate(attributes))
    names = ", ".join(f"c{i}" for i in range(len(attributes)))
    select = f"SELECT cell, {columns} FROM (VALUES {table}) v(cell, {names})"
    found = CONNECTION.execute(f"SELECT cell, coalesce({condition}\n, false) FROM ({select}) ORDER BY cell").fetchall()
    grouped = itertools.groupby(found, key=lambda row: row[0])
    return [shared([kept for _, kept in group]) for _, group in grouped]


def mask(condition: str) -> tuple[list[Attribute], np.ndarray]:
    parsed = parse_condition(condition)
    attributes = attributes_of(parsed, ATTRIBUTES)
    found = cells_where(parsed, attributes)
    assert found.shape == tuple(a.size for a in attributes)
    return attributes, found


def agrees(condition: str) -> bool:
    """Whether a condition is decided, and then as DuckDB decides; where it is refused, the error is one line."""
    try:
        attributes, found = mask(condition)
    except DPError as error:
        assert "\n" not in str(error)
        return False
    assert found.ravel().tolist() == asked_of_duckdb(condition, attributes), condition
    return True


def atoms(name: str) -> list[str]:
    constants = CONSTANTS[name]
    found = [f"{name} {sign} {constant}" for sign in COMPARISONS for constant in constants]
    found += [f"{constant} {sign} {name}" for sign in COMPARISONS for constant in constants]
    found += [f"{name} BETWEEN {a} AND {b}" for a in constants for b in constants]
    found += [f"{name} IN ({a}, {b})" for a in constants for b in constants]
    return [*found, f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} NOT IN ({', '.join(constants)})"]


@pytest.mark.slow
@pytest.mark.some(3)
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_comparison(name: str) -> None:
    """One error in a hundred would show; a comparison is refused only where a cell's values may differ in it."""
    for condition in atoms(name):
        if agrees(condition) or "NOT IN" in condition or "BETWEEN" in condition or " IN (" in condition:
            continue
        a = ATTRIBUTES[name]
        open_ended = a.other or (a.kind == "bins" and ("=" in condition or "<>" in condition))
        assert open_ended or None in asked_of_duckdb(condition, [a]), condition


PATTERNS = ["a", "A%", "%b%", "_", "%", "", "b\\_c", "b__", "[a]", "a.", "\\%x", "%X"]


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE"])
@pytest.mark.parametrize("name", ["t", "e"])
def test_patterns(operator: str, name: str) -> None:
    assert all(agrees(f"{name} {operator} '{pattern}'") for pattern in PATTERNS)


DECIDED = [
    "n + v <= 5", "abs(n - m) <= 1", "n - m = 0", "2 * n > v", "-n < 1", "n < m", "m >= v", "n * m = 2", "f > 0.3",
    "abs(n) = 1", "(n + 1) * 2 <= m + 3", "n + m + v > 6", "NOT (n + v <= 5)", "n BETWEEN m AND v", "n IN (m, 2)",
    "q", "NOT q", "q IS TRUE", "q IS NOT TRUE", "q IS FALSE", "q AND n = 1", "NOT (q OR n = 1)", "NOT (q AND n = 1)",
    "n = 1 OR TRUE", "n = 1 AND FALSE", "((n)) = (1)", "NOT NOT n = 1", "n IS NULL OR NOT t = 'a'", "t = 'a' OR v = 3",
    "NOT (b < 3 AND n = 1)", "b < 3 OR b >= 6", "(r < 1.5 OR n > 1) AND NOT q", "w = 3", "w IN (3, 7)", "k = 3", "k = 2",
    "o = 'x'", "o IN ('x', 'y')", "p = 'x'", "NOT p = 'x'", "p IS NULL", "p IS NOT NULL", "p NOT IN ('x')", "N = 1",
    '"n" = 1', "x.n = 1", "d >= DATE '2020-07-01'", "d < '2020-07-01'", "s = '2020-01-01'", "t NOT LIKE 'A%'", "k IN (2, 4)",
]  # fmt: skip


@pytest.mark.parametrize("condition", DECIDED)
def test_decided(condition: str) -> None:
    assert agrees(condition.replace("x.n", "n"))
    mask(condition)


EITHER = [
    "n = 2.7::INTEGER", "n = CAST('2' AS INTEGER)", "n = '2'", "d < '2020-07-01 10:00:00'::DATE", "d < '2020-07-01 10:00:00'", "b < 2.6::INTEGER",
    "n IN (1, NULL)", "n = NULL", "NULL", "n IS DISTINCT FROM 1", "t SIMILAR TO 'a'",
    "t LIKE 'b$_c' ESCAPE '$'", "lower(t) = 'ab'", "t || 'x' = 'ax'", "n / 2 = 1", "n // 2 = 1", "n % 2 = 1", "n", "n::BOOLEAN",
    "t COLLATE NOCASE = 'AB'", "CASE WHEN n = 1 THEN true ELSE false END", "coalesce(n, 1) = 1", "n IN (SELECT 1)",
    "EXISTS (SELECT 1)", "n > ALL (SELECT 0)", "n = 0x1", "n = 1e0", "n = .5", "n < 1_0", "xor(n, 1) = 0", "t GLOB 'a*'",
    "t ^@ 'a'", "regexp_matches(t, 'a')", "t NOT SIMILAR TO 'a'", "n & 1 = 1", "(n, m) = (1, 1)", "(n = 1) = true", "(n = 1) IS TRUE",
    "(o = 'x') IS FALSE", "(o = 'x') IS NOT TRUE", "n = m = q", "q = (n = 1)", "q IS NOT FALSE", "NOT q IS NULL", "n IS UNKNOWN", "q IS UNKNOWN",
    "t = E'a'", "t = $$a$$", "s = '2020-01-01'::DATE", "d = TIMESTAMP '2020-07-01 10:00:00'", "d <= TIMESTAMP '2020-07-01 10:00:00'",
    "e > 'medium'", "e < 'ok'", "'a' = t", "t LIKE t", "t IN ('a', 'b', t)", "n NOT BETWEEN 1 AND 2", "n IN (1, 2) IS TRUE", "~n = -2",
    "abs(n) < 2 AND abs(b) < 3", "n ** 2 = 4", "n ^ 2 = 4", "v < 3 IS NULL", "n != ALL([1, 2])", "n = ANY([1, 2])", "list_contains([1], n)",
    "u = '00000000-0000-0000-0000-0000000000AB'", "f = 0.1::DOUBLE", "f + 0 = 0.1", "t = 'a' COLLATE NOCASE", "n = true",
    "q = 1", "q > 0", "t > 1", "-(n) = 1", "- -n = 1", "+n = 1", "n = -(-1)", "NOT n", "n ISNULL", "n NOTNULL", "n IN 1", "t ILIKE 'AB'",
    "n = 99999999999999999999", "n < 1e400", "o = 'other'", "p = 'other'", "NOT (n = 1 AND o = 'x')", "random() < 2", "n = random()",
    "n BETWEEN 3 AND 1", "b BETWEEN 0 AND 2", "b BETWEEN 0 AND 2.5", "r BETWEEN 0 AND 3", "c < 1.45", "b = 1", "b <> 20", "n = 1; DROP TABLE x",
    "n = 1 -- AND", "n = 1 /* x */", "n = 1 GROUP BY n", "count(*) > 1", "sum(n) OVER () > 1", "n = (SELECT 1)", "n = ?", "n = $1", "*", "",
]  # fmt: skip


@pytest.mark.some(18)
@pytest.mark.parametrize("condition", EITHER)
def test_decided_as_duckdb_does_or_refused_in_one_line(condition: str) -> None:
    agrees(condition)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from(["n", "m", "v", "b", "t", "q", "p", "r", "d"]))
        return draw(st.sampled_from(some_atoms(name)))
    left = draw(conditions(depth - 1))
    word = draw(st.sampled_from(["AND", "OR", "NOT"]))
    return f"NOT ({left})" if word == "NOT" else f"({left} {word} {draw(conditions(depth - 1))})"


def decidable(condition: str) -> bool:
    try:
        mask(condition)
    except DPError:
        return False
    return True


@cache
def some_atoms(name: str) -> list[str]:
    return [c for c in atoms(name) if decidable(c)][::3]


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None)
@given(condition=conditions())
def test_any_combination(condition: str) -> None:
    if len(attributes_of(parse_condition(condition), ATTRIBUTES)) <= 4:
        assert agrees(condition)


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("b < 4", "b < 4 cuts through the bin [3, 6) of 'b'; what is known of it are its bin edges: 0, 3, 6, 10."),
        ("b <= 3", "b <= 3 cuts through the bin [3, 6) of 'b'"),
        ("r <= 1.5", "r <= 1.5 cuts through the bin [1.5, 3] of 'r'"),
        ("d < '2020-03-01'", "cuts through the bin [2020-01-01, 2020-07-01) of 'd'; what is known of it are its bin edges: 2020-01-01, 2020-07-01, 2021-01-01."),
        ("b IN (1, 2)", "cuts through the bin [0, 3)"),
        ("b + n <= 3", "'b' has no single number per cell; declare it by low and high with step 1"),
        ("bo < 3", "it is not known for the values in the 'other' cell of 'bo'"),
        ("p < 'y'", "it is not known for the values in the 'other' cell of 'p'; use = or IN with declared values"),
        ("p = 'z'", "it is not known for the values in the 'other' cell of 'p'"),
        ("o IS NULL", "NULL shares the 'other' cell of 'o'; declare it with nulls := true"),
        ("NOT o = 'x'", "NULL and other values share a cell of 'o', and NOT tells them apart; declare it with nulls := true"),
        ("o NOT IN ('x')", "NOT tells them apart"),
        ("NOT (n = 1 AND o = 'x')", "NOT tells them apart"),
        ("n LIKE '1'", "'n' is no text; compare it with =, <, BETWEEN or IN"),
        ("t = 1", "1 does not fit 't', a column of type VARCHAR"),
        ("n = 'a'", "'a' does not fit 'n', a column of type INTEGER"),
        ("d = 'soon'", "'soon' does not fit 'd', a column of type DATE"),
        ("zip = 1", "'zip' has no declared domain (declared so far: n, m"),
        ("lower(t) = 'a'", "cannot be answered from the declared domain; conditions are AND, OR, NOT over"),
        ("n = = 1", "the condition 'n = = 1' does not parse"),
        ("n = 1 AND", "does not parse"),
        ("n BETWEEN SYMMETRIC 3 AND 1", "cannot be answered from the declared domain"),
        ("u < '1'", "'1' does not fit 'u', a column of type UUID"),
        ("random() < 0.5", "cannot be answered from the declared domain"),
    ],
)  # fmt: skip
def test_errors_say_what_would_work(condition: str, says: str) -> None:
    with pytest.raises(DPError) as caught:
        mask(condition)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
