"""Domains: the attributes of a private table and how many values each can take."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from duckdb_dp.errors import DPError, as_sql, expect, few

Clique = tuple[str, ...]
"""The attributes of a marginal, in the domain's order; ``()`` is the total."""

_Item = TypeVar("_Item")


def subsets(items: Sequence[_Item]) -> list[tuple[_Item, ...]]:
    """All subsets of the attributes of a clique, or of axes: small ones first, the empty set and the whole included."""
    return [found for size in range(len(items) + 1) for found in itertools.combinations(items, size)]


@dataclass(frozen=True, slots=True)
class Domain:
    """Named attributes and their sizes; a public fact, never derived from data.

    Args:
        sizes: attribute name -> number of values, in the order that cells and columns follow.

    Raises:
        DPError: a name that is not a string, or a size that is not a whole number of at least 1.
    """

    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        expect("Domain", "sizes", self.sizes, Mapping, "a size per attribute, e.g. Domain({'age': 10, 'sex': 2})")
        for name, size in self.sizes.items():
            if not isinstance(name, str) or not name:
                raise DPError(f"Domain: attribute names are non-empty strings, found {as_sql(name)}.")
            if isinstance(size, bool) or not hasattr(size, "__index__") or int(size) < 1:
                raise DPError(
                    f"Domain: attribute '{name}' has size {as_sql(size)}; a size is a whole number of at least 1."
                )
        object.__setattr__(self, "sizes", {name: int(size) for name, size in self.sizes.items()})

    def __hash__(self) -> int:
        return hash(tuple(self.sizes.items()))

    @property
    def attributes(self) -> Clique:
        """All attribute names, in order."""
        return tuple(self.sizes)

    def clique(self, attributes: Iterable[str]) -> Clique:
        """The named attributes in the domain's order.

        Raises:
            DPError: an attribute that the domain lacks or that is named twice.
        """
        expect("Domain", "an attribute set", attributes, Iterable, "names, e.g. ('age', 'sex')")
        names = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        for name in names:
            if not isinstance(name, str) or name not in self.sizes:
                raise DPError(f"unknown attribute {as_sql(name)}; the domain has: {few(self.attributes)}.")
            if names.count(name) > 1:
                raise DPError(f"attribute '{name}' is named twice in {as_sql(names)}; name it once.")
        chosen = set(names)
        return tuple(name for name in self.sizes if name in chosen) if len(names) > 1 else names

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """Sizes of the clique's attributes: the shape of its marginal."""
        return tuple(self.sizes[name] for name in clique)

    def cells(self, clique: Clique) -> int:
        """Number of cells of the clique's marginal; 1 for the total."""
        return math.prod(self.sizes[name] for name in clique)
