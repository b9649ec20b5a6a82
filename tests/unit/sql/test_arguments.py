"""From the arguments of a call to a request: names, sets, budgets; never data."""

import itertools
import json
import math
from pathlib import Path

import pytest

from duckdb_dp.accounting.convert import gdp_mu, zcdp_rho
from duckdb_dp.accounting.ledger import Dataset, Ledger
from duckdb_dp.budget import Budget
from duckdb_dp.domain.domain import Attribute, declare
from duckdb_dp.errors import DPError
from duckdb_dp.request import Request
from duckdb_dp.sql.arguments import (
    LONG,
    LongArguments,
    candidates,
    find_attribute,
    find_dataset,
    flag,
    name_parts,
    parse_budget,
)
from duckdb_dp.sql.dp_marginals import KIND, parse_cliques
from duckdb_dp.sql.questions import parse_request

DECLARED = {
    name: declare(name=name, type="INTEGER", low=0, high=size - 1)
    for name, size in [("age", 4), ("sex", 2), ("Race", 3)]
}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "test.dp")


def protect(ledger: Ledger, full: str, **words: object) -> Dataset:
    catalog, schema, name = full.split(".")
    return ledger.protect(catalog=catalog, schema=schema, name=name, budget=Budget(epsilon=1, delta=1e-9), **words)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("adult", ("adult",)),
        ("my table", ("my table",)),
        ("hours-per-week", ("hours-per-week",)),
        ("select", ("select",)),
        ("日本", ("日本",)),
        ("it's; DROP TABLE adult", ("it's; DROP TABLE adult",)),
        ("main.adult", ("main", "adult")),
        ("db.main.adult", ("db", "main", "adult")),
        ('"adult"', ("adult",)),
        ('"my.table"', ("my.table",)),
        ('db."my ""odd"" schema"."a.b"', ("db", 'my "odd" schema', "a.b")),
    ],
)
def test_names(name: str, parts: tuple[str, ...]) -> None:
    assert name_parts(name) == parts


@pytest.mark.parametrize(
    "name", [None, 7, "", "  ", ["adult"], "a.b.c.d", "a..b", ".a", "a.", '"unclosed', '""', 'a"b', '"a"b', 'a."b" c']
)
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(DPError) as caught:
        name_parts(name)
    assert "\n" not in str(caught.value)


def test_the_order_of_search() -> None:
    assert candidates(("t",), "db", "s") == [("temp", "main", "t"), ("db", "s", "t")]
    assert candidates(("t",), "temp", "main") == [("temp", "main", "t")]
    assert candidates(("x", "t"), "db", "s") == [("db", "x", "t"), ("x", "main", "t")]
    assert candidates(("x", "y", "t"), "db", "s") == [("x", "y", "t")]


def test_finding_a_dataset(ledger: Ledger) -> None:
    one, two = protect(ledger, "db.main.adult"), protect(ledger, "other.main.adult")
    for name in ("adult", "ADULT", "main.adult", "db.adult", "db.main.adult", '"Db"."MAIN"."Adult"'):
        assert find_dataset(ledger, name, "db", "main") == one
    assert find_dataset(ledger, "adult", "OTHER", "Main") == two
    assert find_dataset(ledger, "other.adult", "db", "main") == two
    for name in ("visits", "s.adult", "third.main.adult"):
        with pytest.raises(
            DPError, match=r"is not protected, so nothing can be asked of it\. Protect it: CALL dp_protect\('"
        ):
            find_dataset(ledger, name, "db", "main")
    with pytest.raises(DPError, match="is not protected"):
        find_dataset(ledger, "adult", "db", "s")
    protect(ledger, "temp.main.adult")
    with pytest.raises(DPError, match=r"could be 'db\.main\.adult' and 'temp\.main\.adult'; write the full name"):
        find_dataset(ledger, "adult", "db", "main")
    protect(ledger, "main.main.adult")
    with pytest.raises(DPError, match="could be"):
        find_dataset(ledger, "main.adult", "db", "main")


def test_finding_an_attribute(ledger: Ledger) -> None:
    dataset = protect(ledger, "db.main.adult")
    assert find_attribute(dataset, DECLARED, "RACE") is DECLARED["Race"]
    for name in (None, 3, ["age"]):
        with pytest.raises(DPError, match=r"is no attribute of 'adult'; name declared ones: age, sex, Race\."):
            find_attribute(dataset, DECLARED, name)
    for name in ("height", ""):
        with pytest.raises(
            DPError,
            match=r"has no declared domain \(declared so far: age, sex, Race\)\. Declare it: CALL .* with low := \.\.\., high",
        ):
            find_attribute(dataset, DECLARED, name)
    with pytest.raises(DPError, match=r"declared so far: none"):
        find_attribute(dataset, {}, "age")


ALL = ["age", "sex", "Race"]


