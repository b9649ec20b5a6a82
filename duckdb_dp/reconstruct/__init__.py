"""Reconstruction: from noisy measurements to answers. It is post-processing: it never uses exact data, and costs nothing."""
