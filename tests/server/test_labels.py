"""Releases are recognised by what is said of them: question, dataset, cost and time, in lists, pages and tools."""

import re
from typing import Any

from duckdb_dp.gateway.http.tools import TOOLS, Asker
from duckdb_dp.gateway.http.words import in_full
from tests.server.test_together import Place, place  # noqa: F401

JOINED = "FROM visits JOIN patients USING (patient_id)"
ASKED = {
    "SELECT sex, count(*) AS n FROM patients GROUP BY sex": ["patients", "by sex"],
    "SELECT sex, count(*) AS n FROM patients WHERE sex <> 'm' GROUP BY sex": ["patients", "<> 'm'"],
    f"SELECT sex, count(*) AS n {JOINED} GROUP BY sex": ["FROM patients, visits"],
    f"SELECT sex, count(*) AS n {JOINED} WHERE rating > 3 GROUP BY sex": ["visits.rating > 3"],
    f"SELECT sex, count(*) AS n {JOINED} WHERE reason = 'flu' GROUP BY sex": ["visits.reason = 'flu'"],
    "SELECT sex, count(*) AS n FROM patients WHERE EXISTS (SELECT 1 FROM visits WHERE visits.patient_id = patients.patient_id AND"
    " rating = 5) GROUP BY sex": ["EXISTS", "visits.rating = 5"],
    "SELECT reason, count(*) AS n FROM visits WHERE rating = 2 GROUP BY reason": ["visits", "rating = 2"],
}


def asked(sql: str) -> str:
    text = sql.replace("'", "''")
    return f"FROM dp_sql('{text}', epsilon := 0.1)"


def test_labels_tell_questions_apart_and_the_newest_is_first(place: Place) -> None:  # noqa: F811
    alice = place.session("alice")
    asker = Asker(gateway=place.gateway, session=alice)
    for sql in ASKED:
        alice.run(asked(sql))
    listed = TOOLS["read_release"].run(asker, {})
    rows = [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]][::-1]
    labels = [row["asked"] for row in rows]
    assert len({*labels}) == len(ASKED), labels
    for label, words in zip(labels, ASKED.values(), strict=True):
        assert all(word in label for word in words), label
        assert not re.search("(?i)union_value|_dp_|t0|TRY", label), label
    one = TOOLS["read_release"].run(asker, {"release": rows[3]["release"]})
    assert (one["asked"], one["dataset"], one["epsilon"]) == (labels[3], "patients", 0.1)
    assert one["released_at"]
    assert one["rows"]
    place.gateway.audit.flush()
    statements = [row["statement"] for row in place.gateway.broker.ledger.accounts.audit()]
    assert not any("dp_releases" in text for text in statements[-1:]), "only what was asked is in the audit"


def test_discoveries_and_synthetic_rows_have_labels(place: Place) -> None:  # noqa: F811
    alice = place.session("alice")
    alice.run("FROM dp_discover('survey', 'age', find := 'bounds', epsilon := 0.05)")
    alice.run("FROM dp_synthesize('survey', attributes := ['answer', 'age'], epsilon := 0.1)")
    listed = TOOLS["read_release"].run(Asker(gateway=place.gateway, session=alice), {})
    labels = [row[-1] for row in listed["rows"]]
    assert labels == ["survey: dp_synthesize of answer, age", "survey: dp_discover of age, find bounds"]


def test_a_price_in_full_has_no_column_that_says_nothing(place: Place) -> None:  # noqa: F811
    alice = place.session("alice")
    one = alice.price(asked("SELECT sex, count(*) AS n FROM patients GROUP BY sex"))
    assert in_full(one).column_names[0] == "answer"
    assert not any(in_full(one)[name].null_count == one.num_rows for name in in_full(one).column_names)
    two = alice.price(
        "FROM dp_marginals('survey', ['age'], epsilon := 0.1), dp_marginals('survey', ['answer'], epsilon := 0.1)"
    )
    assert in_full(two)["call"].to_pylist() == [1, 2]
    free: Any = in_full(alice.price("SELECT 1 AS x"))
    assert free["note"].num_chunks
