"""The best circulant strategy in closed form: weighted Fourier coefficients.

Source: [WFF25] Lebeda et al. 2025; [QS26] appendix C.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def power_of_rows(rows: Array, sizes: tuple[int, ...]) -> Array:
    """Power g_f = sum over queries of |fft(q)_f|^2 / N at every frequency, shape ``sizes``; rows (m, N) weighted, centred."""
    spectrum = np.fft.fftn(rows.reshape(-1, *sizes), axes=range(1, len(sizes) + 1))
    found: Array = (np.abs(spectrum) ** 2).sum(axis=0) / rows.shape[1]
    return found


def power_of_gram(gram: Array) -> Array:
    """The same for one attribute from its centred Gram matrix (n, n): g_f = [F G F*]_ff with the unitary F."""
    found: Array = np.fft.fft(np.fft.ifft(gram, axis=1), axis=0).diagonal().real
    return found


def circulant(power: Array, sizes: tuple[int, ...]) -> tuple[Array, float]:
    """Minimise tr(G V^+) over V that are circulant along every axis and have unit diagonal.

    V has spectrum N sqrt(g_f) / sum sqrt(g), and the least error is (sum_f sqrt(g_f))^2 / N.

    Args:
        power: g_f, shape ``sizes``.
        sizes: sizes of the axes, N = prod sizes.

    Returns:
        (B, error): B (N, N), circulant and symmetric, B^T B = V.
    """
    cells = power.size
    root = np.sqrt(np.where(power > 1e-14 * power.max(), power, 0.0)).reshape(sizes)
    kernel = np.fft.ifftn(np.sqrt(cells * root / root.sum())).real
    place = np.indices(sizes, dtype=np.int32).reshape(len(sizes), -1)
    shift = np.zeros((cells, cells), dtype=np.int32)
    for a, n in zip(place, sizes, strict=True):
        shift = shift * np.int32(n) + (a[:, None] - a[None, :]) % np.int32(n)
    return kernel.reshape(-1)[shift], float(root.sum() ** 2 / cells)
