"""The columns of answers to queries: the labels of each answer, and the SQL that returns them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from duckdb_dp.counting.encode import array, literal, quote, union_all
from duckdb_dp.domain.domain import Attribute
from duckdb_dp.domain.types import Scalar
from duckdb_dp.outputs import within
from duckdb_dp.plan.base import Plan
from duckdb_dp.request import Question, Request
from duckdb_dp.select_parts import SelectColumn, SelectPart
from duckdb_dp.sql.aggregates import ends as ends_of
from duckdb_dp.sql.aggregates import outputs


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one query set: the label of each query along one of its axes.

    Attributes:
        axis: axis of ``part.shape``.
        labels: one per query along it, or per cell.
        ends: which of the cells each query has, as ``execute.ends`` takes it; '' where there is a label per query.
    """

    axis: int
    labels: Sequence[Scalar | None]
    ends: str = ""


@dataclass(frozen=True, slots=True)
class ResultBlock:
    """Rows that share their labels: one query set, or several on the same groups.

    Attributes:
        columns: label columns by name.
        head: SQL of a column that says which query it is, or ''.
        indices: positions of the query sets in the request; the i-th gives columns a<i> and s<i>.
        answers: name -> SQL of (answer, stddev).
        ends: name -> between which numbers an answer lies, where that is known: it is moved there, and so are the ends of its interval.
        shown: SQL condition on the number ``i`` of an answer: that it is a row; '' where all are.
    """

    columns: dict[str, Column]
    head: str
    indices: tuple[int, ...]
    answers: dict[str, tuple[str, str]]
    ends: dict[str, tuple[float, float]] = field(default_factory=dict)
    shown: str = ""


MOST_BINS = 10_000
"""Bins whose labels sort in their order: those of more are texts."""


def bins_type(attribute: Attribute) -> str:
    """The ENUM of labels that do not sort as texts, those of bins, and of numbers, dates and times beside 'other'; '' of others."""
    sorts = attribute.kind != "bins" and (attribute.dtype.textual or not attribute.other)
    if sorts or attribute.size > MOST_BINS:
        return ""
    return f"ENUM({', '.join(literal(str(label)) for label in attribute.labels() if label is not None)})"


def queries(request: Request, plan: Plan, handle: str, *, private: bool) -> str:
    """SELECT with a row per query of dp_queries: query, bounds of each attribute, predicate, answer and its error."""
    attributes = {attribute.name: attribute for attribute in request.attributes}
    types: dict[str, str] = {}
    sets: list[ResultBlock] = []
    for index, question in enumerate(request.questions):
        columns: dict[str, Column] = {}
        part = plan.workload.parts[index]
        if question.joint:
            texts = question.texts("") or _pair_texts(question, part.queries[0].count)
            columns["predicate"] = Column(0, texts)
            types["predicate"] = "VARCHAR"
        for axis, (name, family) in enumerate(
            zip(question.clique, part.queries, strict=False) if not question.joint else ()
        ):
            bounds, attribute = family.bounds(), attributes[name]
            if bounds is None:
                columns[f"{name}_predicate"] = Column(axis, question.texts(name))
                types[f"{name}_predicate"] = "VARCHAR"
                continue
            low, high, type_ = _edges(attribute)
            for end, labels in enumerate((low, high)):
                if family.count > family.n:  # a label for each range would make the statement too long
                    column = Column(axis, labels, f"{index} {axis} {end}")
                else:
                    column = Column(axis, [labels[cell] for cell in bounds[end]])
                columns[f"{name}_{('from', 'to')[end]}"] = column
            types[f"{name}_from"] = types[f"{name}_to"] = type_
        head = f"{literal(describe(question))} AS query"
        sets.append(ResultBlock(columns, head, (index,), {"answer": ("a0", "s0")}))
    return f"WITH {handle} {_union(plan, types, sets, alone=True, private=private)}"


def select(request: Request, plan: Plan, handle: str, *, private: bool) -> str:
    """SELECT with the columns of the SELECTs of dp_sql, each answer's error, and which SELECT it answers if several."""
    return f"WITH {handle} {selected(request, plan, private=private)}"


