"""Types of the expressions of a SELECT: of many columns they are asked about together, as each has all columns beside it."""

import pytest
from sqlglot import exp, parse_one

from duckdb_dp.domain.domain import declare
from duckdb_dp.errors import DPError
from duckdb_dp.sql import direct, typed

COLUMNS = {f"c{i}": "DOUBLE" if i % 2 else "INTEGER" for i in range(40)} | {"text": "VARCHAR"}
DECLARED = {name: declare(name=name, type=type_, bins=[0, 5, 9]) for name, type_ in COLUMNS.items() if name != "text"}


def parts(asked: list[str]) -> list[str]:
    select = parse_one(f"SELECT {', '.join(asked)} FROM t", dialect="duckdb")
    assert isinstance(select, exp.Select)
    (found,) = direct.parts(select, 1, COLUMNS, [], DECLARED, pure=False)
    return [output.name for output in found.outputs if output.numeric]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "_KNOWN", {})


def test_many_expressions_are_asked_about_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    learn = typed._learn
    monkeypatch.setattr(typed, "_learn", lambda con, texts, table: asked.append(texts) or learn(con, texts, table))
    names = parts([f"sum(c{i}) AS s{i}" for i in range(40)])
    assert names == [f"s{i}" for i in range(40)]
    assert len(asked) < 4
    assert sum(map(len, asked)) >= 80


def test_the_one_that_fails_is_named() -> None:
    asked = [f"sum(c{i}) AS s{i}" for i in range(40)]
    with pytest.raises(DPError, match="abs"):
        parts([*asked, "sum(abs(text)) AS other"])
