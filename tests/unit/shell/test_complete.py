"""What is offered next while a statement is typed."""

from typing import Any

import pytest

from duckdb_dp.shell.complete import Names, arguments, complete, headers, names_of


@pytest.fixture(scope="module")
def names(shared: Any) -> Names:
    shared.connection.execute('CREATE OR REPLACE TABLE "odd name" AS SELECT 1 AS "a column"')
    return names_of(shared.connection)


def texts(before: str, names: Names) -> list[str]:
    return [found.text for found in complete(before, names)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("FROM dp_marg", "dp_marginals("),
        ("CALL ", "dp_protect("),
        ("sel", "select"),
        ("SEL", "SELECT"),
        ("SELECT sm", "smoker"),
        ("FROM peo", "people"),
        ("FROM od", '"odd name"'),
        ("SELECT strp", "strptime("),
        ("FROM dp_marginals('", "people"),
        ("FROM dp_marginals('people', ['", "age"),
        ("FROM dp_marginals('people', 'all", "all 2-way"),
        ("FROM dp_queries('people', {'age': 'ra", "range"),
        ("FROM dp_marginals('people', ['age'], eps", "epsilon := "),
        ("FROM dp_marginals('people', ['age'], ", "epsilon := "),
        ("CALL dp_attribute('people', 'age', val", '"values" := '),
        ("FROM dp_sql('SELECT 1', prec", '"precision" := '),
        ("CALL dp_attribute('people', 'sm", "smoker"),
        ("SELECT 'a;b'; FROM dp_rel", "dp_release("),
    ],
)
def test_candidates(names: Names, before: str, expected: str) -> None:
    assert expected in texts(before, names)


@pytest.mark.parametrize("before", ["", "SELECT 'pe", "SELECT 1 -- peo", "SELECT 12", "FROM people WHERE age > "])
def test_nothing_is_offered_where_nothing_fits(names: Names, before: str) -> None:
    assert texts(before, names) == []


def test_arguments_that_are_there_are_not_offered_again(names: Names) -> None:
    found = texts("FROM dp_marginals('people', ['age'], epsilon := 1, ", names)
    assert "epsilon := " not in found
    assert "delta := " in found


def test_a_candidate_replaces_the_word(names: Names) -> None:
    (found, *_) = complete("FROM peo", names)
    assert (found.text, found.replaces) == ("people", 3)


def test_every_function_has_a_signature() -> None:
    assert set(arguments()) == set(headers())
    for name, text in headers().items():
        assert text.startswith(f"{name}(")
        for argument in arguments()[name]:
            assert argument in text.splitlines()[0] + text, (name, argument)


def test_selects_in_texts_know_aggregates_columns_and_tables() -> None:
    known = Names(tables=("adult",), columns={"age": "adult"})
    assert [found.text for found in complete("FROM dp_sql('SELECT med", known)] == ["median("]
    assert [found.text for found in complete("FROM dp_sql('SELECT sex, a", known)] == ["avg(", "age", "adult"]
    assert [found.text for found in complete("CALL dp_view('v', 'SELECT * FROM ad", known)] == ["adult"]
    assert [found.text for found in complete("FROM dp_sql('SELECT ", known)] == []
