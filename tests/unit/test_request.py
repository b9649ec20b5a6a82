"""Requests: canonical, hashable, one release each; another one wherever anything that matters differs."""

import dataclasses
import hashlib
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from duckdb_dp.accounting.base import GDP, ZCDP
from duckdb_dp.domain.domain import declare
from duckdb_dp.errors import DPError
from duckdb_dp.grouped_sums import GroupedSums, Label, Source, Sum
from duckdb_dp.outputs import Output
from duckdb_dp.request import MAX_CELLS, SLACK, VERSION, Question, Request
from duckdb_dp.select_parts import Groups, LinearQuery, SelectColumn, SelectPart

STORED = Path(__file__).parents[1] / "fixtures" / "ledger" / "ledger.sqlite"
AGE = declare(name="age", type="INTEGER", bins=[0, 18, 65, 120], nulls=True)
SEX = declare(name="sex", type="VARCHAR", values=["F", "M"], other=True)
REQUEST = Request(
    function="dp_marginals",
    catalog="db",
    schema="main",
    table="adult",
    unit="id",
    max_rows=3,
    accounting=GDP,
    attributes=(AGE, SEX),
    questions=(Question.marginal(("age", "sex")), Question.marginal((), 2.0)),
    cost=0.25,
    mechanism="auto",
    objective="total",
)
CHANGES = {
    "function": "dp_queries",
    "catalog": "other",
    "schema": "s",
    "table": "adults",
    "unit": None,
    "max_rows": 4,
    "accounting": ZCDP,
    "attributes": (AGE, declare(name="sex", type="VARCHAR", values=["M", "F"], other=True)),
    "questions": (Question.marginal(()), Question.marginal(("age", "sex"))),
    "cost": 0.25 + 1e-15,
    "mechanism": "residual",
    "objective": "max",
    "options": (("given", (1, 2)), ("rounds", 3)),
    "auto_rows": True,
    "source": Source(sql="SELECT age, sex, 1 AS o FROM x", owner=("o",)),
    "rest": ("sex",),
    "direct": (
        GroupedSums(
            number=2,
            columns=(("age", "INTEGER"),),
            where="age > 3",
            clique=("sex",),
            size=2,
            groups=(0, 1, -1),
            labels=(
                Label(name="s", type="VARCHAR", key=0, values=("F", None)),
                Label(name="", type="VARCHAR", key=1, attribute="sex"),
            ),
            sums=(Sum(value="age", where="x", low=-1.0, high=2.5, centre=0.75, square=True), Sum(distinct=True)),
            outputs=(
                Output(
                    name="m",
                    pieces=("100 * ", 0, " / ", 1, ("group", 0)),
                    numeric=False,
                    outer=("round(", ")"),
                    curved=True,
                    guards=((1,),),
                ),
            ),
            having=(1, " > 3 AND ", ("known", 1)),
            order=(((0,), " DESC NULLS LAST"),),
            limit=3,
        ),
    ),
}
QUESTIONS = {
    "clique": ("age",),
    "kinds": ("prefix", "identity"),
    "joint": True,
    "disjunction": True,
    "weight": 1.0 + 1e-15,
    "predicates": (("age", "age < 18"),),
    "select": SelectPart(
        number=2,
        query=LinearQuery(function="sum", attribute="age"),
        columns=(
            SelectColumn(name="who", attribute="sex"),
            SelectColumn(name="years", attribute="age", function="avg"),
        ),
        groups=(Groups(attributes=("sex",), cells=((0,), (2,))),),
        summed=("age",),
    ),
}


def test_canonical_json_round_trip() -> None:
    text = REQUEST.to_json()
    again = Request.from_json(text)
    assert again == REQUEST
    assert hash(again) == hash(REQUEST)
    assert again.to_json() == text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert REQUEST.hash == again.hash == hashlib.sha256(text.encode()).hexdigest()


