"""HAVING may name what stands above the aggregates: a subquery of the list, what is made of one, and keys by another spelling."""

from collections.abc import Iterator

import pytest

from tests.conftest import Loaded
from tests.sql.some_visits import answers, loaded

SOURCES = {"users": "id", "visits v JOIN users u ON v.person = u.id": "visit_id"}
ASKED = [
    "SELECT sex, avg({x}) AS m, (SELECT avg(x) / 2 FROM visits) AS o FROM {source} GROUP BY sex HAVING m > o",
    "SELECT sex, count(*) AS n, (SELECT max(town) FROM towns) AS o FROM {source} GROUP BY sex HAVING o > 3 AND n > o",
    "SELECT sex, (SELECT max(t.town) FROM towns t) AS o, count(*) AS n FROM {source} GROUP BY sex HAVING o > 4",
    "SELECT sex, count(*) / (SELECT count(*) FROM users) AS share FROM {source} GROUP BY sex HAVING share > 0.1 AND sex = 'f'",
    "SELECT sex, count(*) AS n, count(*) / (SELECT max(town) FROM towns) AS share FROM {source} GROUP BY sex HAVING share > 0.1 ORDER BY share DESC, sex LIMIT 1",
    "SELECT sex, count(*) AS n, (SELECT max(town) FROM towns) AS o FROM {source} GROUP BY sex HAVING (SELECT min(town) FROM towns) < o",
]


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with loaded(tmp_path_factory.mktemp("having")) as found:
        yield found


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("asked", [*ASKED, *(one.replace("BY sex HAVING", "BY ALL HAVING") for one in ASKED)])
def test_having_names_a_subquery(visits: Loaded, asked: str, source: str) -> None:
    text = asked.format(source=source, x="x" if "visits" in source else "least(greatest(id, 0), 200)")
    found, truth = answers(visits, text), sorted(visits(text), key=str)
    assert len(found) == len(truth)
    for row, expected in zip(found, truth, strict=True):
        for one, other in zip(row, expected, strict=True):
            assert one == other if isinstance(other, str) else one == pytest.approx(other, rel=0.01)


@pytest.mark.parametrize(("key", "named"), [("sex", "u.sex"), ("u.sex", "sex"), ("u.sex", "u.sex"), ("sex", "sex")])
def test_a_key_by_another_spelling(visits: Loaded, key: str, named: str) -> None:
    """Of one table both are the same column; of several it is said how it stands in GROUP BY."""
    asked = f"SELECT {key} AS k, count(*) AS n, (SELECT max(town) FROM towns) AS o FROM {{}} GROUP BY {key} HAVING {named} = 'f' AND n > o"
    alone, joined = asked.format("users u"), asked.format("users u JOIN visits v ON v.person = u.id")
    assert [(k, round(n), o) for k, n, o in answers(visits, alone)] == visits(alone)
    if key == named:
        assert [(k, round(n), o) for k, n, o in answers(visits, joined)] == visits(joined)
    else:
        assert f"{named} stands as {key} in GROUP BY" in visits.refused("FROM dp_sql(?, epsilon := 1)", [joined])


def test_a_window_is_no_condition_of_having(visits: Loaded) -> None:
    asked = "SELECT sex, count(*) AS n, rank() OVER (ORDER BY count(*), sex) AS r FROM users GROUP BY sex {} r = 1"
    assert "write QUALIFY" in visits.refused("FROM dp_sql(?, epsilon := 1)", [asked.format("HAVING")])
    assert [(sex, round(n), r) for sex, n, r in answers(visits, asked.format("QUALIFY"))] == visits(
        asked.format("QUALIFY")
    )
