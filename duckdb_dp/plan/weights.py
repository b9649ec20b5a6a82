"""Which sums have one weight of each owner: those of a ratio, so that no owner counts less above the line than below it."""

from collections.abc import Sequence
from dataclasses import replace

from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.plan.clipping import Clip


def weighed(clips: Sequence[Clip], parts: Sequence[GroupedSums]) -> tuple[Clip, ...]:
    """The bounds, each with the others of the sums that it makes ratios with, directly or through a third one.

    Args:
        clips: one for each sum, or for several.
        parts: the grouping sets; the sums are numbered through all of them. ``weighed`` are those that stand in ratios.
    """
    sums = [one for part in parts for one in part.sums]
    place_of = {index: place for place, clip in enumerate(clips) for index in clip.sums if sums[index].weighed}
    leader = list(range(len(clips)))

    def led(place: int) -> int:
        while leader[place] != place:
            place = leader[place]
        return place

    first = 0
    for part in parts:
        for output in part.outputs:
            pieces = (first + piece for piece in output.pieces if isinstance(piece, int))
            places = [place_of[index] for index in pieces if index in place_of]
            for place in places:
                leader[led(place)] = led(places[0])
        first += len(part.sums)
    groups: dict[int, list[str]] = {}
    for place, clip in enumerate(clips):
        groups.setdefault(led(place), []).append(clip.name)
    return tuple(
        replace(clip, together=tuple(name for name in groups[led(place)] if name != clip.name))
        for place, clip in enumerate(clips)
    )
