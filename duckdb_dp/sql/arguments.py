"""From the arguments of a SQL function to a ``Request``. It reads declarations only, never data."""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_FLOOR, Context
from typing import Any, final

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.accounting.budget_filter import check_own
from duckdb_dp.accounting.ledger import Dataset, Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.counting.encode import full_name
from duckdb_dp.counting.engines.source import SCHEMA
from duckdb_dp.domain.domain import Attribute, UnknownAttribute
from duckdb_dp.errors import DPError, as_sql, few, quoted, quoted_name
from duckdb_dp.request import units

Arguments = Mapping[str, Any]

Place = tuple[str, str]
"""(catalog, schema) where names are looked for."""


LONG = 100_000
"""From so many characters on, what arguments were read as is kept until the call runs."""


@final
class LongArguments:
    """Long arguments as they were read while a call was planned, until it runs: to read a million edges takes 0.2 s.

    What is read is not changed by whoever reads it.
    """

    def __init__(self) -> None:
        self._last: tuple[str, Arguments] | None = None

    def read(self, text: str) -> Arguments:
        """The arguments of that JSON text."""
        last, self._last = self._last, None
        if last is not None and last[0] == text:
            return last[1]
        found: Arguments = json.loads(text)
        if len(text) >= LONG:
            self._last = text, found
        return found


@final
class UnknownDataset(DPError):  # noqa: N818  what it says of a name
    """No table is protected under this name; ``missing_tables`` adds what the catalog knows about the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{as_sql(name)} is not protected, so nothing can be asked of it. Protect it: CALL dp_protect({quoted(name)}, "
            "epsilon := 1, delta := 1e-9)"
        )


def column_parts(text: str) -> tuple[str, str] | None:
    """(table, column) of 'table.column', of which quotes may be around names with a dot; the table is '' where none is named."""
    found = re.fullmatch(r'(?s)(?:(.*)\.)?("(?:[^"]|"")+"|[^."]+)', text)
    return None if found is None else (found[1] or "", found[2].strip('"').replace('""', '"'))


def name_parts(name: object) -> tuple[str, ...]:
    """'table', 'schema.table' or 'catalog.schema.table', with SQL quoting, as parts.

    Raises:
        DPError: not such a name.
    """
    if not isinstance(name, str) or not name.strip():
        raise DPError(f"the dataset is {as_sql(name)}; name a table or view, e.g. 'adult' or 'db.main.adult'.")
    part = r'(?:"(?:[^"]|"")+"|[^."]+)'
    parts: tuple[str, ...] = (name,) if name.isidentifier() else ()
    if not parts and re.fullmatch(rf"{part}(?:\.{part})*", name):
        found = re.findall(part, name)
        parts = tuple(text[1:-1].replace('""', '"') if text.startswith('"') else text for text in found)
    if not 1 <= len(parts) <= 3:
        raise DPError(
            f"the dataset name {as_sql(name)} is not a table's name; write 'table', 'schema.table' or 'catalog.schema.table'."
        )
    return parts


def candidates(parts: tuple[str, ...], catalog: str, schema: str) -> list[tuple[str, str, str]]:
    """The full names that a name may stand for, in DuckDB's own order of search."""
    if len(parts) == 3:
        return [(parts[0], parts[1], parts[2])]
    if len(parts) == 2:
        return [(catalog, parts[0], parts[1]), (parts[0], "main", parts[1])]
    return list(dict.fromkeys([("temp", "main", parts[0]), (catalog, schema, parts[0])]))


WITHOUT = "common_subexpressions"
"""The optimizer that takes an expression which stands twice in a statement out of TRY(...), where it may fail: ``load`` disables it."""


_CHANGED = {
    "integer_division": "/ of whole numbers would be //",
    "ieee_floating_point_ops": "a division by zero would be an error",
    "old_implicit_casting": "texts and numbers would be compared as texts",
}
"""Settings under which an expression means something else than where groups are worked out, which has none of them."""


def check_settings(collation: str, settings: str) -> None:
    """Refuse to count under a default collation: it would merge several units into one, and the bound on rows would fail.

    And where DuckDB may evaluate what can fail outside TRY, so that an error would show a private value; and where an expression would
    mean one thing in a condition and another one in a group.

    Args:
        collation: the default one.
        settings: the optimizers that are disabled, then those that are ``_CHANGED``, each behind a semicolon.

    Raises:
        DPError: the connection is set so.
    """
    disabled_optimizers, *changed = settings.split(";")
    if WITHOUT not in disabled_optimizers.split(","):
        disabled = ",".join(filter(None, [disabled_optimizers, WITHOUT]))
        raise DPError(
            "disabled_optimizers was changed since duckdb_dp was loaded, and DuckDB's errors could show private values now: "
            f"SET disabled_optimizers = '{disabled}' first."
        )
    if changed:
        raise DPError(
            f"{changed[0]} is set so that {_CHANGED.get(changed[0], 'expressions mean something else')}, which only a part of an answer "
            f"would heed; RESET {changed[0]} first."
        )
    if collation:
        raise DPError(
            f"default_collation is '{collation}', under which several people may count as one, so that their bounds on rows "
            "do not hold; RESET default_collation first."
        )


