"""HDMM: strategies for unions of Kronecker products, with Gaussian or Laplace noise."""

from duckdb_dp.plan.hdmm.select import hdmm, hdmm_pure

__all__ = ["hdmm", "hdmm_pure"]
