"""dp_quality: how far the marginals of a synthetic table, or of synthetic links, are from those of the private one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.domain import Attribute, Clique, Domain
from duckdb_dp.domain.types import as_text
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Total
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.request import Request
from duckdb_dp.synthesis import scores
from duckdb_dp.synthesis.base import Run, SyntheticTable, contents
from duckdb_dp.synthesis.links.columns import check_promise

DEGREE = ".degree"
"""End of the names of pseudo-attributes that are no columns: how many links a row has."""

SHOWN = 40
"""Cells that are shown of a marginal: the largest of either table."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Marginals that are scored together.

    Attributes:
        what: their name in the result.
        cliques: the marginals.
        attributes: the attributes that they are of.
        table: which of the synthetic tables they are compared with: 0 has the rows or links, others the rows' degrees.
    """

    what: str
    cliques: tuple[Clique, ...]
    attributes: tuple[Attribute, ...]
    table: int = 0


def groups(request: Request) -> list[Group]:
    """The marginals of up to three attributes that are compared; a function of the request alone.

    For links these are the marginals of several attributes across the tables, and the degrees of protected rows.
    """
    kinds, columns = _kinds(request), _columns(request)
    rng = np.random.default_rng(0)  # which of very many marginals: a public choice
    domain = Domain({attribute.name: attribute.size for attribute in columns})
    compared: list[Group] = []
    for order in scores.ORDERS:
        chosen = scores.compared(domain, order, rng)
        if across := len(set(kinds.values())) > 1 and order > 1:
            chosen = tuple(clique for clique in chosen if len({kinds[name] for name in clique}) > 1)
        if chosen:
            what = "across tables" if across else "links" if "links" in dict(request.options) else "rows"
            compared.append(Group(what=what, cliques=chosen, attributes=columns))
    for table, degree in enumerate(_degrees(request), start=1):
        what = f"degrees of {degree.name.removesuffix(DEGREE)}"
        compared.append(Group(what=what, cliques=((degree.name,),), attributes=(degree,), table=table))
    return compared


def cliques(request: Request) -> tuple[Clique, ...]:
    """The marginals that are compared, which have to be counted."""
    return tuple(clique for group in groups(request) for clique in group.cliques)


def check(request: Request) -> None:
    """Does nothing: all that can be refused depends on the tables."""


def check_tables(request: Request, tables: Sequence[SyntheticTable], bound_holds: bool) -> None:
    """Refuse synthetic tables that cannot be compared, before anything is charged.

    Raises:
        DPError: an empty table, values outside the domain, or links that join no rows of their tables.
    """
    check_promise(request, bound_holds)
    options = dict(request.options)
    name = options.get("links") or options["synthetic"][0]
    if "links" in options and not tables[0].rows:
        ends = " and ".join(options["synthetic"])
        raise DPError(f"no row of {name} refers to rows of {ends}; make the links between these with dp_links.")
    tables[0].check_values(name, _columns(request))


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """The function that measures the score.

    Privacy: spends all that ``queryable`` has left.
    """

    def scored(queryable: PrivateQueryable) -> Mapping[str, Array]:
        everything = groups(request)
        degrees, rest = [g for g in everything if g.table], [g for g in everything if not g.table]
        share = queryable.left / (1 + len(everything))
        measured = [_degree_score(queryable, group, tables[group.table], share, track) for group in degrees]
        if rest:
            synthetic = _marginals(rest[0].attributes, tables[0])
            measured = scores.private_scores(queryable, synthetic, [g.cliques for g in rest], track=track) + measured
        noted = [_noted(group.what, score) for group, score in zip((*rest, *degrees), measured, strict=True)]
        return {DETAIL: to_bytes({"groups": noted, "exact": False, **contents(tables)})}

    return scored


def _degree_score(
    queryable: PrivateQueryable, group: Group, table: SyntheticTable, rho: float, track: Track
) -> scores.Score:
    """The score of the degrees, the numbers of links of rows; half of rho measures the number of rows.

    A unit without its k links goes from degree k to 0: two cells change, whatever k is.

    Privacy: spends rho.
    """
    (degree,) = group.cliques
    total = queryable.measure(degree, Total(queryable.domain.cells(degree)), rho / 2)
    return scores.private_score(
        queryable,
        _marginals(group.attributes, table),
        group.cliques,
        total,
        (rho - rho / 2) * (1 - 1e-12),
        moved=max(1.0, 2 / queryable.rows),
        track=track,
    )


def exact(request: Request, counts: Counts, tables: Sequence[SyntheticTable]) -> dict[str, Any]:
    """The errors without noise, and the cells of the worst and of a typical marginal, for the curator only.

    Privacy: NONE. What it returns says so.
    """
    noted = []
    for group in groups(request):
        private, synthetic = _exact(counts), _marginals(group.attributes, tables[group.table])
        score = scores.exact_score(private, synthetic, group.cliques)
        worst, typical = int(score.errors.argmax()), _typical(score.errors)
        cells = [
            {"which": which, **cell}
            for which, chosen in (("worst", group.cliques[worst]), ("typical", group.cliques[typical]))
            for cell in _cells(group.attributes, chosen, private, synthetic)
        ]
        noted.append({**_noted(group.what, score), "cells": cells})
    return {"groups": noted, "exact": True}


def _exact(counts: Counts) -> scores.Marginals:
    return lambda clique: counts.marginal(clique).astype(np.float64)


def _typical(errors: Array) -> int:
    """The marginal of the median error."""
    return int(np.argsort(errors, kind="stable")[len(errors) // 2])


def _cells(
    attributes: Sequence[Attribute], clique: Clique, private: scores.Marginals, synthetic: scores.Marginals
) -> list[dict[str, Any]]:
    """The largest cells of a marginal, with the shares that they have in both tables."""
    labels = {attribute.name: attribute.labels() for attribute in attributes}
    shares = [scores.shares(marginal(clique).reshape(-1)) for marginal in (private, synthetic)]
    shape = [len(labels[name]) for name in clique]
    return [
        {
            "marginal": ", ".join(clique),
            "cell": ", ".join(
                "NULL" if (label := labels[name][int(at)]) is None else as_text(label)
                for name, at in zip(clique, np.unravel_index(cell, shape), strict=True)
            ),
            "original": float(shares[0][cell]),
            "synthetic": float(shares[1][cell]),
        }
        for cell in np.argsort(-np.maximum(*shares), kind="stable")[:SHOWN]
    ]


def _noted(what: str, score: scores.Score) -> dict[str, Any]:
    return {
        "what": what,
        "mean": score.mean,
        "stddev": score.stddev,
        "cliques": score.cliques,
        "errors": score.errors.tolist(),
        "each": score.each,
    }


def _degrees(request: Request) -> tuple[Attribute, ...]:
    """The pseudo-attributes that are no columns: they come last."""
    return request.attributes[len(request.attributes) - dict(request.options).get("degrees", 0) :]


def _columns(request: Request) -> tuple[Attribute, ...]:
    """The attributes that are columns."""
    return request.attributes[: len(request.attributes) - len(_degrees(request))]


def _kinds(request: Request) -> dict[str, int]:
    """Attribute -> which table it is of: 0 and 1 are the parents, 2 the links themselves."""
    ends = np.cumsum(dict(request.options)["sizes"])
    return {
        attribute.name: int(np.searchsorted(ends, i, side="right")) for i, attribute in enumerate(_columns(request))
    }


def _marginals(attributes: tuple[Attribute, ...], table: SyntheticTable) -> scores.Marginals:
    domain = Domain({attribute.name: attribute.size for attribute in attributes})
    return scores.counted(domain, table.codes(attributes))