def test_the_text_that_is_hashed() -> None:
    """Another text for the same request orphans every stored release: change it only with a migration."""
    plain = dataclasses.replace(
        REQUEST, questions=(Question.marginal(("age",)),), attributes=(AGE,), unit=None, max_rows=1
    )
    assert plain.to_json() == (
        '{"accounting":"gdp","attributes":[{"kind":"bins","name":"age","nulls":true,"other":false,"points":[0,18,65,120],'
        '"type":"INTEGER"}],"cost":0.25,"dataset":["db","main","adult"],"function":"dp_marginals","max_rows":1,'
        '"mechanism":"auto","objective":"total","questions":[{"clique":["age"],"joint":false,"kinds":["identity"],'
        '"shown":[],"weight":1.0}],"unit":null}'
    )


def question(tags: list[tuple[str, str]], clique: tuple[str, ...] = ("age", "sex"), *, joint: bool = False) -> Question:
    """A question of dp_sql, from text that version 1 wrote."""
    kinds = [[[1.0, 0.0]]] if joint else ["identity"] * len(clique)
    text = json.dumps({"clique": clique, "kinds": kinds, "joint": joint, "weight": 1.0, "shown": tags})
    found = Question.from_json(json.loads(text))
    assert json.dumps(found.to_json()) == text
    return found


@pytest.mark.parametrize(
    ("joint", "tags", "groups", "summed"),
    [
        (False, [("=age", "0"), ("=age", "3"), ("=sex", "")], [(("age",), ((0,), (3,)))], ("sex",)),
        (False, [("=age", ""), ("=sex", "")], [], ("age", "sex")),
        (False, [], [], ()),
        (True, [("=", "")], [((), ((),))], ()),
        (True, [("=sex", "1")], [(("sex",), ((1,),))], ()),
        (True, [("=sex,age", "0,1"), ("=sex,age", "1,3")], [(("sex", "age"), ((0, 1), (1, 3)))], ()),
    ],
)
def test_tags_of_version_1_are_read(joint: bool, tags: list, groups: list, summed: tuple[str, ...]) -> None:
    head = [("#", "2"), ("@", "centred:age"), ("sex", "who"), ("@count:", "n"), ("@avg:age", "years")]
    found = question(head + tags, joint=joint).select
    assert found == SelectPart(
        number=2,
        query=LinearQuery(function="centred", attribute="age"),
        columns=(
            SelectColumn(name="who", attribute="sex"),
            SelectColumn(name="n", attribute="", function="count"),
            SelectColumn(name="years", attribute="age", function="avg"),
        ),
        groups=tuple(Groups(attributes=names, cells=cells) for names, cells in groups),
        summed=summed,
    )


def test_names_with_commas_are_told_apart() -> None:
    tags = [("#", "1"), ("@", "count:"), ("@count:", "n"), ("=a,b,c", "0,1")]
    (groups,) = question(tags, ("a,b", "c"), joint=True).select.groups
    assert groups == Groups(attributes=("a,b", "c"), cells=((0, 1),))


def test_conditions_of_dp_queries_have_no_tags() -> None:
    found = question([("age", "age < 18"), ("age", "age > 65")])
    assert found.select is None
    assert found.texts("age") == ["age < 18", "age > 65"]
    assert found.texts("sex") == []
    assert question([("", "age < 18 OR sex = 'F'")], joint=True).texts("") == ["age < 18 OR sex = 'F'"]


def test_requests_that_were_stored_keep_their_identity() -> None:
    """Text that an earlier version stored, without a version, is read and is the same text again, to the byte."""
    with closing(sqlite3.connect(f"{STORED.as_uri()}?mode=ro&immutable=1", uri=True)) as ledger:
        stored = ledger.execute("SELECT request, request_hash FROM charges").fetchall()
    requests = [Request.from_json(text) for text, _ in stored]
    assert [(request.to_json(), request.hash) for request in requests] == stored
    assert sum(asked.select is not None for request in requests for asked in request.questions) == 10
    assert "version" not in json.loads(stored[0][0])


