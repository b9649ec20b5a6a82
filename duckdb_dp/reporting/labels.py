"""What a release answers, in one line that tells it from others: its table, what was asked, and of which rows."""

import re
from functools import lru_cache
from typing import Any

from duckdb_dp.errors import DPError, brief
from duckdb_dp.reporting.asked import by, conditions, title
from duckdb_dp.request import Question, Request

SUMMED = 200
"""Characters of what was asked, in a list of releases."""

WHOLE = 4_000
"""Characters of what one release was asked."""

PLAIN = r'"([a-z_][a-z0-9_]*)"'
"""A name that needs no quotes where one reads it."""

_SOLVED = ("delta", "type", "sizes")
"""Options of a request that nobody has typed."""


@lru_cache(maxsize=2_000)
def summary(text: str, most: int = SUMMED) -> str:
    """What a request asked, from its JSON: 'visits: count(*) by sex where age < 30'; '' of one that this version does not know."""
    try:
        request = Request.from_json(text)
        found = [_summed(request, number) for number in range(len(request.direct))]
        for index, question in enumerate(request.questions):
            found.append(title(request, index) if question.select is None else _selected(request, question))
        if request.synthetic:
            found.append(_synthetic(request))
    except (DPError, KeyError, TypeError, ValueError):
        return ""
    of = "" if any(part.source for part in request.direct) else f"{request.table}: "
    return brief(of + re.sub(PLAIN, r"\1", "; ".join(dict.fromkeys(found))), most)


def _summed(request: Request, place: int) -> str:
    """The sums of a SELECT over the rows: 'count(*) by sex FROM visits, patients WHERE ...'."""
    part = request.direct[place]
    rows = "" if part.source is None else joined(part.source.sql)
    return " ".join(
        filter(None, [", ".join(map(str, part.sums)), by(part.clique), rows, conditions(request, part.number)])
    )


def _selected(request: Request, question: Question) -> str:
    """A count or a sum that a SELECT asked: 'count(*) by sex where age is [18, 25)'."""
    assert question.select is not None
    query = question.select.query
    groups = [name for name in question.clique if name not in question.select.summed]
    named = [name for group in question.select.groups for name in group.attributes] if question.joint else groups
    said = [f"{query.function}({query.attribute or '*'})", by(named), conditions(request, question.select.number)]
    return " ".join(filter(None, said))


def _synthetic(request: Request) -> str:
    """What was drawn, and how: 'dp_synthesize of age, sex'; 'dp_discover of diagnosis, find values'."""
    options = {name: value for name, value in request.options if name not in _SOLVED}
    names = options.pop("attribute", None) or ", ".join(one.name for one in request.attributes)
    said = [f"{name} {value}" for name, value in options.items() if isinstance(value, str | int | float) and value]
    return ", ".join([f"{request.function} of {names}" if names else request.function, *said])


def joined(sql: str) -> str:
    """From which rows a relation is made, as one reads it: without full names, and without what keeps it from raising."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(sql, dialect="duckdb")
    alone = sum(1 for table in tree.find_all(exp.Table) if table.alias) == 1
    for column, table in [(column, _table_of(column)) for column in tree.find_all(exp.Column)]:
        if table:
            column.replace(exp.column(column.name, None if alone else table))

    def plain(node: Any) -> Any:
        match node:
            case exp.Table():
                return exp.to_table(node.name)
            case exp.Try():
                return node.this.transform(plain)
            case exp.Anonymous() if node.name.lower() == "union_extract" and (guard := node.find(exp.If)) is not None:
                return guard.args["true"].transform(plain)
        return node

    tree = tree.transform(plain)
    if isinstance(tree, exp.Select):
        made = [each for each in tree.expressions if not isinstance(each.unalias(), exp.Column)]
        tree.set("expressions", made or [exp.Star()])
    text = tree.sql(dialect="duckdb").removeprefix("SELECT * ").replace(" CROSS JOIN ", ", ")
    return re.sub(r"^SELECT ", "of ", text)


def _table_of(column: Any) -> str:
    """The table whose column it is, by the alias in the SELECT that it stands in, or in one around it; '' of a subquery's."""
    select = column.parent_select
    while select is not None and column.table:
        items = [select.args.get("from_"), *(select.args.get("joins") or [])]
        for item in (one.this for one in items if one is not None):
            if item.alias == column.table:
                return str(item.name)
        select = select.parent_select
    return ""
