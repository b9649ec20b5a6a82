"""Requests: canonical, hashable, one release each; another one wherever anything that matters differs."""

import dataclasses
import hashlib
import json
import math

import pytest

from duckdb_dp.accounting.base import GDP, ZCDP
from duckdb_dp.domain.attribute import declare
from duckdb_dp.errors import DPError
from duckdb_dp.request import MAX_CELLS, SLACK, Question, Request

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
}
QUESTIONS = {
    "clique": ("age",),
    "kinds": ("prefix", "identity"),
    "joint": True,
    "disjunction": True,
    "weight": 1.0 + 1e-15,
    "shown": (("age", "how old"),),
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


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Request)])
def test_every_field_matters(field: str) -> None:
    changed = dataclasses.replace(REQUEST, **{field: CHANGES[field]})
    assert changed.hash != REQUEST.hash
    assert Request.from_json(changed.to_json()) == changed


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Question)])
def test_every_field_of_a_question_matters(field: str) -> None:
    question = REQUEST.questions[0]
    changed = dataclasses.replace(question, **{field: QUESTIONS[field]})
    assert Question.from_json(json.loads(json.dumps(changed.to_json()))) == changed
    assert json.dumps(changed.to_json(), sort_keys=True) != json.dumps(question.to_json(), sort_keys=True)


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
