"""Columns that long expressions are worked out in, step by step: to bind a long text takes longer than to run it."""

import re
from typing import final

LONG = 1_000
"""Characters of an expression above which the expressions in its parentheses become columns."""

PART = 150
"""Characters of these above which they do."""

_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
"""A text or a quoted name, in which nothing is read."""

_PIECE = re.compile(rf"{_QUOTED}|[()]|[^'\"()]+")
_STEP = re.compile(r"\bv(\d+)\b")
_LIST = re.compile(r"(?i)\b(in|over|interval)\s*$")
"""Words behind which parentheses hold no expression."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*$")


@final
class Steps:
    """Columns v0, v1, ... over the columns of a relation, and over each other; NULL where working one out fails."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._levels: list[int] = []

    def of(self, text: str) -> str:
        """The column of an expression."""
        found = self.shorter(text)
        return found if _STEP.fullmatch(found) else self._column(found)

    def shorter(self, text: str) -> str:
        """A long expression over columns for what stands in its parentheses, from the inside out."""
        if len(text) <= LONG or "->" in text:  # the parameters of a lambda are no columns
            return text
        found, opened = [""], list[str]()
        for piece in _PIECE.findall(text):
            if piece == "(":
                called = _NAME.search(found[-1])
                opened.append("" if called is None else called.group())
                found[-1] = found[-1].removesuffix(opened[-1])
                found.append("")
            elif piece == ")":
                inside, name = found.pop(), opened.pop()
                listed = _LIST.search(found[-1] + name) is not None
                found[-1] += f"{name}({inside})" if listed else self._part(inside, name)
            else:
                found[-1] += piece
        return found[0]

    def _part(self, inside: str, name: str) -> str:
        """What stands in parentheses, behind a function's name or alone, or its column."""
        text = f"{name}({inside})"
        if len(text) <= PART or (not name and "," in inside):
            return text
        return self._column(text)

    def _column(self, text: str) -> str:
        if text not in self._names:
            used = [self._levels[int(number)] for number in _STEP.findall(re.sub(_QUOTED, "", text))]
            self._names[text] = f"v{len(self._levels)}"
            self._levels.append(1 + max(used, default=-1))
        return self._names[text]

    def around(self, relation: str) -> str:
        """SELECT of a relation's columns and these."""
        for level in range(max(self._levels, default=-1) + 1):
            made = [
                f"TRY({text}) AS {name}" for text, name in self._names.items() if self._levels[int(name[1:])] == level
            ]
            relation = f"SELECT *, {', '.join(made)} FROM ({relation})"
        return relation
