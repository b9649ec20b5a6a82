"""From the arguments of a SQL function to a Request. Sees declarations only, never data."""

import math
import re
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Context
from typing import Any

from duckdb_dp.accounting.base import Accounting
from duckdb_dp.accounting.ledger import Dataset, Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.domain.attribute import DOMAINS, Attribute
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql, few, quoted
from duckdb_dp.request import ADAPTIVE, Question, Request, units

Arguments = Mapping[str, Any]

COUNTING = (
    "dp_marginals", "dp_queries", "dp_sql", "dp_synthesize", "dp_links", "dp_quality", "dp_release",
    "dp_synthesize_database",
)  # fmt: skip
"""Functions whose SQL compares values of tables, and so depends on how text is compared."""


def name_parts(name: object) -> tuple[str, ...]:
    """'table', 'schema.table' or 'catalog.schema.table', with SQL quoting, as parts.

    Raises:
        DPError: not such a name.
    """
    if not isinstance(name, str) or not name.strip():
        raise DPError(f"the dataset is {as_sql(name)}; name a table or view, e.g. 'adult' or 'db.main.adult'.")
    part = r'(?:"(?:[^"]|"")+"|[^."]+)'
    parts: tuple[str, ...] = ()
    if re.fullmatch(rf"{part}(?:\.{part})*", name):
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


def check_collation(function: str, collation: str) -> None:
    """Refuse to count under a default collation: it would make one unit of several, with more rows than are kept of one.

    Raises:
        DPError: the connection has one.
    """
    if collation and function in COUNTING:
        raise DPError(
            f"default_collation is '{collation}', under which several people may count as one, so that their bounds on rows "
            "do not hold; RESET default_collation first."
        )


def find_dataset(ledger: Ledger, name: object, catalog: str, schema: str) -> Dataset:
    """The protected dataset that a name stands for.

    Raises:
        DPError: none is protected under that name, or two are.
    """
    wanted = [_folded(full) for full in candidates(name_parts(name), catalog, schema)]
    found = [d for d in ledger.datasets() if _folded((d.catalog, d.schema, d.name)) in wanted]
    if not found:
        raise DPError(
            f"{as_sql(name)} is not protected, so nothing can be asked of it. Protect it: CALL dp_protect({quoted(str(name))}, "
            "epsilon := 1, delta := 1e-9)"
        )
    if len(found) > 1:
        names = few((f"'{d.catalog}.{d.schema}.{d.name}'" for d in found), " and ")
        raise DPError(f"{as_sql(name)} could be {names}; write the full name.")
    return found[0]


def find_attribute(dataset: Dataset, declared: Mapping[str, Attribute], name: object) -> Attribute:
    """The declared attribute of that name, in any letter case.

    Raises:
        DPError: it has no declared domain.
    """
    for attribute in declared.values():
        if isinstance(name, str) and attribute.name.lower() == name.lower():
            return attribute
    so_far = few(declared) or "none"
    if not isinstance(name, str):
        raise DPError(f"{as_sql(name)} is no attribute of '{dataset.name}'; name declared ones: {so_far}.")
    raise DPError(
        f"'{dataset.name}'.{as_sql(name)} has no declared domain (declared so far: {so_far}). "
        f"Declare it: CALL dp_attribute({dataset.argument}, {quoted(name)}, ...) with {DOMAINS}; "
        f"CALL dp_attributes({dataset.argument}) lists what each column needs."
    )


def parse_budget(arguments: Arguments, dataset: Dataset) -> Budget:
    """The request's budget; epsilon without delta takes the dataset's delta."""
    budget = Budget(**{word: arguments.get(word) for word in ("epsilon", "delta", "rho", "mu")})
    return budget.with_delta(dataset.delta)


def parse_cliques(dataset: Dataset, declared: Mapping[str, Attribute], asked: object) -> list[list[str]]:
    """['age', 'sex'], [['age'], []], 'all 2-way' or 'all <=3-way' as lists of declared attribute names."""
    if isinstance(asked, str):
        return _all_ways(dataset, declared, asked)
    if not isinstance(asked, list):
        raise DPError(
            f"the attributes are {as_sql(asked)}; write ['age', 'sex'], [['age', 'sex'], ['age']] or 'all 2-way'."
        )
    if not asked:
        return [[]]
    sets = asked if any(isinstance(item, list) for item in asked) else [asked]
    cliques = []
    for names in sets:
        if not isinstance(names, list):
            raise DPError(f"an attribute set is {as_sql(names)}; write a list of names, or [] for the total.")
        found = [find_attribute(dataset, declared, name).name for name in names]
        if len(set(found)) < len(found):
            raise DPError(f"the attribute set {as_sql(names)} names an attribute twice; name it once.")
        cliques.append(found)
    return cliques


def _all_ways(dataset: Dataset, declared: Mapping[str, Attribute], text: str) -> list[list[str]]:
    match = re.fullmatch(r"\s*all\s+(<=|≤)?\s*(\d+)-way\s*", text, re.IGNORECASE)
    if match is None:
        if any(text.lower() == name.lower() for name in declared):
            return [[find_attribute(dataset, declared, text).name]]
        raise DPError(f"the attributes are {as_sql(text)}; write ['age', 'sex'], 'all 2-way' or 'all <=3-way'.")
    if not declared:
        raise DPError(
            f"'{dataset.name}' has no declared attributes. Declare them: CALL dp_attributes({dataset.argument}) or dp_attribute."
        )
    domain = Domain(dict.fromkeys(declared, 1))
    order = int(match.group(2))
    if not 1 <= order <= len(declared):
        raise DPError(
            f"{as_sql(text)} was asked of {len(declared)} declared attributes; the order is 1 to {len(declared)}."
        )
    count = math.comb(len(declared), order)
    if count > 1_000_000:
        raise DPError(
            f"{as_sql(text)} of {len(declared)} attributes are {count:,} marginals; ask for a lower order or name the ones you need."
        )
    return [list(clique) for clique in Workload.all_k_way(domain, order, upto=match.group(1) is not None).cliques]