def test_requests_of_later_versions_are_refused() -> None:
    later = json.dumps(json.loads(REQUEST.to_json()) | {"version": VERSION + 1})
    with pytest.raises(DPError, match=rf"has version {VERSION + 1} .* upgrade duckdb_dp"):
        Request.from_json(later)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Request) if field.init])
def test_every_field_matters(field: str) -> None:
    changed = dataclasses.replace(REQUEST, **{field: CHANGES[field]})
    assert changed.hash != REQUEST.hash
    assert Request.from_json(changed.to_json()) == changed


def test_equal_requests_keep_their_own_texts() -> None:
    whole, decimal = (dataclasses.replace(REQUEST, cost=cost) for cost in (1, 1.0))
    assert whole == decimal
    assert '"cost":1,' in whole.to_json()
    assert '"cost":1.0,' in decimal.to_json()
    assert [repr(Request.from_json(one.to_json()).cost) for one in (whole, decimal)] == ["1", "1.0"]


OTHER_SUMS = {
    "number": 1, "columns": (), "where": "", "clique": (), "size": 3, "groups": None, "labels": (), "sums": (), "outputs": (),
    "having": (), "order": (), "limit": None, "source": Source(sql="SELECT 1 AS o", owner=("o",), single=True), "rows": 2,
}  # fmt: skip


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(GroupedSums)])
def test_every_field_of_sums_matters(field: str) -> None:
    (sums,) = CHANGES["direct"]
    changed = dataclasses.replace(sums, **{field: OTHER_SUMS[field]})
    first, second = (dataclasses.replace(REQUEST, direct=(found,)) for found in (sums, changed))
    assert first.hash != second.hash
    assert Request.from_json(second.to_json()) == second


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Question)])
def test_every_field_of_a_question_matters(field: str) -> None:
    asked = REQUEST.questions[0]
    changed = dataclasses.replace(asked, **{field: QUESTIONS[field]})
    assert Question.from_json(json.loads(json.dumps(changed.to_json()))) == changed
    assert json.dumps(changed.to_json(), sort_keys=True) != json.dumps(asked.to_json(), sort_keys=True)


@pytest.mark.parametrize("name", ["name", "type", "kind", "points", "other", "nulls"])
def test_every_field_of_an_attribute_matters(name: str) -> None:
    changes = {
        "name": "years",
        "type": "BIGINT",
        "kind": "values",
        "points": (0, 18, 65, 121),
        "other": True,
        "nulls": False,
    }
    changed = dataclasses.replace(AGE, **{name: changes[name]})
    questions = tuple(
        dataclasses.replace(q, clique=(changed.name, "sex") if q.clique else ()) for q in REQUEST.questions
    )
    assert dataclasses.replace(REQUEST, attributes=(changed, SEX), questions=questions).hash != REQUEST.hash


def test_what_follows_from_it() -> None:
    assert REQUEST.domain.sizes == {"age": 4, "sex": 3}
    assert REQUEST.cliques == (("age", "sex"), ())
    assert REQUEST.workload.weights == {("age", "sex"): 1.0, (): 2.0}
    assert REQUEST.calibrated == pytest.approx(0.25)
    assert REQUEST.calibrated < 0.25 * (1 - SLACK / 2)  # the noise is calibrated to less than is charged
    assert not REQUEST.adaptive
    assert dataclasses.replace(REQUEST, mechanism="aim").adaptive


def test_as_many_cells_as_memory_allows() -> None:
    side = math.isqrt(MAX_CELLS)
    wide = tuple(declare(name=name, type="INTEGER", low=1, high=side) for name in ("a", "b"))
    fits = dataclasses.replace(REQUEST, attributes=wide, questions=(Question.marginal(("a", "b")),))
    assert fits.workload.queries <= MAX_CELLS
    with pytest.raises(
        DPError, match=r"dp_marginals: the marginals have 100,000,001 cells together and the limit is 100,000,000"
    ):
        dataclasses.replace(fits, questions=(Question.marginal(("a", "b")), Question.marginal(())))
