"""Whether the SELECTs of one call of dp_sql have columns in common that do not fit."""

from collections.abc import Sequence

from duckdb_dp.domain import types
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.grouped_sums import GroupedSums
from duckdb_dp.sql.typed import output_types


def check_together(parts: Sequence[GroupedSums]) -> None:
    """Refuse SELECTs whose results have no common columns: a label here that is an answer or an error there.

    Raises:
        DPError: two columns of the result would be named alike.
    """
    labels = {label.name.lower() for part in parts for label in part.labels if label.name}
    outputs = {output.name.lower(): output.noisy for part in parts for output in part.outputs}
    errors = ("stddev", "ci_low", "ci_high", "clipped_at")
    taken = {*outputs, *errors, *(f"{name}_{error}" for name, noisy in outputs.items() if noisy for error in errors)}
    if len({part.number for part in parts}) > 1:
        _check_types(parts)
        taken |= {"query", "answer"}
        labels |= {"query"} & set(outputs)
    if alike := sorted(labels & taken):
        raise DPError(
            f"{as_sql(alike[0])} is a group of one SELECT and another column of the result; give it another alias."
        )


def _check_types(parts: Sequence[GroupedSums]) -> None:
    """Refuse a column of the result that would hold dates beside numbers; one column holds the only answer of each SELECT."""
    noisy = [[output for output in part.outputs if output.noisy] for part in parts]
    alone = all(len(outputs) == 1 for outputs in noisy)
    kinds: dict[str, dict[str, str]] = {}
    for part in parts:
        for output, type_ in zip(part.outputs, output_types(part, parts), strict=True):
            name = "" if alone and output.noisy else output.name.lower()
            if (kind := _kind(type_)) != "VARCHAR":  # which anything can be shown as
                kinds.setdefault(name, {}).setdefault(kind, output.name)
    for names in kinds.values():
        if len(names) > 1:
            raise DPError(
                f"{' and '.join(map(as_sql, dict.fromkeys(names.values())))} would be one column of {' and '.join(names)}; ask them in "
                "calls of their own, or several answers in each SELECT."
            )


def _kind(type_: str) -> str:
    """Types that one column can hold have one kind."""
    found = types.find(type_)
    if type_ == "BOOLEAN" or (found is not None and found.numeric):
        return "numbers"
    return "dates" if type_.startswith(("DATE", "TIMESTAMP")) else type_.strip('"').replace("NULL", "VARCHAR")
