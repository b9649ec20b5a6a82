"""The result of statements that work on answers: its columns, with their errors, and the rows of several statements together."""

from collections.abc import Collection, Sequence

from sqlglot import exp

from duckdb_dp.counting.encode import quote
from duckdb_dp.errors import DPError, identifier
from duckdb_dp.sql.above.error_columns import Errors
from duckdb_dp.sql.above.kinds import group_keys


def check_grouped(body: exp.Query, noisy: Collection[str]) -> None:
    """Refuse GROUP BY of noisy answers alone, as in a histogram of counts: no two of them are alike.

    Args:
        body: a statement that works on answers.
        noisy: names of columns that hold nothing but answers.

    Raises:
        DPError: there is one.
    """
    for select in body.find_all(exp.Select):
        keys = group_keys(select)
        if keys and all(isinstance(key, exp.Column) and key.name.lower() in noisy for key in keys):
            name = identifier(keys[0].name)
            raise DPError(
                f"GROUP BY {name}: {name} is a noisy answer with digits of its own, so each would be a group by itself; GROUP BY "
                f"round({name}), or CASE WHEN {name} >= 10 THEN 'many' ELSE 'few' END."
            )


def shown_alone(body: exp.Query, errors: Errors, public: Collection[str]) -> str:
    """SQL of one statement with its columns, each followed by its errors; those of the only answer have no prefix and come last.

    What is worked out of answers without an error that is known, as a share of a window's sum, is an answer too: an error without a
    prefix beside it could be taken for its own.

    Args:
        body: the statement.
        errors: of its columns.
        public: names of columns that hold no answer.
    """
    return str(_arranged(body, errors, public).sql("duckdb"))


def together(
    bodies: Sequence[exp.Query], errors: Sequence[Errors], labels: Collection[str], public: Collection[str]
) -> str:
    """SQL of the rows of several statements, one after another, each with the number of its own in ``query``.

    Columns of one name are one column. Where each statement has one answer, all are in one column, and the errors have no prefix.

    Args:
        bodies: the statements.
        errors: of their columns.
        labels: names of columns that come first.
        public: names of columns that hold no answer.

    Raises:
        DPError: a column has the name of the number.
    """
    names = [[item.alias_or_name for item in _selects(body)[0].expressions] for body in bodies]
    if any(name in ("", "*") for of in names for name in of):  # a star that is not known here
        selects = [f"SELECT {number} AS query, * FROM _dp_rows{number}" for number in range(1, len(bodies) + 1)]
        return _united(bodies, selects, "* EXCLUDE (_dp_place)")
    noisy = {
        name.lower(): name for of, found in zip(names, errors, strict=True) for name in of if name.lower() in found
    }
    alone = all(_is_only(body, found, public) for body, found in zip(bodies, errors, strict=True))
    one = next(iter(noisy.values())) if len(noisy) == 1 else "answer"
    columns = {name.lower(): name for of in names for name in of if name.lower() in labels}
    selects = []
    for number, (of, found) in enumerate(zip(names, errors, strict=True), 1):
        added = {column.lower() for each in found.values() for column in each.values()}
        shown = [f"{number} AS query", "_dp_place"]
        for name in [name for name in of if name.lower() not in added]:
            as_ = one if alone and name.lower() in found else name
            as_ = columns.setdefault(as_.lower(), as_)
            shown.append(f"{quote(name)} AS {quote(as_)}")
            for error, column in found.get(name.lower(), {}).items():
                own = error if alone else f"{as_}_{error}"
                shown.append(f"{quote(column)} AS {quote(columns.setdefault(own.lower(), own))}")
        selects.append(f"SELECT {', '.join(shown)} FROM _dp_rows{number}")
    if "query" in columns:
        raise DPError("'query' is the number of the SELECT in the list; give the column of that name another alias.")
    return _united(bodies, selects, ", ".join(["query", *map(quote, columns.values())]))


def _united(bodies: Sequence[exp.Query], selects: Sequence[str], listed: str) -> str:
    rows = [
        f"_dp_rows{number} AS MATERIALIZED (SELECT *, row_number() OVER () AS _dp_place FROM ({body.sql('duckdb')}))"
        for number, body in enumerate(bodies, 1)
    ]
    united = " UNION ALL BY NAME ".join(selects)
    return f"WITH {', '.join(rows)} SELECT {listed} FROM ({united}) ORDER BY query, _dp_place"


def _is_only(body: exp.Query, errors: Errors, public: Collection[str]) -> bool:
    """Whether one column has errors, and no other one has an answer in it."""
    if len(errors) != 1:
        return False
    names = [item.alias_or_name.lower() for item in _selects(body)[0].expressions]
    noisy = {*errors, *(column.lower() for each in errors.values() for column in each.values())}
    others = (
        item
        for select in _selects(body)
        for name, item in zip(names, select.expressions, strict=False)
        if name not in noisy
    )
    return all(column.name.lower() in public for item in others for column in item.find_all(exp.Column))


def _arranged(body: exp.Query, errors: Errors, public: Collection[str]) -> exp.Query:
    if not errors:
        return body
    selects = _selects(body)
    first = [item.alias_or_name for item in selects[0].expressions]
    names = [name.lower() for name in first]
    added = {column.lower() for each in errors.values() for column in each.values()}
    own = [name for name in names if name not in added]
    single = _is_only(body, errors, public) and not {"stddev", "ci_low", "ci_high", "clipped_at"} & set(own)
    if single:
        renamed = {column.lower(): error for error, column in next(iter(errors.values())).items()}
        for item in [item for select in selects for item in select.expressions]:
            if (error := renamed.get(item.alias.lower())) is not None:
                item.set("alias", exp.to_identifier(error, quoted=True))
        return body
    if any(node.args.get("by_name") for node in body.find_all(exp.SetOperation)):
        return body
    order: list[int] = []
    for name in own:
        order.append(names.index(name))
        order += [names.index(column.lower()) for column in errors.get(name, {}).values()]
    for select in selects:
        items = list(select.expressions)
        select.set("expressions", [items[place] for place in order])
    sorted_by = body.args.get("order")
    for item in [] if sorted_by is None else sorted_by.expressions:
        place = item.this if isinstance(item, exp.Ordered) else item
        if isinstance(place, exp.Literal) and place.is_int and 1 <= int(place.this) <= len(own):
            place.replace(exp.Literal.number(order.index(int(place.this) - 1) + 1))
    return body


def _selects(query: exp.Expr) -> list[exp.Select]:
    """The SELECTs whose columns a statement shows, the first one first."""
    if isinstance(query, exp.SetOperation):
        return [*_selects(query.this), *_selects(query.expression)]
    return _selects(query.this) if isinstance(query, exp.Subquery) else [query] if isinstance(query, exp.Select) else []