def selected(request: Request, plan: Plan, *, private: bool, only: int | None = None) -> str:
    """The same of a CTE ``handle``; or the answers to the SELECT of that number alone, each error named by its answer."""
    attributes = {attribute.name: attribute for attribute in request.attributes}
    groups = [
        indices
        for indices in grouped(request.questions)
        if only in (None, _selected(request.questions[indices[0]]).number)
    ]
    alone = only is None and {len(_aggregates(request.questions[indices[0]])) for indices in groups} == {1}
    named = {_aggregates(request.questions[indices[0]])[0].name for indices in groups}
    single = (named.pop() if len(named) == 1 else "answer") if alone else None
    numbers = {_selected(request.questions[indices[0]]).number for indices in groups}
    types: dict[str, str] = {}
    sets: list[ResultBlock] = []
    spelled: dict[str, str] = {}
    for indices in groups:
        question = request.questions[indices[0]]
        columns: dict[str, Column] = {}
        for column in _selected(question).columns:
            # Names are the same in any letter case, as in DuckDB.
            name = spelled.setdefault(column.name.lower(), column.name)
            if column.function:
                continue
            type_ = attributes[column.attribute].column_type
            types[name] = type_ if types.get(name, type_) == type_ else "VARCHAR"
            if (found := _group_labels(question, column.attribute, attributes)) is not None:
                columns[name] = found
        place = {_selected(request.questions[index]).query: i for i, index in enumerate(indices)}
        items = {
            single or spelled.setdefault(item.name.lower(), item.name): (item, attributes.get(item.attribute))
            for item in _aggregates(question)
        }
        answers = {name: outputs(item, place, plan.quantile, one) for name, (item, one) in items.items()}
        bounds = {name: ends for name, (item, one) in items.items() if (ends := ends_of(item, one)) is not None}
        head = f"{_selected(question).number} AS query" if len(numbers) > 1 else ""
        sets.append(ResultBlock(columns, head, tuple(indices), answers, bounds, _shown(request, plan, indices[0])))
    return _union(plan, types, sets, alone=single is not None, private=private, first=request.sums)


def _selected(question: Question) -> SelectPart:
    """What a question of dp_sql answers of a SELECT."""
    assert question.select is not None, "questions of dp_sql are parts of SELECTs"
    return question.select


def grouped(questions: Sequence[Question]) -> list[list[int]]:
    """Positions of the questions that make up the same rows: a grouping set of one SELECT, by its linear queries."""
    groups: list[list[int]] = []
    for index, question in enumerate(questions):
        first = groups[-1][0] if groups else None
        same = first is not None and _selected(questions[first]).number == _selected(question).number
        seen = {_selected(questions[i]).query for i in groups[-1]} if groups else set()
        if same and _selected(question).query not in seen:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _aggregates(question: Question) -> list[SelectColumn]:
    """The aggregates of the SELECT that a question belongs to."""
    return [column for column in _selected(question).columns if column.function]


def describe(question: Question) -> str:
    """A query set in a few words: 'age range, sex identity'."""
    if question.joint:
        kind = question.kinds[0] if isinstance(question.kinds[0], str) else "predicates"
        return f"{'+'.join(question.clique)} {kind}"
    if question.disjunction:
        return f"{' or '.join(question.clique)} predicates"
    kinds = (kind if isinstance(kind, str) else "predicates" for kind in question.kinds)
    return ", ".join(f"{name} {kind}" for name, kind in zip(question.clique, kinds, strict=True)) or "total"


