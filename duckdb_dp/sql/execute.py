"""What happens while a statement runs: counts are charged and measured, and stored answers are read."""

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from duckdb_dp import arrow
from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import Planned, direct_plan
from duckdb_dp.counting.counts import Blocks, Counts, read_blocks
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.counting.sums import CHOOSE, Exact, ExactSums
from duckdb_dp.counting.tally import OPEN
from duckdb_dp.domain.domain import Clique, Domain
from duckdb_dp.domain.types import column_type
from duckdb_dp.errors import DPError, quoted_name
from duckdb_dp.private import choose_bounds, measure_values
from duckdb_dp.release import release
from duckdb_dp.request import Request
from duckdb_dp.sql import render
from duckdb_dp.sql.session import Session
from duckdb_dp.sum_names import sum_number

if TYPE_CHECKING:
    from duckdb_dp.synthesis.base import SyntheticTable

SIDE_TYPE = (
    "STRUCT(n BIGINT, numbers BIGINT[][], texts VARCHAR[][], outside BIGINT[], words BIGINT[][], print VARCHAR)[]"
)
"""Type of a list of what ``synthetic_tables.lists`` selects."""


def run(
    session: Session,
    request: str,
    name: str | None,
    fresh_key: str | None,
    blocks: list[str],
    cells: pa.ListArray,
    kept: pa.BooleanScalar | None = None,
    beside: pa.ListScalar | None = None,
) -> str:
    """Charge and measure a counted request; the handle of the stored release.

    Where the statement asks for bounds on norms first, they are charged and chosen alone: see ``choose_bounds``.

    Args:
        request: as JSON.
        name: of the release.
        fresh_key: for fresh := true, the statement.
        blocks: what was counted, as JSON.
        cells: the counts.
        kept: whether a promised bound on the links holds.
        beside: the synthetic tables that the request reads.
    """
    asked = Request.from_json(request)
    tables = None if beside is None else [_table(beside, place) for place in range(len(beside.values))]
    if asked.schema == SCHEMA:
        return _run_outside(session, asked, name, fresh_key, tables=tables)
    read = _counted(session, blocks, cells)
    if asked.direct:
        counted = {name: cells for name, cells in read.items() if sum_number(name) is None}
        counts = Counts(asked.beside.domain, counted) if asked.questions else None
        sums = ExactSums(asked.direct, read, counts)
        if CHOOSE in read:
            return ",".join(map(str, _choose(session, asked, name, fresh_key, sums)))
        return _draw(session, asked, sums, name, fresh_key, tables=None, bound_holds=True)
    counts = Counts(Domain({one.name: one.size for one in asked.read}), read)
    return _draw(session, asked, counts, name, fresh_key, tables=tables, bound_holds=kept is None or kept.as_py())


def _counted(session: Session, blocks: list[str], cells: pa.ListArray) -> Blocks:
    """What a statement has counted: by GROUP BYs, or in a tally, which one of the blocks names."""
    tallies = {place: found for place, text in enumerate(blocks) if isinstance(found := json.loads(text), dict)}
    if not tallies:
        return read_blocks(blocks, cells)
    own = [place for place in range(len(blocks)) if place not in tallies]
    read = dict(read_blocks([blocks[place] for place in own], cells.take(pa.array(own, pa.int64()))))
    for found in tallies.values():
        read |= session.tallies.taken(found[OPEN], found["rows"])
    return read


def run_attached(session: Session, request: str, name: str | None, fresh_key: str | None, cliques: str) -> str:
    """The same for a request about an attached table, without synthetic tables."""
    wanted = tuple(map(tuple, json.loads(cliques)))
    return _run_outside(session, Request.from_json(request), name, fresh_key, cliques=wanted)


