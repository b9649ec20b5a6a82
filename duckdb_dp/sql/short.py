"""columns := 'short': one interval column for each answer, instead of a standard deviation and two ends."""

from collections.abc import Sequence

from duckdb_dp.counting.encode import quote
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.sql.arguments import Arguments, word
from duckdb_dp.sql.session import Session

NOTHING = "handle AS (SELECT NULL::VARCHAR AS handle)"
"""A handle to describe the answers by, which reads no table."""

ERRORS = ("stddev", "ci_low", "ci_high")


def is_short(arguments: Arguments) -> bool:
    """Whether a call asks for short columns.

    Raises:
        DPError: it asks for something else.
    """
    asked = word(arguments, "columns", "all")
    if asked not in ("all", "short"):
        raise DPError(
            f"columns is {as_sql(asked)}; write columns := 'short' for one interval column an answer, or leave it out."
        )
    return asked == "short"


def shortened(session: Session, answers: str, described: str) -> str:
    """SELECT of the answers, each followed by its 95 % interval as {'low', 'high'}; the numbers are the same.

    Args:
        session: of the call.
        answers: the SELECT of all columns.
        described: the same with the handle ``NOTHING``, so that its columns are known without the private table.

    Raises:
        DPError: an answer's interval would be called like another column.

    Privacy: post-processing. What is described is not run.
    """
    with session.looking() as cursor:
        if cursor is None:
            raise DPError("columns := 'short' needs the connection that was loaded, which is closed; leave it out.")
        names = [name for name, *_ in cursor.execute(f"DESCRIBE {described}").fetchall()]
    return in_pairs(answers, names)


def in_pairs(answers: str, names: Sequence[str]) -> str:
    """The same of answers whose columns are known.

    Raises:
        DPError: an answer's interval would be called like another column.
    """
    kept: list[str] = []
    for name in names:
        prefix = next((name.removesuffix(error) for error in ERRORS if name.endswith(error)), None)
        noisy = prefix is not None and (not prefix or prefix.endswith("_"))
        if not noisy or not {f"{prefix}{error}" for error in ERRORS} <= set(names):
            kept.append(quote(name))
        elif name == f"{prefix}ci_low":
            low, high = quote(name), quote(f"{prefix}ci_high")
            if f"{prefix}ci" in names:
                raise DPError(f"columns := 'short' has two columns {as_sql(f'{prefix}ci')}; give yours another alias.")
            kept.append(
                f"CASE WHEN {low} IS NOT NULL OR {high} IS NOT NULL THEN {{'low': {low}, 'high': {high}}} END AS {quote(f'{prefix}ci')}"
            )
    return f"SELECT {', '.join(kept)} FROM ({answers})"
