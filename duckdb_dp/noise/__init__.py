"""Exact samplers of noise: no floating-point rounding decides a released value."""
