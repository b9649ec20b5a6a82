"""Splits text into statements and finds their dp_ calls, by quotes, comments and parentheses only.

DuckDB's own parser takes whole texts only: a statement that is still being typed, or a mistake in the third one, would hide
where the first two end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      --[^\n]*                         (?# a comment to the end of its line)
    | /\*.*?(?:\*/|\Z)                 (?# a comment, perhaps unfinished)
    | [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)  (?# text with escapes)
    | '(?:[^']|'')*(?:'|\Z)            (?# text)
    | "(?:[^"]|"")*(?:"|\Z)            (?# a quoted name)
    | \$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
    | \w+                              (?# a word or a number)
    | \s+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)

_OPENING = re.compile(r"/\*|[eE]?'|\"|\$\w*\$")
_CLOSED = re.compile(
    r"""/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$""", re.DOTALL
)

EXPLAINED = ("dp_marginals", "dp_queries", "dp_quantiles", "dp_sql", "dp_explain")
"""Functions whose cost can be told before they are run."""

_READ = ("release", "fresh", "bounds", "postprocess", "reconstruct", "columns")
"""Arguments that change neither the cost nor the noise."""

_OTHERS = {
    **dict.fromkeys(
        ("synthesize", "synthesize_database", "links", "quality"), "how good it comes out depends on the data"
    ),
    "discover": "which values are found depends on the data; FROM dp_explain(table, {'discover': column}, ...) shows the threshold",
    "max_rows": "its errors depend on the data; FROM dp_explain(table, {'max_rows': [1, 3, 10]}, ...) shows what is known before",
    "running": "the largest error is what precision := 50 would ask for",
}
"""Other functions with a budget, and what is known of their errors."""


_THIRD = {2: "quantiles", 3: "by"}
"""Arguments of dp_quantiles that may be written without their names, by place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in a statement: the function, and its arguments as they were written."""

    function: str
    arguments: tuple[str, ...]

    def explained(self) -> str:
        """SQL of dp_explain for it."""
        named = [
            argument for argument in self.arguments if not re.match(rf"\s*({'|'.join(_READ)})\s*(:=|=>)", argument)
        ]
        places = [place for place, argument in enumerate(named) if not re.match(r"\s*\w+\s*(:=|=>)", argument)]
        if self.function == "dp_quantiles":  # whose third place is another one there
            named = [
                f"{_THIRD[place]} := {one}" if place in places and place in _THIRD else one
                for place, one in enumerate(named)
            ]
        # SELECTs name their own table.
        return f"FROM dp_explain({', '.join(['NULL'] * (self.function == 'dp_sql') + named)})"


def tokens(text: str) -> Iterator[str]:
    """The text in pieces: comments, texts, names, words, and single characters."""
    return (found[0] for found in _TOKEN.finditer(text))


def split(text: str) -> tuple[list[str], str]:
    """(statements, without their ';', and what follows the last ';').

    What follows is empty where it is only space and comments that are complete.
    """
    found: list[str] = []
    pieces: list[str] = []
    for token in tokens(text):
        if token == ";":
            found.append("".join(pieces).strip())
            pieces = []
        else:
            pieces.append(token)
    rest = "".join(pieces)
    return [statement for statement in found if not is_blank(statement)], rest if not is_blank(rest) else ""


def is_blank(text: str) -> bool:
    """Whether there is nothing in a text but space and finished comments."""
    return all(
        token.isspace()
        or token.startswith("--")
        or (token.startswith("/*") and token.endswith("*/") and len(token) > 3)
        for token in tokens(text)
    )


def is_open(text: str) -> bool:
    """Whether a text ends inside quotes or a comment of several lines."""
    last = ["", *tokens(text)][-1]
    return _OPENING.match(last) is not None and _CLOSED.fullmatch(last) is None


def calls(statement: str) -> list[Call]:
    """The calls of ``EXPLAINED`` functions in a statement, in order."""
    found = []
    pieces = [token for token in tokens(statement) if not token.startswith(("--", "/*"))]
    words = [i for i, token in enumerate(pieces) if token.lower() in EXPLAINED]
    for place in words:
        following = next((i for i in range(place + 1, len(pieces)) if not pieces[i].isspace()), len(pieces))
        if following < len(pieces) and pieces[following] == "(":
            found.append(Call(function=pieces[place].lower(), arguments=_arguments(pieces[following + 1 :])))
    return found


def priced(statement: str) -> str | None:
    """What is known of the cost of a call of another function with a budget, the first of a statement; None without one."""
    for token in tokens(statement):
        name = token.lower().removeprefix("dp_")
        if token.lower().startswith("dp_") and name in _OTHERS:
            steps = " plan := true shows its steps." if name == "synthesize_database" else ""
            return f"{token.lower()} costs the budget that it names, and {_OTHERS[name]}.{steps}"
    return None


def _arguments(pieces: list[str]) -> tuple[str, ...]:
    """The arguments up to the closing parenthesis, split at the commas between them."""
    depth = 0
    found = [""]
    for token in pieces:
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if depth < 0:
            break
        if token == "," and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return tuple(argument.strip() for argument in found if argument.strip())
