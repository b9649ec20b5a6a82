"""What pages show of a result: the answer first, where it was cut last, and days and truth values as one writes them."""

from datetime import datetime

import pyarrow as pa

from duckdb_dp.gateway.http.pictures import sections, shown

CUT = pa.table(
    {
        "n_clipped_at": [[8192.0, 6.7]] * 2, "n": [5.0, 7.0], "n_stddev": [1.0] * 2, "n_ci_low": [3.0, 5.0], "n_ci_high": [7.0, 9.0],
        "month": [datetime(2024, 1, 1), datetime(2024, 2, 1)], "new": [True, False],
    }
)  # fmt: skip


def test_where_answers_were_cut_stands_last_and_is_no_label() -> None:
    found = shown(CUT)
    assert found.names == ["n", "month", "new", "n_clipped_at"]
    assert found.rows[0][:3] == ["5.0 ± 2.0", "2024-01-01", "true"]
    assert found.right == {0}
    (section,) = sections(CUT)
    assert "8192" not in str(section)


def test_moments_within_days_are_whole() -> None:
    table = pa.table({"at": [datetime(2024, 1, 1), datetime(2024, 1, 1, 12)], "n": [1.0, 2.0]})
    assert [row[0] for row in shown(table).rows] == ["2024-01-01 00:00:00", "2024-01-01 12:00:00"]
