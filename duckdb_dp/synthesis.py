"""The orchestration of synthesis: request -> charge -> measure through the door -> draw -> store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from duckdb_dp.account.ledger import Dataset, Ledger, Release
from duckdb_dp.answers import DETAIL, price, to_bytes
from duckdb_dp.attribute import Attribute
from duckdb_dp.data.counts import Counts, words
from duckdb_dp.domain import Clique, Domain
from duckdb_dp.errors import DPError
from duckdb_dp.linop import Array, Integers
from duckdb_dp.noise.bits import Bits
from duckdb_dp.private import Door, perform
from duckdb_dp.progress import Track, silent
from duckdb_dp.request import Request
from duckdb_dp.synth import synthesize
from duckdb_dp.synth.decode import decode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticTable:
    """A synthetic table as a statement has read it.

    Attributes:
        rows: how many it has.
        keys: how many different keys, without NULL.
        outside: for each attribute, how many rows hold a value outside its domain.
        words: the cell of each row in the joint domain of its attributes, as ``data.counts.words`` splits it.
        digest: a text that changes with its contents.
    """

    rows: int
    keys: int
    outside: tuple[int, ...]
    words: tuple[Integers, ...]
    digest: str


def check(request: Request) -> None:
    """Refuse what no synthesis could do, before anything is charged.

    Raises:
        DPError: pure DP, or what the method itself refuses.
    """
    if request.accounting == "pure" or price(request).beta is None:
        raise DPError(
            "synthetic rows are made with Gaussian noise, which has no pure epsilon (delta 0); protect the table with a "
            "delta, e.g. delta := 1e-9."
        )
    if request.function == "dp_synthesize":
        synthesize.check(request.domain, dict(request.options).get("rows"), options(request))


def options(request: Request) -> synthesize.Options:
    """How a dp_synthesize is done."""
    given = {name: value for name, value in request.options if name != "rows"}
    return synthesize.Options(method=request.mechanism, **given)


def cliques(request: Request) -> tuple[Clique, ...]:
    """The marginals that a synthesis may look at: what has to be counted."""
    return synthesize.cliques(request.domain, options(request))


def synthesis(
    request: Request,
    counts: Counts,
    *,
    ledger: Ledger,
    dataset: Dataset,
    bits: Bits,
    name: str | None = None,
    fresh_key: str | None = None,
    track: Track = silent,
    tables: Sequence[SyntheticTable] = (),
    kept: bool = True,
) -> Release:
    """Draw what a request asks for from exact counts, charging it unless it was charged before.

    Args:
        request: of dp_synthesize, dp_links or dp_quality.
        counts: the exact counts.
        ledger, dataset, bits, name, fresh_key, track: as in ``release``.
        tables: the synthetic tables that the request is about.
        kept: whether the promised bound on links holds.

    Raises:
        DPError: the synthetic tables do not do, or the promise is broken; nothing is charged then.

    Privacy: spends request.cost of the dataset's budget, once per request (once more for each ``fresh_key``).
    """
    if request.function == "dp_synthesize":
        run = _table(request, bits, track)
    else:
        check_tables(request, tables, kept)
        run = (_links if request.function == "dp_links" else _quality)(request, tables, bits, track)

    return perform(
        run,
        counts,
        request=request,
        mechanism=request.mechanism,
        ledger=ledger,
        dataset=dataset,
        bits=bits,
        name=name,
        fresh_key=fresh_key,
    )


Run = Callable[[Door], Mapping[str, Array]]


def _table(request: Request, bits: Bits, track: Track) -> Run:
    def run(door: Door) -> Mapping[str, Array]:
        rng = generator(bits)
        rows = dict(request.options).get("rows")
        codes, detail = synthesize.synthesize(door, rows=rows, options=options(request), rng=rng, track=track)
        columns = (values(attribute, codes[:, i], rng) for i, attribute in enumerate(request.attributes))
        return {DETAIL: to_bytes({"rows": len(codes), **detail}), **{str(i): found for i, found in enumerate(columns)}}

    return run


def _links(request: Request, tables: Sequence[SyntheticTable], bits: Bits, track: Track) -> Run:
    def run(door: Door) -> Mapping[str, Array]:
        rng = generator(bits)
        links, detail = links_of(door, request, tables, rng, track)
        note = to_bytes({"digests": [table.digest for table in tables], **detail})
        return {DETAIL: note, **{str(i): np.asarray(found, np.float64) for i, found in enumerate(links)}}

    return run


def _quality(request: Request, tables: Sequence[SyntheticTable], bits: Bits, track: Track) -> Run:
    def run(door: Door) -> Mapping[str, Array]:
        groups = compared(request)
        degrees = [group for group in groups if group[0].startswith(DEGREES)]
        within = [group for group in groups if group not in degrees]
        budget = door.left / (len(within) + len(degrees) + 1)
        found = []
        for what, (tag, *_) in degrees:
            table = tables[1 + len(found)]
            portion = Portion(door, 2 * budget / (1 + len(degrees)) if within else budget, whole=tag)
            (score,) = private_scores(portion, _marginals(request, tag, table), [(tag,)], track=track)
            found.append(_noted(what, score))
        names = tuple(attribute.name for attribute in request.attributes if not _is_degree(request, attribute.name))
        scores = private_scores(
            Portion(door, door.left), _marginals(request, names, tables[0]), [cliques for _, cliques in within], track=track
        )
        noted = [_noted(what, score) for (what, _), score in zip(within, scores, strict=True)]
        return {DETAIL: to_bytes({"groups": [*noted, *found], "exact": False})}

    return run


def check_tables(request: Request, tables: Sequence[SyntheticTable], kept: bool) -> None:
    """Refuse synthetic tables that cannot be linked, and a broken promise, before anything is charged.

    Raises:
        DPError: an empty table, keys that repeat, values outside the domain; more links than there can be.
    """
    if not kept:
        raise DPError(
            f"'{request.table}' has rows with more links than the {request.max_rows} promised for both sides; promise more "
            "with max_degree, or protect one side, whose further links are left out."
        )
    found = dict(request.options)
    for place, table in enumerate(tables):
        name = found["synthetic"][place]
        if not table.rows:
            raise DPError(f"{name} has no rows to link; make some with dp_synthesize.")
        if table.keys != table.rows:
            columns = ", ".join(found["references"][place]["key"])
            raise DPError(f"{name} has rows whose key ({columns}) is NULL or the same as another's; number them.")
        for attribute, outside in zip(side_attributes(request, place), table.outside, strict=True):
            if outside:
                raise DPError(
                    f"{name} has {outside:,} rows with a value of '{attribute.name}' outside its declared domain; see "
                    "dp_domain, or make the rows with dp_synthesize."
                )


def side_attributes(request: Request, place: int) -> tuple[Attribute, ...]:
    """The attributes of the left (0) or right (1) side of a dp_links, as the request calls them."""
    sizes = dict(request.options)["sizes"]
    start = sum(sizes[:place])
    return request.attributes[start : start + sizes[place]]


def codes_of(domain: Domain, clique: Clique, table: SyntheticTable) -> Integers:
    """The cell numbers of every synthetic row, shape (rows, attributes)."""
    found = np.zeros((table.rows, len(clique)), dtype=np.int64)
    for word, group in zip(table.words, words(domain, clique), strict=True):
        for name in group:
            after = group[group.index(name) + 1 :]
            found[:, clique.index(name)] = word // domain.cells(after) % domain.sizes[name]
    return found


def links_of(door, request, tables, rng, track):
    from duckdb_dp.linop import Identity
    m, _ = door.measure((), Identity(1), door.left)
    d = [codes_of(door.domain, tuple(a.name for a in side_attributes(request, p)), tables[p]) for p in (0, 1)]
    n = [len(c) for c in d]
    if dict(request.options)["child"]:
        return [np.arange(n[0]), rng.integers(0, n[1], n[0])], {}
    m = min(max(1, round(m[0])), n[0] * n[1])
    p = rng.choice(n[0] * n[1], m, replace=False)
    own = request.attributes[sum(dict(request.options)["sizes"]):-2]
    return [p // n[1], p % n[1], *(rng.integers(0, a.size, m) for a in own)], {}


def generator(bits: Bits) -> np.random.Generator:
    """Random numbers for post-processing, from as good a seed as the noise's own."""
    return np.random.default_rng([int(word) for word in bits.uint64(4)])


