"""dp_quality: marginals of a synthetic table, or of synthetic links, against those of the private one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, final

import numpy as np

from duckdb_dp.answers import DETAIL, to_bytes
from duckdb_dp.counting.counts import Counts
from duckdb_dp.domain.attribute import Attribute, as_text
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, LinOp, Total
from duckdb_dp.private import PrivateQueryable
from duckdb_dp.progress import Track
from duckdb_dp.request import Request
from duckdb_dp.synthesis.base import Run, SyntheticTable
from duckdb_dp.synthesis.link_rows import check_promise
from duckdb_dp.synthesis.table import scores

DEGREE = ".degree"
"""End of the names of pseudo-attributes that are no columns: how many links a row has."""

SHOWN = 40
"""Cells that are shown of a marginal: the largest of either table."""

Group = tuple[str, tuple[Clique, ...]]
"""What is compared, and its marginals."""


def compared(request: Request) -> list[Group]:
    """The marginals of up to three attributes that are compared; a function of the request alone.

    Of links, marginals of several attributes are those across the tables; and the degrees of protected rows.
    """
    kinds = _kinds(request)
    rng = np.random.default_rng(0)  # which of very many marginals: a public choice
    domain = Domain({name: request.domain.sizes[name] for name in kinds})
    found: list[Group] = []
    for order in scores.ORDERS:
        cliques = scores.compared(domain, order, rng)
        if across := len(set(kinds.values())) > 1 and order > 1:
            cliques = tuple(clique for clique in cliques if len({kinds[name] for name in clique}) > 1)
        if cliques:
            found.append(("across tables" if across else "links" if _of_links(request) else "rows", cliques))
    return found + [(f"degrees of {tag.removesuffix(DEGREE)}", ((tag,),)) for tag in _tags(request)]


def check_tables(request: Request, tables: Sequence[SyntheticTable], kept: bool) -> None:
    """Refuse synthetic tables that cannot be compared, before anything is charged.

    Raises:
        DPError: an empty one, links none of which joins the tables that they are of, or values outside the domain.
    """
    check_promise(request, kept)
    found = dict(request.options)
    name = found.get("links") or found["synthetic"][0]
    if "links" in found and not tables[0].rows:
        ends = " and ".join(found["synthetic"])
        raise DPError(f"no row of {name} refers to rows of {ends}; make the links between these with dp_links.")
    tables[0].check_values(name, _columns(request))


def run(request: Request, tables: Sequence[SyntheticTable], track: Track) -> Run:
    """What measures the score.

    Privacy: spends all that the door has.
    """

    def scored(queryable: PrivateQueryable) -> Mapping[str, Array]:
        found = []
        groups = compared(request)
        share = queryable.left / (1 + len(groups))
        for what, cliques, table in _degrees(request, tables):
            portion = cast(PrivateQueryable, Portion(queryable, share, whole=cliques[0]))
            # A unit without its k links goes from degree k to 0: two cells change, whatever k is.
            (score,) = scores.private_scores(
                portion,
                _marginals(_tag(request, cliques), table),
                [cliques],
                moved=max(1.0, 2 / queryable.rows),
                track=track,
            )
            found.append(_noted(what, score))
        rest = [(what, cliques) for what, cliques in groups if not what.startswith("degrees")]
        synthetic = _marginals(_columns(request), tables[0])
        scored = (
            scores.private_scores(queryable, synthetic, [cliques for _, cliques in rest], track=track) if rest else []
        )
        noted = [_noted(what, score) for (what, _), score in zip(rest, scored, strict=True)]
        read = {
            "digests": [table.digest for table in tables],
            "fingerprints": [table.fingerprint for table in tables],
        }
        return {DETAIL: to_bytes({"groups": [*noted, *found], "exact": False, **read})}

    return scored


def exact(request: Request, counts: Counts, tables: Sequence[SyntheticTable]) -> dict[str, Any]:
    """The errors without noise, and the cells of the worst and of a typical marginal, for the curator's eyes only.

    Privacy: NONE. What it returns says so.
    """
    groups = []
    by_clique = {cliques: table for _, cliques, table in _degrees(request, tables)}
    for what, cliques in compared(request):
        table = by_clique.get(cliques)
        attributes = _columns(request) if table is None else _tag(request, cliques)
        private, synthetic = _exact(counts), _marginals(attributes, table or tables[0])
        errors = scores.errors(private, synthetic, cliques)
        groups.append(
            {
                "what": what,
                "mean": float(errors.mean()),
                "stddev": 0.0,
                "cliques": cliques,
                "errors": errors.tolist(),
                "each": 0.0,
                "cells": [
                    {"which": which, **cell}
                    for which, place in (("worst", int(errors.argmax())), ("typical", _typical(errors)))
                    for cell in _cells(attributes, cliques[place], private, synthetic)
                ],
            }
        )
    return {"groups": groups, "exact": True}


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


@final
class Portion:
    """A door that spends no more than a portion, and whose number of rows is that of one of its marginals."""

    def __init__(self, queryable: PrivateQueryable, rho: float, *, whole: Clique) -> None:
        self.domain, self.rows, self.accounting = queryable.domain, queryable.rows, queryable.accounting
        self.left = rho
        self._door, self._whole = queryable, whole

    def measure(self, clique: Clique, strategy: LinOp, rho: float) -> tuple[Array, float]:
        """As the door's own.

        Privacy: spends rho.
        """
        (found,) = self.measure_all([(clique, strategy, rho)])
        return found

    def measure_all(self, asked: Iterable[tuple[Clique, LinOp, float]]) -> list[tuple[Array, float]]:
        """As the door's own.

        Privacy: spends the sum of all rho.
        """
        return self._door.measure_all(self._spent(asked))

    def _spent(self, asked: Iterable[tuple[Clique, LinOp, float]]) -> Iterator[tuple[Clique, LinOp, float]]:
        for clique, strategy, rho in asked:
            self.left = max(0.0, self.left - rho)
            yield (clique, strategy, rho) if clique else (self._whole, Total(self.domain.cells(self._whole)), rho)


def _noted(what: str, score: scores.Score) -> dict[str, Any]:
    return {
        "what": what,
        "mean": score.mean,
        "stddev": score.stddev,
        "cliques": score.cliques,
        "errors": score.errors.tolist(),
        "each": score.each,
    }


def _of_links(request: Request) -> bool:
    return "links" in dict(request.options)


def _tags(request: Request) -> list[str]:
    """The pseudo-attributes: they come last."""
    start = len(request.attributes) - dict(request.options).get("degrees", 0)
    return [attribute.name for attribute in request.attributes[start:]]


def _columns(request: Request) -> tuple[Attribute, ...]:
    """The attributes that are columns."""
    return request.attributes[: len(request.attributes) - len(_tags(request))]


def _kinds(request: Request) -> dict[str, int]:
    """Attribute -> which table it is of: 0 and 1 are the parents, 2 the links themselves."""
    sizes = dict(request.options)["sizes"]
    ends = np.cumsum(sizes)
    return {
        attribute.name: int(np.searchsorted(ends, i, side="right")) for i, attribute in enumerate(_columns(request))
    }


def _tag(request: Request, cliques: tuple[Clique, ...]) -> tuple[Attribute, ...]:
    return tuple(attribute for attribute in request.attributes if attribute.name == cliques[0][0])


def _degrees(
    request: Request, tables: Sequence[SyntheticTable]
) -> list[tuple[str, tuple[Clique, ...], SyntheticTable]]:
    groups = [group for group in compared(request) if group[0].startswith("degrees")]
    return [(what, cliques, table) for (what, cliques), table in zip(groups, tables[1:], strict=True)]


def _marginals(attributes: tuple[Attribute, ...], table: SyntheticTable) -> scores.Marginals:
    domain = Domain({attribute.name: attribute.size for attribute in attributes})
    return scores.counted(domain, table.codes(attributes))
