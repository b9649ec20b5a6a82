"""SELECTs of every day on the shipped Adult table: the truth lies in the intervals, and each costs what was typed, once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckdb_dp
import duckdb_dp.testing
from tests.conftest import Loaded

DATA = Path(duckdb_dp.__file__).parent / "data_files" / "adult.parquet"
DECLARED = """
CALL dp_protect('adult', epsilon := 1000, delta := 1e-9);
CALL dp_attribute('adult', 'age', low := 17, high := 90);
CALL dp_attribute('adult', 'sex', "values" := ['Female', 'Male']);
CALL dp_attribute('adult', 'race', "values" := ['White', 'Black', 'Asian-Pac-Islander', 'Amer-Indian-Eskimo', 'Other']);
CALL dp_attribute('adult', 'income', "values" := ['<=50K', '>50K']);
CALL dp_attribute('adult', 'education_num', low := 1, high := 16);
CALL dp_attribute('adult', 'hours_per_week', low := 1, high := 99);
CALL dp_attribute('adult', 'capital_gain', bins := [0, 5000, 10000, 100000]);
CALL dp_attribute('adult', 'workclass', "values" := ['Private', 'State-gov', 'Local-gov'], other := true, nulls := true);
"""

SELECTS = [
    "SELECT count(*) FROM adult",
    "SELECT count(*) AS n FROM adult WHERE age >= 65",
    "SELECT count(workclass) AS n FROM adult",
    "SELECT count(*) AS n FROM adult WHERE workclass IS NULL",
    "SELECT count(*) AS n FROM adult WHERE occupation = 'Sales'",
    "SELECT count(*) AS n FROM adult WHERE occupation IN ('Sales', 'Tech-support') AND sex = 'Female'",
    "SELECT count(*) AS n FROM adult WHERE native_country <> 'United-States' OR native_country IS NULL",
    "SELECT count(*) AS n FROM adult WHERE marital_status LIKE 'Married%'",
    "SELECT count(*) AS n FROM adult WHERE lower(relationship) = 'husband' AND hours_per_week > 40",
    "SELECT count(*) AS n FROM adult WHERE capital_gain > 7000",
    "SELECT count(*) AS n FROM adult WHERE age * 2 < hours_per_week",
    "SELECT count(*) FILTER (WHERE income = '>50K') AS rich FROM adult",
    "SELECT count_if(age < 30) AS young FROM adult",
    "SELECT sex, count(*) AS n FROM adult GROUP BY sex",
    "SELECT sex, race, count(*) AS n FROM adult GROUP BY sex, race",
    "SELECT sex, income, count(*) AS n FROM adult WHERE age BETWEEN 30 AND 39 GROUP BY ALL",
    "SELECT workclass, count(*) AS n FROM adult WHERE workclass IN ('Private', 'State-gov') GROUP BY workclass",
    "SELECT age // 10 * 10 AS decade, count(*) AS n FROM adult GROUP BY decade",
    "SELECT age >= 40 AS older, count(*) AS n FROM adult GROUP BY older",
    "SELECT CASE WHEN education_num >= 13 THEN 'degree' ELSE 'none' END AS degree, count(*) AS n FROM adult GROUP BY degree",
    "SELECT upper(sex) AS s, count(*) AS n FROM adult GROUP BY s",
    "SELECT income, age < 30 AS young, count(*) AS n FROM adult WHERE occupation = 'Sales' GROUP BY 1, 2",
    "SELECT sum(hours_per_week) FROM adult",
    "SELECT sum(capital_gain) AS gain FROM adult",
    "SELECT sex, sum(hours_per_week) AS hours FROM adult GROUP BY sex",
    "SELECT sum(age + hours_per_week) AS s FROM adult",
    "SELECT sum(hours_per_week) FILTER (WHERE sex = 'Male') AS hours FROM adult",
    "SELECT sum(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS rich FROM adult",
    "SELECT sum(least(greatest(capital_loss, 0), 5000)) AS loss FROM adult",
    "SELECT sum(capital_gain) - sum(least(greatest(capital_loss, 0), 5000)) AS net FROM adult",
    "SELECT avg(age) FROM adult",
    "SELECT avg(age) AS a FROM adult WHERE income = '>50K'",
    "SELECT sex, avg(hours_per_week) AS hours FROM adult GROUP BY sex",
    "SELECT race, avg(education_num) AS years, count(*) AS n FROM adult GROUP BY race",
    "SELECT income, avg(age) AS a, avg(hours_per_week) AS h, avg(education_num) AS e FROM adult GROUP BY income",
    "SELECT avg(hours_per_week) AS h FROM adult WHERE occupation ILIKE '%craft%'",
    "SELECT avg(CASE WHEN income = '>50K' THEN 100.0 ELSE 0 END) AS percent FROM adult",
    "SELECT sex, avg(capital_gain) AS gain FROM adult GROUP BY sex",
    "SELECT avg(age) FILTER (WHERE sex = 'Female') AS women, avg(age) FILTER (WHERE sex = 'Male') AS men FROM adult",
    "SELECT avg(hours_per_week * 52) AS year FROM adult",
    "SELECT var_pop(age) AS v FROM adult",
    "SELECT variance(hours_per_week) AS v FROM adult",
    "SELECT stddev(age) AS d FROM adult",
    "SELECT sex, stddev_pop(hours_per_week) AS d FROM adult GROUP BY sex",
    "SELECT avg(age) AS a, stddev(age) AS d, count(*) AS n FROM adult",
    "SELECT stddev(age) / avg(age) AS variation FROM adult",
    "SELECT sum(hours_per_week) / count(*) AS h FROM adult",
    "SELECT sex, 100 * count(*) FILTER (WHERE income = '>50K') / count(*) AS percent FROM adult GROUP BY sex",
    "SELECT avg(age) - 40 AS beyond FROM adult",
    "SELECT count(*) / 1000 AS thousands FROM adult",
    "SELECT race, count(*) AS n FROM adult GROUP BY race HAVING count(*) > 2500",
    "SELECT race, count(*) AS n FROM adult GROUP BY race ORDER BY n DESC LIMIT 2",
    "SELECT education_num, avg(hours_per_week) AS h FROM adult GROUP BY education_num ORDER BY education_num LIMIT 9",
    "SELECT sex, race, avg(age) AS a FROM adult GROUP BY CUBE (sex, race)",
    "SELECT sex, income, avg(hours_per_week) AS h FROM adult GROUP BY ROLLUP (sex, income)",
    "SELECT sex, race, count(*) AS n FROM adult GROUP BY GROUPING SETS ((sex), (race), ())",
    "SELECT sex, avg(coalesce(hours_per_week, 0)) AS h FROM adult GROUP BY sex",
    "SELECT avg(abs(age - 40)) AS distance FROM adult",
    "SELECT avg(hours_per_week / 7) AS daily FROM adult",
    "SELECT count(*) AS n FROM adult WHERE NOT (sex = 'Male' AND income = '>50K')",
    "SELECT count(*) AS n FROM adult WHERE age IN (20, 30, 40) AND education_num % 2 = 0",
    "SELECT count(*) AS n FROM adult AS a WHERE a.age > a.education_num + 40",
    "SELECT income, sum(education_num) AS years FROM adult GROUP BY income",
    "SELECT race, sex, avg(age) AS a, sum(hours_per_week) AS h FROM adult WHERE income = '>50K' AND age > 30 GROUP BY race, sex",
    "SELECT median(age) AS m FROM adult",
    "SELECT sex, median(hours_per_week) AS h, count(*) AS n FROM adult GROUP BY sex",
    "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY age) AS q1, percentile_cont(0.75) WITHIN GROUP (ORDER BY age) AS q3 FROM adult",
    "SELECT quantile_disc(education_num, 0.9) AS years FROM adult WHERE income = '<=50K'",
    "SELECT income, quantile_cont(age, 0.1) AS young, quantile_cont(age, 0.9) AS old FROM adult GROUP BY income ORDER BY income",
    "SELECT median(age) FILTER (WHERE occupation = 'Sales') AS m FROM adult",
    "SELECT quantile_cont(capital_loss, 0.99) AS loss FROM adult",
    "SELECT quantile_cont(capital_gain, 0.97) AS gain FROM adult",
    "SELECT quantile_cont(hours_per_week * 52, 0.4) AS hours FROM adult",
    "SELECT sex, median(age) - avg(age) AS skew FROM adult GROUP BY sex",
    "SELECT round(quantile_cont(age, 0.33)) AS third FROM adult HAVING count(*) > 100",
    "SELECT sum(capital_loss) AS loss FROM adult",
    "SELECT avg(capital_loss) AS loss, count(*) AS n FROM adult WHERE capital_loss > 0",
    "SELECT sex, sum(capital_loss * 2) AS loss FROM adult GROUP BY sex",
]  # fmt: skip


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with duckdb.connect() as connection:
        folder = tmp_path_factory.mktemp("everyday") / "l.dp"
        connection.execute(f"CREATE TABLE adult AS FROM '{DATA}'")
        duckdb_dp.testing.load(connection, folder, seed=6)
        connection.execute(DECLARED)
        yield Loaded(connection, folder)


def pairs(loaded: Loaded, select: str) -> list[tuple[float, float, float]]:
    """(low, true, high) of each answer; a group that is not in the truth counts nobody."""
    call, epsilon = "FROM dp_sql(?, epsilon := ?)", 0.5 + SELECTS.index(select) / 1000
    charges = loaded.charged()
    names = [name for name, *_ in loaded(f"DESCRIBE {call}", [select, epsilon])]
    found = loaded(call, [select, epsilon])
    assert loaded(call, [select, epsilon]) == found
    assert len(loaded.charged()) == len(charges) + 1
    assert loaded.charged()[-1]["epsilon"] == pytest.approx(epsilon, rel=1e-6)
    shown = loaded.connection.execute(select)
    own = [column[0] for column in shown.description or []]
    answers = [name for name in own if f"{name}_ci_low" in names] or [own[-1]]
    labels = [name for name in own if name not in answers]
    truth = {tuple(str(row[own.index(name)]) for name in labels): row for row in shown.fetchall()}
    result: list[tuple[float, float, float]] = []
    for row in found:
        true: Any = truth.get(tuple(str(row[names.index(name)]) for name in labels))
        for name in answers:
            low, high = ((f"{name}_{end}" if f"{name}_{end}" in names else end) for end in ("ci_low", "ci_high"))
            if true is not None and row[names.index(low)] is not None:
                result.append((row[names.index(low)], float(true[own.index(name)]), row[names.index(high)]))
    assert result
    return result


@pytest.mark.some(4)
@pytest.mark.parametrize("select", SELECTS)
def test_the_truth_is_near(adult: Loaded, select: str) -> None:
    """Within 2.5 intervals: 4.9 standard deviations; of quantiles, which are whole numbers, one more."""
    more = 1 if "median" in select or "quantile" in select or "percentile" in select else 1e-9
    for low, true, high in pairs(adult, select):
        assert abs(true - (low + high) / 2) <= 2.5 * (high - low) / 2 + more, (low, true, high)


def test_selects_are_explained_without_a_dataset_as_they_are_asked(adult: Loaded) -> None:
    for asked in (
        "'SELECT sex, count(*), avg(age) FROM adult GROUP BY sex'",
        "['SELECT count(*) FROM adult', 'SELECT median(age) FROM adult']",
    ):
        alone, named = (adult(f"FROM dp_explain({first}{asked}, rho := 0.1)") for first in ("", "'adult', "))
        assert alone == named
    assert "'nowhere' is not protected" in adult.refused("FROM dp_explain('SELECT count(*) FROM nowhere', rho := 0.1)")
    assert "the attributes are NULL" in adult.refused("FROM dp_explain('adult', rho := 0.1)")
