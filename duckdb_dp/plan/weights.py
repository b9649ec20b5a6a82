"""Which sums have one weight of each owner: those of a ratio, so that no owner counts less above the line than below it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.outputs import Output
from duckdb_dp.plan.clipping import Clip


def weighed(clips: Sequence[Clip], parts: Sequence[GroupedSums]) -> tuple[Clip, ...]:
    """The bounds, each with the others of the sums that are divided by each other, directly or through a third one.

    Numbers of owners stay apart: an owner counts once there, whatever it adds elsewhere.

    Args:
        clips: one for each sum, or for several.
        parts: the grouping sets; the sums are numbered through all of them.
    """
    sums = [one for part in parts for one in part.sums]
    place_of = {
        index: place
        for place, clip in enumerate(clips)
        for index in clip.sums
        if (clip.chosen or clip.declared is not None) and not clip.rows and not sums[index].distinct
    }
    leader = list(range(len(clips)))

    def led(place: int) -> int:
        while leader[place] != place:
            place = leader[place]
        return place

    first = 0
    for part in parts:
        for output in part.outputs:
            below = [place_of[first + index] for index in _below(output) if first + index in place_of]
            pieces = (first + piece for piece in output.pieces if isinstance(piece, int))
            for place in (place_of[index] for index in pieces if index in place_of and below):
                leader[led(place)] = led(below[0])
        first += len(part.sums)
    groups: dict[int, list[str]] = {}
    for place, clip in enumerate(clips):
        groups.setdefault(led(place), []).append(clip.name)
    return tuple(
        replace(clip, together=tuple(name for name in groups[led(place)] if name != clip.name))
        for place, clip in enumerate(clips)
    )


def _below(output: Output) -> Iterator[int]:
    """The sums that an expression divides by: what it guards, or of an average the rows that are to be clearly there."""
    yield from (piece for guard in output.guards for piece in guard if isinstance(piece, int))
    yield from (piece[1] for piece in output.pieces if isinstance(piece, tuple) and piece[0] == "known")