def parse_questions(
    function: str, arguments: Arguments, dataset: Dataset, declared: Mapping[str, Attribute]
) -> tuple[Question, ...]:
    """What a call asks: marginals, the entries of dp_queries, or the SELECTs of dp_sql.

    Raises:
        DPError: what ``sql.md`` calls bad input, one line each.
    """
    if function == "dp_queries":
        from duckdb_dp.sql.entries import parse_entries  # brings sqlglot, which a marginal need not wait for

        return tuple(parse_entries(declared, arguments["queries"]))
    if function == "dp_sql":
        from duckdb_dp.sql.select import parse_selects, questions

        selects = enumerate(parse_selects(arguments["sql"]), 1)
        return tuple(question for number, select in selects for question in questions(select, number, declared))
    cliques = parse_cliques(dataset, declared, arguments["attributes"])
    weights = arguments.get("weights")
    if weights is not None and not isinstance(weights, list):
        raise DPError(f"weights is {as_sql(weights)}; give one positive number per marginal, e.g. [2, 1].")
    used = {name for clique in cliques for name in clique}
    domain = Domain({name: attribute.size for name, attribute in declared.items() if name in used})
    checked = Workload.marginals(domain, cliques, weights)
    return tuple(Question.marginal(part.clique, part.weight) for part in checked.parts)


def parse_request(
    function: str, arguments: Arguments, dataset: Dataset, declared: Mapping[str, Attribute], budget: Budget
) -> Request:
    """The canonical request of a call.

    Raises:
        DPError: what ``sql.md`` calls bad input, one line each.
    """
    check_unit(dataset)
    asked = parse_questions(function, arguments, dataset, declared)
    mechanism = word(arguments, "mechanism", "auto")
    used = {name for question in asked for name in question.clique}
    return Request(
        function=function,
        catalog=dataset.catalog,
        schema=dataset.schema,
        table=dataset.name,
        unit=dataset.unit,
        max_rows=dataset.max_rows,
        accounting=dataset.accounting,
        attributes=tuple(attribute for name, attribute in declared.items() if name in used),
        questions=asked,
        cost=stable_cost(budget, dataset.accounting),
        mechanism=mechanism,
        objective=word(arguments, "objective", "total"),
        options=parse_options(arguments, mechanism, function),
    )


def parse_options(arguments: Arguments, mechanism: str, function: str) -> tuple[tuple[str, Any], ...]:
    """Arguments that only adaptive mechanisms take.

    Raises:
        DPError: one is given to another mechanism, or such a mechanism is asked for other queries than marginals.
    """
    given = {
        name: arguments[name]
        for name in ("given", "max_cells", "max_memory", "rounds")
        if arguments.get(name) is not None
    }
    if mechanism not in ADAPTIVE:
        if given:
            names = ", ".join(given)
            raise DPError(f"{names}: mechanism {as_sql(mechanism)} does not take that; mechanism := 'aim' does.")
        return ()
    if function != "dp_marginals":
        raise DPError(
            f"{function}: mechanism '{mechanism}' answers marginals; use dp_marginals, or mechanism := 'auto'."
        )
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(given.items()))


POSTPROCESSES = ("unbiased", "nonnegative", "fitted", "pgm")


def parse_postprocess(arguments: Arguments, request: Request) -> str | None:
    """How the noisy counts are made better when they are read; None for as they are. Free, so no part of the request.

    Raises:
        DPError: an unknown way, or other queries than marginals.
    """
    asked = word(arguments, "postprocess", "fitted" if request.mechanism == "pairs" else "unbiased")
    if (rebuilt := arguments.get("reconstruct")) is not None:
        if rebuilt != "pgm" or arguments.get("postprocess") is not None:
            raise DPError(
                f"reconstruct is {as_sql(rebuilt)}; write reconstruct := 'pgm' alone, or use postprocess := 'fitted'."
            )
        asked = "pgm"
    if asked not in POSTPROCESSES:
        raise DPError(f"postprocess is {as_sql(asked)}; use 'unbiased', 'nonnegative' or 'fitted'.")
    if asked == "unbiased":
        return None
    if request.function != "dp_marginals":
        raise DPError(f"{request.function}: postprocess := '{asked}' is for marginals; ask dp_marginals for them.")
    return asked


def check_unit(dataset: Dataset) -> None:
    """Refuse a dataset with two units, where rows are counted by themselves.

    Raises:
        DPError: it has two.
    """
    if len(units(dataset.unit)) > 1:
        raise DPError(
            f"'{dataset.name}' protects {' and '.join(map(repr, dataset_units(dataset)))} at once, which is a promise that "
            "only dp_links checks; ask that, or protect a view of the table by one of them."
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


def _folded(full: tuple[str, str, str]) -> tuple[str, str, str]:
    catalog, schema, name = full
    return catalog.lower(), schema.lower(), name.lower()
