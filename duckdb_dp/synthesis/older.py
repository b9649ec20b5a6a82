"""Reads synthetic columns that older versions stored in other ways, as columns of the current version."""

from dataclasses import replace

import numpy as np

from duckdb_dp.answers import DETAIL, Columns
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.linop import Array
from duckdb_dp.synthesis.links.columns import link_attributes
from duckdb_dp.synthesis.table.columns import SHARES


def as_today(answers: Columns) -> Columns:
    """The release with its bins as ``table.columns.values`` stores them.

    dp_synthesize stored the values themselves, and NaN where there was none; they stay what they were, up to rounding.
    dp_links stored the cell numbers of a link's attributes; they become the middles of their bins.

    Privacy: post-processing.
    """
    if answers.request.function not in ("dp_synthesize", "dp_links"):
        return answers
    if answers.detail.get(SHARES):
        return answers
    links = answers.request.function == "dp_links"
    attributes = link_attributes(answers.request) if links else list(answers.request.attributes)
    first = len(answers.arrays) - (DETAIL in answers.arrays) - len(attributes)
    columns = {str(first + i): attribute for i, attribute in enumerate(attributes) if attribute.kind == "bins"}
    changed = {
        i: answers.arrays[i] + 0.5 if links else _shares(attribute, answers.arrays[i])
        for i, attribute in columns.items()
    }
    return replace(answers, arrays={**answers.arrays, **changed})


def _shares(attribute: Attribute, numbers: Array) -> Array:
    """Values as cell numbers with a share of the way through the bin; a cell beyond the bins where there is none."""
    ends = np.array([[float(end) for end in pair] for pair in attribute.held])
    one = 0.0 if attribute.dtype.continuous else 1.0
    amounts = numbers * attribute.dtype.per_stored
    cells = np.clip(np.searchsorted(ends[:, 0], amounts, side="right") - 1, 0, len(ends) - 1)
    lows, highs = ends[cells].T
    shares = np.clip((amounts - lows + one / 2) / (highs - lows + one), 0, 1)
    return np.where(np.isnan(numbers), attribute.size, np.minimum(cells + shares, np.nextafter(cells + 1.0, 0)))
