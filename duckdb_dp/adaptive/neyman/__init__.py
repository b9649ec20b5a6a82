"""The mechanism 'neyman', our own: it scores all pairs at once, and divides the budget among them for the least L1 error.

Gaussian steps alone. ``mechanism`` has the rounds, ``scores`` the score vector, ``allocation`` the division of the budget,
``triples`` what is measured beyond pairs. Its two estimates are ``reconstruct.estimate``'s, combined by ``reconstruct.combination``.
"""

from duckdb_dp.adaptive.neyman.mechanism import check, neyman

__all__ = ["check", "neyman"]
