"""Whether the two ends of a link match: an attribute of the left one and one of the right one whose declared values are the same."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np

from duckdb_dp.domain.domain import Attribute, Clique, Domain
from duckdb_dp.domain.types.base import number_of
from duckdb_dp.linop import Grouped, Integers, Measurable
from duckdb_dp.synthesis.links.gaps import Gap

MOST = 4
"""Matches that are looked at: each has its share of noise."""

TOLD, TOLD_BY_NAME, IN_COMMON, NUMBERS = 3, 2, 0.5, 0.9
"""Values in common, at least, of columns of different names and of one name; the part of the smaller attribute's that they are; and of the
larger one's, where they are numbers under different names: ages and decades that both count from 0 have none in common but by chance."""

CELLS = 2**18
"""Most cells of two attributes that are compared."""


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Match:
    """Whether an attribute of the left end and one of the right end of a link have the same value.

    Attributes:
        left, right: the attributes.
        same: 1 where two of their values are the same, else 0, shape (values of left, values of right).
    """

    left: str
    right: str
    same: Integers

    @property
    def name(self) -> str:
        """A name that no attribute has."""
        return f"\0{self.left} = {self.right}"

    @property
    def classes(self) -> Integers:
        """``same``, as of ``Gap``."""
        return self.same

    @property
    def size(self) -> int:
        """Links match or not."""
        return 2

    def codes(self, ends: Mapping[str, Integers]) -> Integers:
        """1 for each link whose ends match, else 0."""
        return self.same[ends[self.left], ends[self.right]]


def matches_of(left: Sequence[Attribute], right: Sequence[Attribute]) -> list[Match]:
    """The matches that are looked at, by declarations alone: pairs of attributes that have most of their values in common.

    Numbers of columns of different names have nearly all of them. Two or fewer values in common, as those of all flags, say something
    only where the columns have one name. Those of one name come first, then texts, as whole numbers are often the same by chance, and
    then those of which most is in common.

    Args:
        left, right: the attributes of both sides, '<role>.<column>'.
    """
    found = []
    for a, b in itertools.product(left, right):
        if a.size * b.size <= CELLS and (same := _same(a, b)).any():
            common, named = int(same.sum()), _column(a) == _column(b)
            texts = a.type == "VARCHAR"
            needed = IN_COMMON * min(a.size, b.size) if named or texts else NUMBERS * max(a.base, b.base)
            if common >= max(needed, TOLD_BY_NAME if named else TOLD):
                order = (not named, not texts, -common / (a.size + b.size - common), -common)
                found.append((order, Match(left=a.name, right=b.name, same=same)))
    return [match for _, match in sorted(found, key=lambda one: one[0])[:MOST]]


def _column(attribute: Attribute) -> str:
    return attribute.name.rpartition(".")[2].lower()


def _same(a: Attribute, b: Attribute) -> Integers:
    """Where declared values of two attributes are the same, shape (values of a, values of b)."""
    places = {value: i for i, value in enumerate(_values(b))}
    same = np.zeros((a.size, b.size), dtype=np.int64)
    for i, value in enumerate(_values(a)):
        if value in places:
            same[i, places[value]] = 1
    return same


def _values(attribute: Attribute) -> list[Any]:
    """What stands for each declared value: numbers of all types are compared, texts too, and bins by their edges."""
    labels = [label for label in attribute.labels()[: attribute.base] if label is not None]
    kind = "text" if attribute.type == "VARCHAR" or attribute.type.startswith("ENUM") else attribute.type
    return [label if attribute.kind != "bins" and number_of(label) is not None else (kind, label) for label in labels]


Compared = Match | Gap
"""What is worked out of an attribute of each end of a link."""


def extended(domain: Domain, matches: Sequence[Compared]) -> Domain:
    """The attributes with the matches as attributes of two values, and differences as attributes of their classes."""
    return Domain({**domain.sizes, **{match.name: match.size for match in matches}})


def merged(
    domain: Domain,
    matches: Sequence[Compared],
    clique: Clique,
    query: Measurable,
    within: Mapping[str, Integers] = MappingProxyType({}),
) -> tuple[Clique, Measurable]:
    """(the clique that is counted, the query on it) for a query on attributes of which some are matches, or in groups of values.

    Args:
        domain: of the attributes that are counted.
        matches: any.
        clique: attributes and matches, in the order of the query's cells.
        query: on the joint cells of these.
        within: the group of each value of attributes that are in groups, from 0.
    """
    known = {match.name: match for match in matches}
    if not any(name in known or name in within for name in clique):
        return clique, query
    counted = counted_by(domain, matches, clique)
    codes = dict(zip(counted, np.indices(domain.shape(counted), sparse=True), strict=True))
    group, groups = np.zeros(domain.shape(counted), dtype=np.int64), 1
    for name in clique:
        code = known[name].codes(codes) if name in known else codes[name]
        code = within[name][code] if name in within else code
        size = (
            known[name].size if name in known else int(within[name][-1]) + 1 if name in within else domain.sizes[name]
        )
        group, groups = group * size + code, groups * size
    return counted, Grouped(query, group.reshape(-1), groups)


def counted_by(domain: Domain, matches: Sequence[Compared], clique: Clique) -> Clique:
    """The attributes that are counted for some attributes and matches."""
    ends = {match.name: (match.left, match.right) for match in matches}
    return domain.clique(dict.fromkeys(end for name in clique for end in ends.get(name, (name,))))
