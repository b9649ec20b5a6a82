"""Reconstruction: from noisy measurements to answers. Post-processing: never sees data, costs nothing."""