def run_values(
    session: Session, request: str, name: str | None, fresh_key: str | None, values: list[bytes], counts: list[int]
) -> str:
    """Charge and measure a request for unknown values; the handle of the stored release.

    Args:
        session, request, name, fresh_key: as in ``run``.
        values: each value that a row holds, as bytes.
        counts: how many units hold it.
    """
    from duckdb_dp.sql import unknown_values  # for import time

    asked = Request.from_json(request)
    with session.ledger.held(), session.lock:
        done = measure_values(
            np.array(counts, dtype=np.int64),
            partial(unknown_values.only, unknown_values.arrays(values)),
            request=asked,
            dataset=_protected(session, asked),
            ledger=session.ledger,
            bits=session.bits,
            name=name,
            fresh_key=None if fresh_key is None else f"{session.id}:{fresh_key}",
        )
    session.answers(done)  # a file that cannot be read is an error here, where errors are text
    return str(done.id)


def run_found(session: Session, request: str, later: str, values: list[bytes], counts: list[int]) -> str:
    """As ``run_values``, for the groups of another request, which must be affordable too.

    Args:
        session, request, values, counts: as in ``run_values``.
        later: the request that they are found for, which has a placeholder for them.
    """
    from duckdb_dp.sql import found_groups  # for import time

    asked, sums = Request.from_json(request), Request.from_json(later)
    _protected(session, asked)
    found_groups.affordable(session, [asked], sums)
    with found_groups.as_whole(session, sums, finding=True):
        return run_values(session, request, None, None, values, counts)


def found_values(session: Session, request: str, handles: str, name: str) -> list[str]:
    """The values of a column that the releases ``handles`` have found, in the order of their cells."""
    from duckdb_dp.sql import found_groups  # for import time

    return found_groups.texts(session, Request.from_json(request), handles, name)


def run_filled(
    session: Session,
    request: str,
    name: str | None,
    fresh_key: str | None,
    blocks: list[str],
    cells: pa.ListArray,
    handles: pa.StringScalar,
) -> str:
    """As ``run``, of a request whose groups were found: by the releases ``handles``."""
    from duckdb_dp.sql import found_groups  # for import time

    sums = Request.from_json(request)
    asked = found_groups.filled(session, sums, found_groups.releases(session, handles.as_py()))
    with found_groups.as_whole(session, sums, finding=False, fresh=fresh_key is not None):
        return run(session, asked.to_json(), name, fresh_key, blocks, cells)


def _run_outside(
    session: Session,
    asked: Request,
    name: str | None,
    fresh_key: str | None,
    *,
    cliques: tuple[Clique, ...] | None = None,
    tables: "list[SyntheticTable] | None" = None,
) -> str:
    """The engine of the tables counts first, so a failure there costs nothing."""
    stored = None if fresh_key is not None else session.stored(asked, name)
    if stored is not None:
        return str(stored.id)
    _protected(session, asked)
    from duckdb_dp.sql import external_tables  # for import time: most tables are in DuckDB

    choose = partial(_choose, session, asked, name, fresh_key)
    counts, kept = external_tables.counted(session, asked, cliques, choose)
    return _draw(session, asked, counts, name, fresh_key, tables=tables, bound_holds=kept)


def _choose(session: Session, asked: Request, name: str | None, fresh_key: str | None, sums: ExactSums) -> list[int]:
    with session.ledger.held(), session.lock:
        return choose_bounds(
            direct_plan(asked),
            sums,
            request=asked,
            bits=session.bits,
            ledger=session.ledger,
            dataset=_protected(session, asked),
            name=name,
            fresh_key=None if fresh_key is None else f"{session.id}:{fresh_key}",
        )


def _protected(session: Session, asked: Request) -> Dataset:
    dataset = session.ledger.dataset(asked.catalog, asked.schema, asked.table)
    if dataset is None:
        raise DPError(
            f"'{asked.table}' is not protected in this ledger: CALL dp_protect({quoted_name(asked.table)}, ...)"
        )
    return dataset