def find_dataset(ledger: Ledger, name: object, catalog: str, schema: str) -> Dataset:
    """The protected dataset that a name stands for; for an account of the gateway, of those that it was granted.

    Raises:
        DPError: none is protected under that name, or two are.
    """
    wanted = [_folded(full) for full in candidates(name_parts(name), catalog, schema)]
    found = [d for d in ledger.families.relations() if _folded((d.catalog, d.schema, d.name)) in wanted]
    if ledger.account is not None:
        found = [d for d in found if ledger.accounts.granted(ledger.account, d)]
    if not found:
        raise UnknownDataset(str(name))
    if len(found) > 1:
        names = few((f"'{d.catalog}.{d.schema}.{d.name}'" for d in found), " and ")
        raise DPError(f"{as_sql(name)} could be {names}; write the full name.")
    return found[0]


def in_full(ledger: Ledger, arguments: Arguments, place: Place) -> dict[str, Any]:
    """A call's arguments, with an attached dataset by its full name.

    Raises:
        DPError: the name could be a DuckDB table's too.
    """
    name = arguments.get("dataset")
    if not isinstance(name, str):
        return dict(arguments)
    return {**arguments, "dataset": full_name_of(ledger, name, place)}


def full_name_of(ledger: Ledger, name: str, place: Place) -> str:
    """The name as it is, or the full name of the one attached dataset that it stands for alone.

    Raises:
        DPError: it could be that of several.
    """
    parts = name_parts(name)
    found = [d for d in ledger.families.relations() if (d.schema, d.name.lower()) == (SCHEMA, parts[-1].lower())]
    if len(parts) > 1 or not found:
        return name
    here = {tuple(part.lower() for part in full) for full in candidates(parts, *place)}
    found += [d for d in ledger.datasets() if (d.catalog.lower(), d.schema.lower(), d.name.lower()) in here]
    if len(found) > 1:
        names = " and ".join(f"'{d.catalog}.{d.schema}.{d.name}'" for d in found)
        raise DPError(f"'{name}' could be {names}; write the full name.")
    (dataset,) = found
    return full_name(dataset.catalog, dataset.schema, dataset.name)


def find_attribute(dataset: Dataset, declared: Mapping[str, Attribute], name: object) -> Attribute:
    """The declared attribute of that name, in any letter case.

    Raises:
        DPError: it has no declared domain.
    """
    for attribute in declared.values():
        if isinstance(name, str) and attribute.name.lower() == name.lower():
            return attribute
    if not isinstance(name, str):
        raise DPError(
            f"{as_sql(name)} is no attribute of '{dataset.name}'; name declared ones: {few(declared) or 'none'}."
        )
    raise UnknownAttribute(name, declared, (dataset.name, dataset.argument))


def outside_the_domain(names: Iterable[str]) -> str:
    """The advice for a condition that no declared cell satisfies, though rows outside the domain may."""
    return (
        "A row that does, if there is any, has a value outside the declared domain, and is in no answer; to count such rows "
        f"declare {few(map(repr, names))} with a wider domain, and NULL with nulls := true."
    )


def parse_budget(arguments: Arguments, dataset: Dataset) -> Budget:
    """The request's budget; epsilon without delta takes the dataset's delta, less what that reserves for thresholds.

    Raises:
        DPError: it is no budget, or only the dataset's closed periods have one; or its delta is above the dataset's.
    """
    check_own(dataset)
    given = {word: arguments.get(word) for word in ("epsilon", "delta", "rho", "mu")}
    if "precision" in arguments and all(value is None for value in given.values()):
        raise DPError("no budget: type exactly one of epsilon, rho, mu and precision, such as epsilon := 1.")
    budget = Budget(**given)
    check_delta(budget, dataset)
    return budget.with_delta(dataset.cost_delta)


