"""What DuckDB refuses before a function of ours is called, in our words and in one line."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|:=|=>|\S""")


def in_our_words(statement: str, error: str) -> str | None:
    """Why a call of ours was refused; None where DuckDB's own words are as good.

    Args:
        statement: the statement, or a text that holds it, such as a notebook's cell.
        error: DuckDB's message.
    """
    return _arguments(statement, error) or _compared(statement, error) or _mixed(statement, error)


def _arguments(statement: str, error: str) -> str | None:
    """An argument that a function does not have; DuckDB says that types might need a cast."""
    found = re.search(r"(dp_\w+)\W*\(.*Candidate macros:\s*\1\(([^\n]*)\)", error, re.DOTALL)
    if found is None:
        return None
    name, known = found[1], [each.split(":=")[0].strip(' "') for each in found[2].split(",")]
    has = f"its arguments are {', '.join(known)}" if any(known) else "it has none"
    unknown = [word for word in dict.fromkeys(_named(statement, name)) if word.lower() not in known]
    if not unknown:
        return f"{name} was given too many arguments; {has}."
    near = [each for word in unknown for each in get_close_matches(word.lower(), known, 1, 0.6)]
    meant = f"{' and '.join(near)} may be meant" if near else ""
    rest = has if len(near) < len(unknown) else ""
    return f"{name} has no argument {' and '.join(unknown)}; {'; '.join(filter(None, [meant, rest]))}."


def _named(statement: str, function: str) -> Iterator[str]:
    """The names of the arguments that calls of a function give by name."""
    for call in re.finditer(rf"\b{function}\s*\(", statement, re.IGNORECASE):
        depth, word = 1, ""
        for token in _TOKEN.findall(statement, call.end()):
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            if depth == 0:
                break
            if depth == 1 and token in (":=", "=>"):
                yield word.strip('"')
            word = token


def _compared(statement: str, error: str) -> str | None:
    """What DuckDB makes of epsilon = 1 in a call: a comparison."""
    found = re.search(r"Could not convert string [\"'](\w+)[\"']", error)
    if found is None or not re.search(rf"\bdp_\w+\s*\(.*\b{found[1]}\s*=(?!=)", statement, re.DOTALL):
        return None
    return f"{found[1]} = ... is a comparison; a named argument is written {found[1]} := ..."


def _mixed(statement: str, error: str) -> str | None:
    """A text in a list of numbers: a list has one type."""
    found = re.search(r"Could not convert string [\"'](.+)[\"'] to ", error)
    if found is None or not re.search(
        rf"\bdp_\w+\s*\(.*\[[^\[\]]*'{re.escape(found[1])}'[^\[\]]*\]", statement, re.DOTALL
    ):
        return None
    return f"'{found[1]}' stands in a list of numbers, and a list has one type: write all of it as texts, ['1', '{found[1]}']."
