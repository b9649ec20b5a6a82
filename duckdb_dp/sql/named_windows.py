"""Named windows, SELECT sum(x) OVER w ... WINDOW w AS (...), written out where they are used: both are the same question."""

from collections.abc import Mapping

from sqlglot import exp

from duckdb_dp.errors import DPError, identifier

MOST = 100_000
"""Most parts that are copied to write out all windows of a statement, as a long one may be used often."""

_PARTS = ("partition_by", "order", "spec")


def written_out(statement: exp.Expr) -> None:
    """Put the definition of each named window in the place of its name, in place.

    DuckDB has parsed the statement: it refuses names that there are not, or twice, and what would say a part of a window twice. A name is
    known in the SELECT of its WINDOW alone.

    Raises:
        DPError: the statement would be too long.
    """
    left = MOST
    for select in [one for one in statement.find_all(exp.Select) if one.args.get("windows")]:
        known: dict[str, exp.Window] = {}
        for window in select.args["windows"]:
            left -= _complete(window, known, left)
            known[window.name.lower()] = window
        used = [one for one in select.find_all(exp.Window) if one.args.get("alias") is not None]
        for one in used:
            if one.parent_select is select:
                left -= _complete(one, known, left)
        select.set("windows", None)


def _name(window: exp.Window) -> str:
    return str(window.args["alias"].name).lower()


def _complete(window: exp.Window, known: Mapping[str, exp.Window], most: int) -> int:
    """Give a window the parts of the one that it names: how many parts were copied.

    Raises:
        DPError: they would be more than the most, which is found before they are copied.
    """
    if window.args.get("alias") is None or (base := known.get(_name(window))) is None:
        return 0
    taken = {word: base.args[word] for word in _PARTS if base.args.get(word) and not window.args.get(word)}
    size = sum(
        1 for given in taken.values() for one in (given if isinstance(given, list) else [given]) for _ in one.walk()
    )
    if size > most:
        raise DPError(
            f"WINDOW {identifier(_name(window))}: named windows have more than {MOST:,} parts where each is written out; use them in fewer "
            "places."
        )
    for word, given in taken.items():
        window.set(word, [one.copy() for one in given] if isinstance(given, list) else given.copy())
    window.set("alias", None)
    return size
