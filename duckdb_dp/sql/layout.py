"""The columns of answers to queries: which label each answer has, and the SQL that lays them out."""

from collections.abc import Sequence
from dataclasses import dataclass

from duckdb_dp.attribute import Attribute, Scalar
from duckdb_dp.data.encode import literal, quote
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Question, Request


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one query set: the label of each query along one of its axes.

    Attributes:
        axis: axis of ``part.shape``.
        labels: one per query along it.
    """

    axis: int
    labels: Sequence[Scalar | None]


def queries(request: Request, plan: Plan, handle: str, *, private: bool) -> str:
    """SELECT with a row per query of dp_queries: query, bounds of each attribute, predicate, answer and its error."""
    attributes = {attribute.name: attribute for attribute in request.attributes}
    types: dict[str, str] = {}
    laid: list[dict[str, Column]] = []
    for index, question in enumerate(request.questions):
        columns: dict[str, Column] = {}
        part = plan.workload.parts[index]
        if question.joint:
            texts = [text for _, text in question.shown] or _pair_texts(question, part.queries[0].count)
            columns["predicate"] = Column(0, texts)
            types["predicate"] = "VARCHAR"
        for axis, (name, family) in enumerate(
            zip(question.clique, part.queries, strict=False) if not question.joint else ()
        ):
            bounds, attribute = family.bounds(), attributes[name]
            if bounds is None:
                columns[f"{name}_predicate"] = Column(axis, [text for key, text in question.shown if key == name])
                types[f"{name}_predicate"] = "VARCHAR"
                continue
            low, high, type_ = _edges(attribute)
            columns[f"{name}_from"] = Column(axis, [low[cell] for cell in bounds[0]])
            columns[f"{name}_to"] = Column(axis, [high[cell] for cell in bounds[1]])
            types[f"{name}_from"] = types[f"{name}_to"] = type_
        laid.append(columns)
    heads = [f"{literal(describe(question))} AS query" for question in request.questions]
    return _union(request, plan, handle, types, laid, heads, "answer", private=private)


def select(request: Request, plan: Plan, handle: str, *, private: bool) -> str:
    """SELECT with the columns of the SELECTs of dp_sql, each answer's error, and which SELECT it answers if several."""
    attributes = {attribute.name: attribute for attribute in request.attributes}
    types: dict[str, str] = {}
    laid: list[dict[str, Column]] = []
    heads: list[str] = []
    counted: set[str] = set()
    spelled: dict[str, str] = {}
    for question in request.questions:
        own = tuple((key, name) for key, name in question.shown if key[:1] not in ("=", "#"))
        (number,) = [name for key, name in question.shown if key == "#"]
        columns: dict[str, Column] = {}
        for key, asked in own:
            name = spelled.setdefault(asked.lower(), asked)  # names are the same in any letter case, as in DuckDB
            if key == "":
                counted.add(name)
            else:
                type_ = attributes[key].column_type
                types[name] = type_ if types.get(name, type_) == type_ else "VARCHAR"
                if (found := _group_labels(question, key, attributes)) is not None:
                    columns[name] = found
        laid.append(columns)
        heads.append(number)
    answer = counted.pop() if len(counted) == 1 else "answer"
    numbered = [f"{number} AS query" for number in heads] if len(set(heads)) > 1 else [""] * len(heads)
    return _union(request, plan, handle, types, laid, numbered, answer, private=private)


def describe(question: Question) -> str:
    """A query set in a few words: 'age range, sex identity'."""
    if question.joint:
        kind = question.kinds[0] if isinstance(question.kinds[0], str) else "predicates"
        return f"{'+'.join(question.clique)} {kind}"
    kinds = (kind if isinstance(kind, str) else "predicates" for kind in question.kinds)
    return ", ".join(f"{name} {kind}" for name, kind in zip(question.clique, kinds, strict=True)) or "total"


def _union(
    request: Request,
    plan: Plan,
    handle: str,
    types: dict[str, str],
    laid: list[dict[str, Column]],
    heads: list[str],
    answer: str,
    *,
    private: bool,
) -> str:
    """One SELECT per query set: each is worked out when its rows are read, so memory holds one set at a time."""
    selects = []
    marked = "" if private else ", false AS private"
    for index, (columns, head) in enumerate(zip(laid, heads, strict=True)):
        shape = plan.workload.parts[index].shape
        shown = [head] if head else []
        for name, type_ in types.items():
            if name in columns:
                column = columns[name]
                stride = 1
                for count in shape[column.axis + 1 :]:
                    stride *= count
                labels = f"CAST([{', '.join(map(literal, column.labels))}] AS {type_}[])"
                shown.append(f"({labels})[i // {stride} % {shape[column.axis]} + 1] AS {quote(name)}")
            else:
                shown.append(f"CAST(NULL AS {type_}) AS {quote(name)}")
        total = 1
        for count in shape:
            total *= count
        interval = (
            f"answer - {plan.quantile!r}::DOUBLE * sd AS ci_low, answer + {plan.quantile!r}::DOUBLE * sd AS ci_high"
        )
        selects.append(
            f"SELECT {', '.join([*shown, f'answer AS {quote(answer)}', 'sd AS stddev', interval])}{marked} FROM "
            f"(SELECT unnest(range(n)) AS i, unnest(_dp_cells(handle, {index})) AS answer, "
            f"unnest(_dp_stddevs(handle, {index})) AS sd "
            # A constant range would be folded into a literal of millions of values while the statement is planned.
            f"FROM (SELECT handle, {total} + 0 * length(handle) AS n FROM handle))"
        )
    return f"WITH {handle} {' UNION ALL '.join(selects)}"


def _edges(attribute: Attribute) -> tuple[list[Scalar | None], list[Scalar | None], str]:
    """(lower, upper) bound of every cell and their type: bin edges, else the cell's label twice."""
    if attribute.kind == "bins":
        bounds = attribute.bounds()
        type_ = attribute.type if attribute.family == "temporal" else "DOUBLE"
        return [low for low, _ in bounds], [high for _, high in bounds], type_
    labels = attribute.labels()
    return labels, labels, attribute.column_type


def _group_labels(question: Question, name: str, attributes: dict[str, Attribute]) -> Column | None:
    """The labels of a grouped column in one grouping set; None where it is summed out."""
    labels = attributes[name].labels()
    if question.joint:
        (head,) = {key for key, _ in question.shown if key.startswith("=")}
        grouped = head[1:].split(",")
        if name not in grouped:
            return None
        place = grouped.index(name)
        return Column(0, [labels[int(cells.split(",")[place])] for key, cells in question.shown if key == head])
    if name not in question.clique:
        return None
    axis = question.clique.index(name)
    if question.kinds[axis] == "identity":
        return Column(axis, labels)
    cells = [cell for key, cell in question.shown if key == f"={name}"]
    return None if cells == [""] else Column(axis, [labels[int(cell)] for cell in cells])


def _pair_texts(question: Question, count: int) -> list[str]:
    a, b = question.clique
    text = f"{a} + {b} <= " if question.kinds[0] == "affine" else f"abs({a} - {b}) <= "
    return [f"{text}{c}" for c in range(count)]