def check_delta(budget: Budget, dataset: Dataset) -> None:
    """Refuse a delta above the dataset's: the sum is kept at that one, where the epsilon that was typed costs far more.

    Raises:
        DPError: it is above.
    """
    if budget.delta and dataset.epsilon and dataset.delta and budget.delta > dataset.delta:
        raise DPError(
            f"delta {budget.delta:g} is above {dataset.delta:g}, at which the budget of '{dataset.name}' is kept: epsilon "
            f"{budget.epsilon:g} would cost more of it than it says; leave delta out."
        )


def no_postprocess(arguments: Arguments, function: str) -> None:
    """Refuse post-processing for answers that are not marginals.

    Raises:
        DPError: postprocess or reconstruct is given.
    """
    for name in ("postprocess", "reconstruct"):
        if arguments.get(name) not in (None, "unbiased"):
            raise DPError(f"the release is of {function}, and {name} is only for marginals; leave it out.")


def check_unit(dataset: Dataset) -> None:
    """Refuse a dataset with two units, in a request that counts its rows.

    Raises:
        DPError: the dataset has two units.
    """
    if len(units(dataset.unit)) > 1:
        raise DPError(
            f"'{dataset.name}' protects {' and '.join(map(repr, dataset_units(dataset)))} together, by a promise that "
            "only dp_links and dp_quality with synthetic := {...} check; ask these, or protect a view of the table by one of them."
        )


def check_bounded(dataset: Dataset, function: str, *, takes: str | None = "max_rows") -> None:
    """Refuse a dataset whose bound on a unit's rows is chosen by each request, where a request does not.

    Args:
        dataset: it.
        function: what needs a number of rows.
        takes: the argument by which the call may give one; None where it takes none.

    Raises:
        DPError: its max_rows is 'auto'.
    """
    if not dataset.auto_rows:
        return
    needs = f"'{dataset.name}' was protected without a number of rows for each unit, and {function} needs one"
    if takes is not None:
        raise DPError(
            f"{needs}: add {takes} := 1 where a unit has one row, as in a table of people; else {takes} := 5, say: of each unit 5 rows "
            "count at most, with 5 times the noise of one."
        )
    rows = quoted(f"SELECT * FROM {full_name(dataset.catalog, dataset.schema, dataset.name)}")
    raise DPError(
        f"{needs}. Name a relation with one, and ask that: CALL dp_view({quoted_name(dataset.name + '_5')}, {rows}, max_rows := 5)"
    )


def dataset_units(dataset: Dataset) -> list[str]:
    """What is protected, in words: 'user_id', or 'country, number' where a key has several columns."""
    return [", ".join(columns) for columns in units(dataset.unit)]


def stable_cost(budget: Budget, accounting: Accounting) -> float:
    """The cost, rounded down to 12 digits where it is solved for: another build of scipy must not change the identity."""
    exact = accounting.cost(budget)
    if budget.epsilon is None:
        return exact
    return float(Context(prec=12, rounding=ROUND_FLOOR).create_decimal(exact))


def flag(arguments: Arguments, name: str) -> bool:
    """A truth value; NULL and absence are false.

    Raises:
        DPError: it is something else, such as the text 'false'.
    """
    value = arguments.get(name)
    if value is not None and not isinstance(value, bool):
        raise DPError(f"{name} is {as_sql(value)}; write {name} := true or leave it out.")
    return bool(value)


def word(arguments: Arguments, name: str, default: str) -> str:
    """An argument that is a word, in small letters.

    Raises:
        DPError: it is something else.
    """
    value = arguments.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise DPError(f"{name} is {as_sql(value)}; it is a word, e.g. '{default}'.")
    return value.lower()


def whole_number(arguments: Arguments, name: str, most: int) -> int | None:
    """An argument that counts something; None where it is not given.

    Raises:
        DPError: it is no whole number from 1 to ``most``.
    """
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise DPError(
            f"{name} is {as_sql(value)}; it is a whole number from 1 to {most:,}, e.g. {name} := {min(most, 10)}."
        )
    return value


LONGEST_NAME = 500
"""Characters of the name of a release."""


def release_name(arguments: Arguments) -> str | None:
    """The name that the release is given.

    Raises:
        DPError: it is no text, or a long one.
    """
    name = arguments.get("release")
    if isinstance(name, str) and len(name) > LONGEST_NAME:
        raise DPError(f"the release's name has {len(name):,} characters; give one of at most {LONGEST_NAME}.")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise DPError(f"release is {as_sql(name)}; a release's name is a text, e.g. release := 'census'.")
    return name


def _folded(full: tuple[str, str, str]) -> tuple[str, str, str]:
    catalog, schema, name = full
    return catalog.lower(), schema.lower(), name.lower()
