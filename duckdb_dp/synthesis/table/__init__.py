"""One synthetic table from noisy marginals: measure, fit, draw records, decode them, and score them."""