def values(attribute: Attribute, codes: Integers, rng: np.random.Generator) -> Array:
    """A drawn column as the numbers that are stored: cell numbers, or values inside bins, NaN where there is none.

    Dates are days since 1970, times and timestamps microseconds (TIMESTAMP_NS: nanoseconds).

    Privacy: post-processing.
    """
    if attribute.kind != "bins":
        return np.asarray(codes, dtype=np.float64)
    drawn = decode(attribute, codes, rng)
    if (per_unit := _MICROSECONDS.get(attribute.type)) is not None:
        drawn = drawn.cast("int64")
    elif attribute.type == "DATE":
        drawn, per_unit = drawn.cast("int32"), 1
    numbers: Array = drawn.cast("float64", safe=False).to_numpy(zero_copy_only=False) * (per_unit or 1)
    return _as_doubles(numbers) if attribute.family != "real" else numbers


_MICROSECONDS = {"TIME": 1, "TIMESTAMP": 1, "TIMESTAMP_S": 10**6, "TIMESTAMP_MS": 10**3, "TIMESTAMP_NS": 1}
"""The unit that is stored, in each type's own."""


def _as_doubles(numbers: Array) -> Array:
    """Beyond 2^53 not every whole number is a double: the next one towards 0 stays inside a type's range."""
    return np.where(np.abs(numbers) > 2.0**53, np.nextafter(numbers, 0.0), numbers)
