"""Named windows, SELECT sum(x) OVER w ... WINDOW w AS (...), written out where they are used: both are the same question."""

from collections.abc import Mapping

from sqlglot import exp

from duckdb_dp.errors import DPError, identifier

MOST = 100_000
"""Most parts that all windows of a SELECT have together where they are written out, as a long one may be used often."""

_PARTS = ("partition_by", "order", "spec")


def written_out(statement: exp.Expr) -> None:
    """Put the definition of each named window in the place of its name, in place.

    DuckDB has parsed the statement: it refuses names that there are not, or twice, and what would say a part of a window twice. A name is
    known in the SELECT of its WINDOW alone.

    Raises:
        DPError: the statement would be too long.
    """
    for select in [one for one in statement.find_all(exp.Select) if one.args.get("windows")]:
        known: dict[str, exp.Window] = {}
        for window in select.args["windows"]:
            _complete(window, known)
            known[window.name.lower()] = window
        used = [one for one in select.find_all(exp.Window) if one.args.get("alias") is not None]
        own = [one for one in used if one.parent_select is select and _name(one) in known]
        sizes = {name: sum(1 for _ in window.walk()) for name, window in known.items()}
        if sum(sizes[_name(one)] for one in own) > MOST:
            raise DPError(
                f"WINDOW {identifier(next(iter(known)))}: its windows have more than {MOST:,} parts where each is written out; use them in "
                "fewer places."
            )
        for one in own:
            _complete(one, known)
        select.set("windows", None)


def _name(window: exp.Window) -> str:
    return str(window.args["alias"].name).lower()


def _complete(window: exp.Window, known: Mapping[str, exp.Window]) -> None:
    """Give a window the parts of the one that it names."""
    if window.args.get("alias") is None or (base := known.get(_name(window))) is None:
        return
    for word in _PARTS:
        given = base.args.get(word)
        if given and not window.args.get(word):
            window.set(word, [one.copy() for one in given] if isinstance(given, list) else given.copy())
    window.set("alias", None)
