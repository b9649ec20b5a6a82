"""How long a statement's regular expressions may work on the text of one row.

A row that takes seconds by itself tells of itself to whoever has a clock, and a statement that a time limit stops is not even charged. So
patterns are written out, and their work for each character is bounded.
"""

import re

from sqlglot import exp

from duckdb_dp.errors import DPError, brief

MOST = 20_000
"""Steps for each character of a text that all regular expressions of a statement may take together, in all rows that it makes of one."""

AGAIN = 50
"""Times that what is replaced everywhere may read on, from each character, to where a repetition without an end might end."""

_EXPRESSIONS = (
    exp.RegexpLike,
    exp.RegexpILike,
    exp.RegexpFullMatch,
    exp.RegexpExtract,
    exp.RegexpReplace,
    exp.SimilarTo,
)

CLASS = 100
"""Steps of a class of characters with a name, such as \\p{L}: of more characters than a byte has."""

OPTIONS = frozenset("cgims")
"""Options of a regular expression: by case or not, everywhere, over several lines, and whether . takes the end of a line."""

_ENDLESS = re.compile(r"[*+]|\{\d+,\}")
"""Repetitions without an end."""

_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|.)|\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]])*\]|\{(\d*),?(\d*)\}|\(\?P?<\w*>|\(\?[^:)]*[:)]|.",
    re.DOTALL,
)


def check(statement: exp.Expr, rows: int = 1) -> None:
    """Refuse regular expressions that a row says, and those that work for too long.

    Args:
        statement: which has them.
        rows: how many rows its joins make of one.

    Raises:
        DPError: there is one.
    """
    work = 0
    for node in statement.find_all(*_EXPRESSIONS):
        if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: write the regular expression as a literal; what a row says may take any time."
            )
        for option in (node.args.get(word) for word in ("flag", "options", "parameters", "modifiers")):
            if option is not None and not (isinstance(option, exp.Literal) and set(option.name) <= OPTIONS):
                raise DPError(
                    f"{brief(node.sql('duckdb'))}: the options of a regular expression are a literal with the letters "
                    f"{', '.join(sorted(OPTIONS))}."
                )
        if "\\Q" in node.expression.name:
            raise DPError(
                f"{brief(node.sql('duckdb'))}: write what stands between \\Q and \\E with a \\ before each sign."
            )
        pattern = node.expression.name
        everywhere = isinstance(node, exp.RegexpReplace) and "g" in node.text("modifiers")
        work += steps(pattern) * (AGAIN if everywhere and _ENDLESS.search(pattern) else 1)
    if work * rows > MOST:
        times = f" in each of {rows:,} rows that the joins make of one" if rows > 1 else ""
        less = ", or join fewer rows" if rows > 1 else ""
        raise DPError(
            f"the regular expressions in {brief(statement.sql('duckdb'))} may take {work:,} steps for each character of a text{times}, and "
            f"at most {MOST:,} are taken; repeat less often in them, and write fewer{less}."
        )


def steps(pattern: str) -> int:
    """The size of a regular expression with its counted repetitions written out: the steps for each character, at most."""
    outer: list[int] = []
    whole = last = 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("("):
            outer.append(whole + last)
            whole = last = 0
        elif text == ")" and outer:
            whole, last = outer.pop(), whole + last + 1
        elif token[1] is not None and text.startswith("{"):
            last *= max([1, *(int(end) for end in token.groups() if end)])
        else:
            whole, last = whole + last, CLASS if text[:2] in ("\\p", "\\P") or "[:" in text or "\\p" in text else 1
    return whole + last + sum(outer)