def _draw(
    session: Session,
    asked: Request,
    counts: Exact,
    name: str | None,
    fresh_key: str | None,
    *,
    tables: "list[SyntheticTable] | None",
    bound_holds: bool,
) -> str:
    more: dict[str, Any] = {} if tables is None else {"tables": tables, "bound_holds": bound_holds}
    draw: Any = release
    if asked.synthetic:
        from duckdb_dp.synthesis.functions import exact_quality, synthesis  # for import time

        assert isinstance(counts, Counts)
        if dict(asked.options).get("exact"):
            return json.dumps(exact_quality(asked, counts, **more))
        draw = synthesis
    with session.ledger.held():
        with session.lock:
            done = draw(
                asked,
                counts,
                ledger=session.ledger,
                dataset=_protected(session, asked),
                bits=session.bits,
                name=name,
                fresh_key=None if fresh_key is None else f"{session.id}:{fresh_key}",
                track=session.track,
                **more,
            )
        if not asked.growing:
            session.answers(done)  # a file that cannot be read is an error here, where errors are text
    return str(done.id)


def unchanged(session: Session, handle: str, beside: pa.ListScalar) -> str:
    """The handle of a release about synthetic tables, as long as they are what they were.

    Raises:
        DPError: they have changed.
    """
    from duckdb_dp.sql.synthetic_tables import changed  # for import time

    stored = session.ledger.release(int(handle))
    for place, digest in enumerate(session.detail(stored)["digests"]):
        if _table(beside, place).digest != digest:
            raise DPError(changed(stored))
    return handle


def note(session: Session, handle: str, columns: str, digest: str) -> str:
    """Record in the ledger the digest of a release's rows, which are being returned."""
    release = session.ledger.release(int(handle))
    session.ledger.public.note_rows(json.loads(columns), digest, release=release.id, private=release.private)
    return handle


def labels(session: Session, handle: str, column: str) -> pa.Array:
    """The labels of an attribute of a release, or ('0 low', '0 high') the ends of its bins, as texts: too many for a statement."""
    place, _, end = column.partition(" ")
    request = session.answers(session.ledger.release(int(handle))).request
    type_, values = render.labels(request.attributes[int(place)], end)
    return arrow.texts(column_type(type_).texts(values))


def ends(session: Session, handle: str, which: str) -> pa.Array:
    """'question axis end': of each answer to the question its first (0) or last (1) cell along an axis, where these are intervals."""
    question, axis, end = map(int, which.split())
    answers = session.answers(session.ledger.release(int(handle)))
    assert isinstance(answers, Planned)
    part = answers.plan.workload.parts[question]
    bounds = part.queries[axis].bounds()
    assert bounds is not None
    along = np.asarray(bounds[end], np.int32).reshape([-1 if k == axis else 1 for k in range(len(part.shape))])
    return arrow.numbers(np.broadcast_to(along, part.shape).reshape(-1))


def cut(session: Session, handle: str, numbers: str) -> pa.Array:
    """Of each group one list: of each sum of these numbers itself, its stddev, and where it was cut; NULL where no bound was found."""
    rows = session.cut(handle, [*map(int, numbers.split())])
    groups, sums, parts = rows.shape
    ends = arrow.numbers(np.arange(groups + 1, dtype=np.int32) * np.int32(sums * parts))
    missing = np.broadcast_to(np.isnan(rows[:, :, -1:]), rows.shape)
    return pa.ListArray.from_arrays(ends, arrow.known(rows, missing))


def keys(session: Session, handle: str, index: int) -> pa.Array:
    """One column of the whole-number keys at one end of all links; NULL where there is none."""
    from duckdb_dp.synthesis.base import NOBODY  # for import time

    (stored,) = session.cells(handle, [index])
    keys = stored.view(np.int64)
    missing = keys == NOBODY
    return pa.array(keys, mask=missing) if missing.any() else arrow.numbers(keys)


def text_keys(session: Session, handle: str, index: int, place: int, column: int, beside: pa.ListScalar) -> pa.Array:
    """The same of keys that are text, which the synthetic table holds."""
    (positions,) = session.cells(handle, [index])
    key = _table(beside, place).key[column]
    return key.take(pa.array(positions, from_pandas=True).cast(pa.int64()))


def _table(beside: pa.ListScalar, place: int) -> "SyntheticTable":
    from duckdb_dp.sql.synthetic_tables import read_table  # for import time: a marginal reads no synthetic table

    return read_table(beside, place)
