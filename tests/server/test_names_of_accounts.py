"""An account is changed by exactly its name; a grant finds it in any case; a viewer is granted nothing."""

from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import duckdb_dp
from duckdb_dp import cli
from duckdb_dp.errors import DPError
from tests.server.conftest import Served

ALIKE = ["ALICE", "Alice", "alice ", " alice", "\talice\n"]


@pytest.mark.parametrize("name", ALIKE)
def test_a_name_that_is_alike_changes_no_account(served: Served, capsys: Any, name: str) -> None:
    said = "there is an account 'alice': give exactly 'alice'"
    with pytest.raises(DPError, match=said):
        served.session("sam").run(f"CALL dp_account('{name}', role := 'steward')")
    assert cli.main(["account", str(served.database), name, "--role", "steward"]) == 1
    assert said in capsys.readouterr().err
    account = served.gateway.sign_in("alice", served.tokens["alice"], client="test")
    assert account.role == "analyst"


@pytest.mark.parametrize("name", ALIKE)
def test_a_page_gives_no_other_account_a_token(served: Served, name: str) -> None:
    pytest.importorskip("starlette")
    from duckdb_dp.gateway.http.stewards import _decide

    visit = SimpleNamespace(session=served.session("sam"))

    def decide(**form: str) -> Any:
        return _decide(SimpleNamespace(form=form, visit=visit))  # type: ignore[arg-type]

    with pytest.raises(DPError, match="there is an account 'alice'"):
        decide(do="account", name=name, role="steward")
    assert decide(do="account", name="alice", role="analyst")[0] == "alice"
    for number in ("nan", "inf", "-inf", "much", ""):
        with pytest.raises(DPError, match="epsilon is no number"):
            decide(do="grant", name="alice", dataset="visits", epsilon=number)


def test_a_grant_finds_the_account_in_any_case(served: Served, capsys: Any) -> None:
    sam = served.session("sam")
    for name in ALIKE:
        (row,) = sam.run(f"CALL dp_grant('{name}', 'visits', epsilon := 0.5)").to_pylist()
        assert row["account"] == "alice"
        assert cli.main(["grant", str(served.database), name, "visits", "--epsilon", "0.6"]) == 0
        assert "alice" in capsys.readouterr().out
        assert served.session("alice").datasets()["epsilon"].to_pylist() == pytest.approx([0.6])


def test_a_viewer_is_granted_nothing_and_has_nothing_left(served: Served, capsys: Any) -> None:
    sam = served.session("sam")
    with pytest.raises(DPError, match="'vera' is a viewer, which reads what was shared with it and spends nothing"):
        sam.run("CALL dp_grant('vera', 'visits', epsilon := 1)")
    assert cli.main(["grant", str(served.database), "vera", "visits", "--epsilon", "1"]) == 1
    assert "is a viewer" in capsys.readouterr().err
    sam.run("CALL dp_account('bob', role := 'viewer')")
    bob = served.gateway.session(duckdb_dp.gateway.session.Account(name="bob", role="viewer"), client="test")
    assert bob.budget()["epsilon_remaining"].to_pylist() == [0.0]
    assert bob.price("FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.1)")["fits"].to_pylist() == [False]


def test_a_local_connection_says_the_same(tmp_path: Any) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        duckdb_dp.load(con, progress=False)
        assert con.execute("CALL dp_account('Bob.B')").fetchall()[0][0] == "bob.b"
        with pytest.raises(duckdb.Error, match=r"there is an account 'bob\.b'"):
            con.execute("CALL dp_account('Bob.B')")
