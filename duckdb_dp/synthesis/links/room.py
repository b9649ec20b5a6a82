"""Numbers of links as far as there is room for them."""

import numpy as np

from duckdb_dp.linop import Array, Integers


def within_room(links: Array, room: Array | Integers | float, total: float | None = None) -> Array:
    """Links in proportion to these as far as there is room, min(s links, room), that add up to a total if that is possible.

    Those that should be none get some only where no others have room.

    Args:
        links: none is negative.
        room: the most that each may get; may be infinite.
        total: by default that of the links.

    Privacy: post-processing.
    """
    wanted = float(links.sum())
    total, room = wanted if total is None else total, np.broadcast_to(np.asarray(room, dtype=np.float64), links.shape)
    links = np.maximum(links, max(1e-12 * wanted / max(len(links), 1), 1e-300))
    order = np.argsort(room / links)
    full = np.cumsum(
        np.append(0.0, room[order])[:-1]
    )  # where all before one are full, s is what is left over what they want
    scales = (total - full) / np.cumsum(links[order][::-1])[::-1]
    (first,) = np.nonzero(scales * links[order] <= room[order])
    return np.asarray(np.minimum(links * max(float(scales[first[0]]), 0.0), room) if len(first) else room.copy())