def _union(
    plan: Plan,
    types: dict[str, str],
    sets: list[ResultBlock],
    *,
    alone: bool,
    private: bool,
    first: int = 0,
) -> str:
    """One SELECT per set: each is worked out when its rows are read, so memory holds one set at a time.

    Args:
        types: of the label columns.
        sets: what to lay out.
        alone: whether each row has one answer; its error columns then have no prefix.
        first: what the answers are numbered from.
    """
    marked = "" if private else ", false AS private"
    names = list(dict.fromkeys(name for laid in sets for name in laid.answers))
    selects = []
    for laid in sets:
        shape = plan.workload.parts[laid.indices[0]].shape
        shown = [laid.head] if laid.head else []
        shown += [_label(laid.columns.get(name), name, type_, shape) for name, type_ in types.items()]
        for name in names:
            answer, stddev = laid.answers.get(name, ("NULL::DOUBLE", "NULL::DOUBLE"))
            half, prefix = f"{plan.quantile!r}::DOUBLE * ({stddev})", "" if alone else f"{name}_"
            texts, bounds = (answer, f"{answer} - {half}", f"{answer} + {half}"), laid.ends.get(name)
            value, low, high = texts if bounds is None else (text.join(within(*bounds)) for text in texts)
            shown += [
                f"{value} AS {quote(name)}",
                f"{stddev} AS {quote(prefix + 'stddev')}",
                f"{low} AS {quote(prefix + 'ci_low')}",
                f"{high} AS {quote(prefix + 'ci_high')}",
            ]
        read = ", ".join(
            f"unnest(_dp_cells(handle, {first + index})) AS a{i}, unnest(_dp_stddevs(handle, {first + index})) AS s{i}"
            for i, index in enumerate(laid.indices)
        )
        for cells in (column.ends for column in laid.columns.values() if column.ends):
            read += f", unnest(_dp_ends(handle, '{cells}')) AS {_named(cells)}"
        selects.append(
            f"SELECT {', '.join(shown)}{marked} FROM (SELECT unnest(range(n)) AS i, {read} "
            # A constant range would be folded into a literal of millions of values while the statement is planned.
            f"FROM (SELECT handle, {math.prod(shape)} + 0 * length(handle) AS n FROM handle))"
            f"{f' WHERE {laid.shown}' if laid.shown else ''}"
        )
    return union_all(selects)


def _shown(request: Request, plan: Plan, index: int) -> str:
    """SQL condition on the number of an answer: that no axis of it is at a cell that is not shown."""
    shape, found = plan.workload.parts[index].shape, []
    for axis, shown in enumerate(request.shape(index)):
        if shown < shape[axis]:
            found.append(f"i // {math.prod(shape[axis + 1 :])} % {shape[axis]} < {shown}")
    return " AND ".join(found)


def _label(column: Column | None, name: str, type_: str, shape: tuple[int, ...]) -> str:
    """A label column of one set in SQL; NULL where the set has none."""
    if column is None:
        return f"CAST(NULL AS {type_}) AS {quote(name)}"
    if column.ends:
        return f"({array(type_, column.labels)})[{_named(column.ends)} + 1] AS {quote(name)}"
    stride = math.prod(shape[column.axis + 1 :])
    return f"({array(type_, column.labels)})[i // {stride} % {shape[column.axis]} + 1] AS {quote(name)}"


def _named(ends: str) -> str:
    return f"e{ends.replace(' ', '_')}"


def _edges(attribute: Attribute) -> tuple[list[Scalar | None], list[Scalar | None], str]:
    """(lower, upper) bound of every cell and their type: bin edges, else the cell's label twice."""
    if attribute.kind == "bins":
        bounds = attribute.bounds()
        return [low for low, _ in bounds], [high for _, high in bounds], attribute.dtype.edge_type
    labels = attribute.labels()
    return labels, labels, attribute.column_type


def _group_labels(question: Question, name: str, attributes: dict[str, Attribute]) -> Column | None:
    """The labels of a grouped column in one grouping set; None where it is summed out."""
    labels = attributes[name].labels()
    selected = _selected(question)
    for groups in selected.groups:
        if name in groups.attributes:
            place, axis = groups.attributes.index(name), 0 if question.joint else question.clique.index(name)
            return Column(axis, [labels[cells[place]] for cells in groups.cells])
    if question.joint or name not in question.clique or name in selected.summed:
        return None
    return Column(question.clique.index(name), labels)


def _pair_texts(question: Question, count: int) -> list[str]:
    a, b = question.clique
    text = f"{a} + {b} <= " if question.kinds[0] == "affine" else f"abs({a} - {b}) <= "
    return [f"{text}{c}" for c in range(count)]
