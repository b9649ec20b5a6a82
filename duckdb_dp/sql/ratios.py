"""Sums that ratios are made of, apart from those that are shown themselves: the former have one weight of each owner (``plan.weights``)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from duckdb_dp.grouped_sums import GroupedSums, Sum
from duckdb_dp.outputs import Output, Piece, renumbered
from duckdb_dp.sql import linear


def apart(part: GroupedSums) -> GroupedSums:
    """A grouping set whose sums are bounded by norm, with sums of their own for averages, variances, and other functions of several sums.

    An owner counts less in a ratio where it is beyond any of its bounds: were a count beside it the same sum, it would be too low. So
    what is shown itself and is a part of a ratio too is measured twice.
    """
    may = {index for index, one in enumerate(part.sums) if one.norm and not one.distinct}
    ratios = [_is_ratio(output, may) for output in part.outputs]
    within, shown = (
        {index for output, ratio in zip(part.outputs, ratios, strict=True) if ratio == kind for index in _sums(output)}
        for kind in (True, False)
    )
    within &= may
    sums: list[Sum] = []
    plain, weighed = list[int](), list[int]()  # where each sum stands: for itself, and in ratios
    for index, one in enumerate(part.sums):
        plain.append(len(sums))
        sums += [one] if index in shown or index not in within else []
        sums += [replace(one, weighed=True)] if index in within else []
        weighed.append(len(sums) - 1)

    def moved(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
        """Of a condition or an order, which measures nothing more."""
        used = {*_numbers(pieces)} & may
        return renumbered(tuple(pieces), weighed if len(used) > 1 and used <= within else plain)

    return replace(
        part,
        sums=tuple(sums),
        outputs=tuple(
            output.renumbered(weighed if ratio else plain) for output, ratio in zip(part.outputs, ratios, strict=True)
        ),
        having=moved(part.having),
        order=tuple((moved(pieces), after) for pieces, after in part.order),
    )


def _is_ratio(output: Output, may: set[int]) -> bool:
    """Whether it is no linear function of several sums."""
    if len(may & {*_sums(output)}) < 2:
        return False
    if any(isinstance(piece, tuple) and piece[0] == "known" for piece in output.pieces):
        return True
    return linear.weights(Output(name=output.name, pieces=output.pieces)) is None


def _sums(output: Output) -> Iterable[int]:
    yield from _numbers(output.pieces)
    for guard in output.guards:
        yield from _numbers(guard)


def _numbers(pieces: Iterable[Piece]) -> Iterable[int]:
    for piece in pieces:
        if isinstance(piece, int):
            yield piece
        elif isinstance(piece, tuple) and piece[0] in ("known", "stddev"):
            yield piece[1]
