"""Releases of older versions, read as those of today: they stored what was drawn of bins in other ways."""

from dataclasses import replace

import numpy as np

from duckdb_dp.answers import DETAIL, Answers, Columns
from duckdb_dp.domain.attribute import Attribute
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.link_rows import own_attributes
from duckdb_dp.synthesis.rows import SHARES


def as_today(found: Answers) -> Answers:
    """The release with its bins as ``rows.values`` stores them.

    dp_synthesize stored the values themselves, and NaN where there was none; they stay what they were, up to rounding.
    dp_links stored the cell numbers of a link's attributes; they become the middles of their bins.

    Privacy: post-processing.
    """
    if not isinstance(found, Columns) or found.request.function not in ("dp_synthesize", "dp_links"):
        return found
    if found.detail.get(SHARES):
        return found
    links = found.request.function == "dp_links"
    own = own_attributes(found.request) if links else list(found.request.attributes)
    first = len(found.arrays) - (DETAIL in found.arrays) - len(own)
    columns = {str(first + i): attribute for i, attribute in enumerate(own) if attribute.kind == "bins"}
    changed = {
        i: found.arrays[i] + 0.5 if links else _shares(attribute, found.arrays[i]) for i, attribute in columns.items()
    }
    return replace(found, arrays={**found.arrays, **changed})


def _shares(attribute: Attribute, numbers: Array) -> Array:
    """Values as cell numbers with a share of the way through the bin; a cell beyond the bins where there is none."""
    ends = np.array([[float(end) for end in pair] for pair in attribute.held])
    one = 0.0 if attribute.dtype.continuous else 1.0
    amounts = numbers * attribute.dtype.per_stored
    cells = np.clip(np.searchsorted(ends[:, 0], amounts, side="right") - 1, 0, len(ends) - 1)
    lows, highs = ends[cells].T
    shares = np.clip((amounts - lows + one / 2) / (highs - lows + one), 0, 1)
    return np.where(np.isnan(numbers), attribute.size, np.minimum(cells + shares, np.nextafter(cells + 1.0, 0)))