@pytest.mark.parametrize(
    ("asked", "cliques"),
    [
        (["age", "SEX"], [["age", "sex"]]),
        (["race", "age"], [["Race", "age"]]),
        ([["age", "sex"], ["race"], []], [["age", "sex"], ["Race"], []]),
        ([], [[]]),
        ([[]], [[]]),
        ("race", [["Race"]]),
        ("all 1-way", [[name] for name in ALL]),
        (" ALL 2-Way ", [list(c) for c in itertools.combinations(ALL, 2)]),
        ("all <=2-way", [[name] for name in ALL] + [list(c) for c in itertools.combinations(ALL, 2)]),
        ("all ≤ 3-way", [list(c) for order in (1, 2, 3) for c in itertools.combinations(ALL, order)]),
    ],
)
def test_sets(ledger: Ledger, asked: object, cliques: list[list[str]]) -> None:
    assert parse_cliques(protect(ledger, "db.main.adult"), DECLARED, asked) == cliques


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (None, "the attributes are NULL; write"),
        (3, "the attributes are 3; write"),
        ({"age": "range"}, "write"),
        ("pairs", "the attributes are 'pairs'; write"),
        ("all -1-way", "the attributes are 'all -1-way'; write"),
        ("all 0-way", "the order is 1 to 3"),
        ("all 4-way", "was asked of 3 declared attributes; the order is 1 to 3"),
        ("all 99999999999999999999-way", "the order is 1 to 3"),
        (["age", "AGE"], "names an attribute twice"),
        ([["age"], None], "an attribute set is NULL"),
        ([["age"], "sex"], "an attribute set is 'sex'"),
        (["age", "height"], "'adult'.'height' has no declared domain"),
        ([[["age"]]], "['age'] is no attribute of 'adult'; name declared ones: age, sex, Race"),
    ],
)
def test_what_is_no_set(ledger: Ledger, asked: object, says: str) -> None:
    with pytest.raises(DPError) as caught:
        parse_cliques(protect(ledger, "db.main.adult"), DECLARED, asked)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_of_nothing_and_all_of_too_many(ledger: Ledger) -> None:
    dataset = protect(ledger, "db.main.adult")
    with pytest.raises(DPError, match=r"has no declared attributes\. Declare them: CALL dp_attributes\('adult'\)"):
        parse_cliques(dataset, {}, "all 1-way")
    many = {f"x{i}": declare(name=f"x{i}", type="BOOLEAN") for i in range(60)}
    with pytest.raises(DPError, match="are 386,206,920 marginals; ask for a lower order"):
        parse_cliques(dataset, many, "all 7-way")


def request(dataset: Dataset, declared: dict[str, Attribute] = DECLARED, **arguments: object) -> Request:
    given = {"attributes": ["age"], "epsilon": 0.5, **arguments}
    return parse_request(KIND, given, dataset, declared, parse_budget(given, dataset))


def test_a_request(ledger: Ledger) -> None:
    dataset = protect(ledger, "db.main.adult", unit="id", max_rows=3)
    found = request(dataset, attributes=[["Race", "AGE"], []], weights=[2, 0.5], mechanism="GAUSSIAN", objective=None)
    assert (found.function, found.catalog, found.schema, found.table) == ("dp_marginals", "db", "main", "adult")
    assert (found.unit, found.max_rows, found.accounting.name) == ("id", 3, "gdp")
    assert [attribute.name for attribute in found.attributes] == [
        "age",
        "Race",
    ]  # in the dataset's order; sex is not in use
    assert found.cliques == (("age", "Race"), ())
    assert [question.weight for question in found.questions] == [2, 0.5]
    assert (found.mechanism, found.objective) == ("gaussian", "total")


def test_the_order_within_a_set_is_no_part_of_it(ledger: Ledger) -> None:
    dataset = protect(ledger, "db.main.adult")
    assert request(dataset, attributes=["age", "sex"]) == request(dataset, attributes=[["SEX", "age"]])
    assert request(dataset, attributes=["age"]).hash != request(dataset, attributes=[["age"], []]).hash


@pytest.mark.parametrize(
    ("budget", "accounting", "cost"),
    [
        ({"mu": 0.5}, "gdp", 0.25),
        ({"mu": 0.5}, "zcdp", 0.125),
        ({"rho": 0.3}, "gdp", 0.6),
        ({"rho": 0.3}, "zcdp", 0.3),
        ({"epsilon": 0.5}, "gdp", gdp_mu(0.5, 1e-9) ** 2),
        ({"epsilon": 0.5, "delta": 1e-10}, "gdp", gdp_mu(0.5, 1e-10) ** 2),
        ({"epsilon": 0.5}, "zcdp", zcdp_rho(0.5, 1e-9)),
    ],
)
def test_budgets(ledger: Ledger, budget: dict[str, float], accounting: str, cost: float) -> None:
    dataset = protect(ledger, "db.main.adult", accounting=accounting)
    found = request(dataset, **{"epsilon": None, **budget}).cost
    assert found == pytest.approx(cost, rel=2e-11)
    assert found <= cost  # never more than was typed
    assert ("epsilon" not in budget) == (found == cost) or len(f"{found!r}") <= 18


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": None}, {"rho": 1}, {"epsilon": math.nan}, {"epsilon": 0}, {"epsilon": "1"}, {"delta": 1}, {"weights": 3},
        {"weights": [1, 2]}, {"weights": [0]}, {"weights": [None]}, {"weights": [True]}, {"weights": ["heavy"]},
        {"mechanism": 3}, {"objective": ["total"]},
    ],
)  # fmt: skip
def test_what_is_no_request(ledger: Ledger, arguments: dict[str, object]) -> None:
    with pytest.raises(DPError) as caught:
        request(protect(ledger, "db.main.adult"), **arguments)
    assert "\n" not in str(caught.value)


def test_flags() -> None:
    assert [flag({"fresh": value}, "fresh") for value in (None, False, True)] == [False, False, True]
    assert flag({}, "fresh") is False
    for value in ("false", "true", 0, 1, [], "", 0.0):
        with pytest.raises(DPError, match="write fresh := true or leave it out"):
            flag({"fresh": value}, "fresh")


def test_long_arguments_are_read_once_for_a_plan_and_its_run() -> None:
    arguments = LongArguments()
    long = json.dumps({"values": ["x" * LONG]})
    planned = arguments.read(long)
    assert arguments.read(long) is planned
    assert arguments.read(long) is not planned  # run again, as a prepared statement is
    assert arguments.read('{"values": []}') == {"values": []}
    assert arguments.read(long) == planned
    short = '{"values": ["x"]}'
    assert arguments.read(short) is not arguments.read(short)
