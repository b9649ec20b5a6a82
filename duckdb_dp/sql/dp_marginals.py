"""dp_marginals: noisy counts of every cell of one or more marginals."""

import math
import re
from typing import Any

from duckdb_dp.accounting.ledger import Dataset
from duckdb_dp.answers import check_postprocess
from duckdb_dp.domain.domain import Domain
from duckdb_dp.domain.workload import Workload
from duckdb_dp.errors import DPError, as_sql
from duckdb_dp.plan.base import Plan
from duckdb_dp.reconstruct.postprocess import KINDS
from duckdb_dp.request import Question, Request
from duckdb_dp.sql import render
from duckdb_dp.sql.arguments import Arguments, find_attribute, flag, word
from duckdb_dp.sql.question_kinds import Declared, Kind
from duckdb_dp.sql.questions import register_kind
from duckdb_dp.sql.readings import chosen

PGM = "pgm"
"""Private-PGM, which reads marginals by a library that is not always there."""

POSTPROCESSES = (*KINDS, PGM)


def questions(asked: Any, dataset: Dataset, declared: Declared, arguments: Arguments) -> tuple[Question, ...]:
    """One question per marginal, with its weight.

    Raises:
        DPError: these are not sets of declared attributes, or the weights do not fit them.
    """
    cliques = parse_cliques(dataset, declared, asked)
    weights = arguments.get("weights")
    if weights is not None and not isinstance(weights, list):
        raise DPError(f"weights is {as_sql(weights)}; give one positive number per marginal, e.g. [2, 1].")
    used = {name for clique in cliques for name in clique}
    domain = Domain({name: attribute.size for name, attribute in declared.items() if name in used})
    checked = Workload.marginals(domain, cliques, weights)
    return tuple(Question.marginal(part.clique, part.weight) for part in checked.parts)


def parse_cliques(dataset: Dataset, declared: Declared, asked: object) -> list[list[str]]:
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


def _all_ways(dataset: Dataset, declared: Declared, text: str) -> list[list[str]]:
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


def rows(request: Request, planned: Plan | None, handle: str, arguments: Arguments, private: bool) -> str:
    """SELECT with a row per cell of each marginal. The error of an adaptive mechanism, or of post-processed counts, is unknown."""
    postprocess = parse_postprocess(arguments, request)
    check_postprocess(request, postprocess)
    if planned is not None and postprocess is None:
        errors = render.Errors.of(planned)
    else:
        errors = render.Errors(stddevs=None, measured=postprocess is None, postprocess=postprocess)
    return render.marginals(request, errors, handle, bounds=flag(arguments, "bounds"), private=private)


def parse_postprocess(arguments: Arguments, request: Request) -> str | None:
    """The post-processing of the noisy counts when they are read; None for none. It is free, so not part of the request.

    Raises:
        DPError: an unknown post-processing, or queries that are not marginals.
    """
    asked = word(arguments, "postprocess", "fitted" if request.adaptive else "unbiased")
    if (rebuilt := arguments.get("reconstruct")) is not None:
        if rebuilt != PGM or arguments.get("postprocess") is not None:
            raise DPError(
                f"reconstruct is {as_sql(rebuilt)}; write reconstruct := 'pgm' alone, or use postprocess := 'fitted'."
            )
        asked = PGM
    if asked not in KINDS and asked != PGM:
        raise DPError(f"postprocess is {as_sql(asked)}; use 'unbiased', 'nonnegative' or 'fitted'.")
    if asked == "unbiased":
        return None
    if request.function != FUNCTION.name:
        raise DPError(f"{request.function}: postprocess := '{asked}' is for marginals; ask dp_marginals for them.")
    return asked


def describe(question: Question) -> str:
    """The attributes of a marginal: 'age,sex'."""
    return ",".join(question.clique)


KIND = Kind(
    name="dp_marginals",
    argument="attributes",
    recognises=lambda _arguments: False,  # dp_explain takes for attribute sets what is nothing else
    questions=questions,
    rows=rows,
    describe=describe,
    adaptive=True,
    chosen=chosen,
)
FUNCTION = register_kind(KIND)
