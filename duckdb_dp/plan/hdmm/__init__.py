"""HDMM: strategies for unions of Kronecker products, with Gaussian or with Laplace noise."""

from duckdb_dp.plan.hdmm.laplace import laplace
from duckdb_dp.plan.hdmm.select import check_cells, hdmm, hdmm_pure

__all__ = ["check_cells", "hdmm", "hdmm_pure", "laplace"]
