"""An average of two noisy sums of the same numbers, about 0 and about a centre, weighed by their noise."""


def average(sums: tuple[str, str, str], noise: tuple[str, str, str], centre: float) -> str:
    """SQL of (1 - w) S / N + w (c + T / N), with the w of the least variance.

    With independent noise of standard deviations s, t and n its variance about m is

        ((1 - w)^2 s^2 + w^2 t^2 + (m - w c)^2 n^2) / N^2,

    which is least where w = (s^2 + c m n^2) / (s^2 + t^2 + c^2 n^2). For m stands what s and t alone make of both: S / N may be far off
    where T is sharp. Products are of ratios u = t / s and v = c n / s, which stay numbers where x is very large or small.

    Args:
        sums: SQL of the sum S of x, of the sum T of x - c, and of the number N of rows.
        noise: SQL of s, t and n.
        centre: c.

    Privacy: post-processing.
    """
    (first, moved, rows), (s, t, n) = sums, noise
    c = f"CAST({centre!r} AS DOUBLE)"
    second, u, v = f"({c} * {rows} + {moved})", f"({t} / {s})", f"({c} * ({n} / {s}))"
    mean = f"({first} * {u} * {u} + {second}) / (1 + {u} * {u}) / {rows}"
    share = f"(1 + {v} * ({mean} * ({n} / {s}))) / (1 + {u} * {u} + {v} * {v})"
    return f"({first} + {share} * ({second} - {first})) / {rows}"
