"""Agents, by the MCP package's own client: over streamable HTTP and over stdin and stdout."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import duckdb
import pytest

pytest.importorskip("mcp", exc_type=ImportError)

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.gateway import gateway
from duckdb_dp.gateway.http.serving import HttpServer
from duckdb_dp.gateway.http.tools import OWN, TOOLS, Asker

COMMAND = str(Path(__file__).parents[1] / "command.py")
COUNTS = "SELECT sex, count(*) AS n FROM visits GROUP BY sex"


@pytest.fixture
def url(served: Any) -> Any:
    server = HttpServer(served.gateway)
    yield f"http://127.0.0.1:{server.port}"
    server.close()


@asynccontextmanager
async def agent(url: str, token: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: object) -> Any:
    """What a tool returned; the text of its error."""
    found = await client.call_tool(tool, arguments)
    if found.is_error:
        (text,) = found.content
        assert "\n" not in text.text
        return text.text
    return found.structured_content


async def round_trip(client: Client, database_left: Callable[[], float]) -> None:
    """Find the data, price, ask, reuse, run out of budget, be told what to do next."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert (
        set(tools) == set(TOOLS) == {"list_datasets", "describe", "price", "ask", "read_release", "explore", "budget"}
    )
    assert all(tool.annotations.read_only_hint == (name != "ask") for name, tool in tools.items())
    assert "Always call it before ask" in tools["price"].description

    (dataset,) = (await call(client, "list_datasets"))["datasets"]
    assert dataset["dataset"] == "visits"
    columns = (await call(client, "describe", dataset="visits"))["columns"]
    assert {each["column"] for each in columns} == {"age", "sex", "diagnosis"}

    tried = await call(client, "explore", sql=COUNTS)
    assert tried["synthetic"] is True
    assert len(tried["rows"]) == 2

    before = database_left()
    price = (await call(client, "price", sql=COUNTS, epsilon=0.2))["price"]
    assert price[0]["fits"] is True
    assert 0 < price[0]["share_of_left"] < 1
    assert database_left() == before

    (precise, *_) = (await call(client, "price", sql=COUNTS, precision=50))["price"]
    assert precise["stddev"] <= 50
    assert precise["epsilon"] < price[0]["epsilon"]

    answer = await call(client, "ask", sql=COUNTS, epsilon=0.2, release="by_sex")
    rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
    assert {row["sex"] for row in rows} == {"f", "m"}
    assert all(row["ci_low"] < row["n"] < row["ci_high"] for row in rows)
    (cost,) = answer["cost"]
    assert cost["share_of_grant"] == pytest.approx(price[0]["share_of_grant"], rel=1e-6)
    assert database_left() < before

    again = await call(client, "ask", sql=COUNTS, epsilon=0.2, release="by_sex")
    assert again["rows"] == answer["rows"]
    assert again["cost"][0]["share_of_grant"] == 0
    stored = await call(client, "read_release", release="by_sex")
    assert [row[0] for row in stored["rows"]] == [row[0] for row in answer["rows"]]
    assert len((await call(client, "read_release"))["rows"]) == 1

    for _ in range(10):
        refused = await call(client, "ask", sql=f"FROM dp_sql('{COUNTS}', epsilon := 0.49, fresh := true)")
        if isinstance(refused, str):
            break
    assert "left" in refused or "remain" in refused
    (left,) = (await call(client, "budget"))["budgets"]
    assert 0 <= left["epsilon_remaining"] < 0.49
    again = await call(client, "ask", sql=COUNTS, epsilon=0.2, release="by_sex")
    assert again["rows"] == answer["rows"]


def left_of(served: Any) -> Callable[[], float]:
    ledger = served.gateway.broker.ledger.asked_by("alice")
    return lambda: ledger.budget_rows()[0]["remaining"]


@pytest.mark.slow
def test_the_round_trip_over_http(served: Any, url: str) -> None:
    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            await round_trip(client, left_of(served))

    anyio.run(main)


@pytest.mark.slow
def test_what_is_refused_says_what_to_do(served: Any, url: str) -> None:
    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            relative = (await call(client, "price", sql=COUNTS, precision="10% of 1000"))["price"]
            assert relative[0]["stddev"] == pytest.approx(100)
            waits = await call(client, "ask", sql=COUNTS, epsilon=0.8)
            assert "waits for a steward" in waits
            for tool, arguments, said in (
                ("ask", {"sql": "FROM visits"}, "give epsilon or precision beside this SELECT"),
                ("price", {"sql": COUNTS}, "give epsilon or precision beside this SELECT"),
                ("price", {"sql": COUNTS, "precision": "5%"}, "precision := '5% of 1000'"),
                ("ask", {"sql": COUNTS, "precision": [5]}, "is not of the type"),
                ("ask", {}, "needs the argument 'sql'"),
                ("ask", {"sql": 3}, "is not of the type"),
                ("ask", {"sql": COUNTS, "epsilon": "much"}, "is not of the type"),
                ("ask", {"sql": COUNTS, "colour": 1}, "there are: sql"),
                ("describe", {"dataset": "payroll"}, "no dataset"),
                ("read_release", {"release": 99}, ""),
                ("explore", {"sql": "FROM read_csv('/etc/passwd')"}, ""),
                ("explore", {"sql": f"FROM dp_sql('{COUNTS}', epsilon := 0.1)"}, "price"),
                ("drop", {}, "there are list_datasets"),
                ("budget", {"limit": True}, "no argument"),
            ):
                refused = await call(client, tool, **arguments)
                assert isinstance(refused, str), (tool, arguments, refused)
                assert said in refused, refused
                assert "Error" not in refused

    anyio.run(main)


@pytest.mark.slow
def test_only_a_token_lets_in(served: Any, url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    with httpx2.Client(base_url=url, headers=accept) as http:
        assert http.post("/mcp", json=body).status_code == 401
        for scheme in ("Basic", "Bearer", "bearer"):
            assert http.post("/mcp", json=body, headers={"authorization": f"{scheme} wrong"}).status_code == 401
        good = {"authorization": f"Bearer {served.tokens['alice']}"}
        assert http.post("/mcp", json=body, headers=good).status_code == 200
        assert http.post("/mcp", json=body, headers=good | {"origin": "https://evil.example"}).status_code == 403
        assert http.post("/mcp", content=b"x" * (2 << 20), headers=good).status_code == 413
        refused = {http.post("/mcp", json=body, headers={"authorization": "Bearer no"}).status_code for _ in range(12)}
        assert refused == {401, 429}
        assert http.post("/mcp", json=body, headers=good).status_code == 200, "strangers do not keep a known token out"


def test_a_closed_account_is_out(served: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "FRESH", -1.0)  # within which a token is not looked up again
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accounts = served.gateway.broker.ledger.accounts
    headers = {
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {accounts.add('carl', 'analyst')}",
    }
    assert httpx2.post(f"{url}/mcp", json=body, headers=headers).status_code == 200
    accounts.add("carl", "closed")
    assert httpx2.post(f"{url}/mcp", json=body, headers=headers).status_code == 401


def test_each_account_sees_its_own(served: Any, url: str) -> None:
    async def one(name: str, found: dict[str, Any]) -> None:
        async with agent(url, served.tokens[name]) as client:
            await call(client, "ask", sql=f"SELECT count(*) AS {name} FROM visits", epsilon=0.1, release=f"of_{name}")
            for _ in range(5):
                found[name] = await call(client, "read_release")

    async def main() -> None:
        found: dict[str, Any] = {}
        async with anyio.create_task_group() as group:
            for name in ("alice", "bob"):
                group.start_soon(one, name, found)
        for name, other in (("alice", "bob"), ("bob", "alice")):
            assert f"of_{name}" in str(found[name])
            assert f"of_{other}" not in str(found[name])

    anyio.run(main)


def test_who_has_no_release_reads_none(served: Any) -> None:
    asker = Asker(gateway=served.gateway, session=served.session("bob"))
    assert TOOLS["read_release"].call(asker, {})["rows"] == []


@pytest.mark.slow
def test_the_round_trip_over_stdio(made: Any) -> None:
    """The command as an agent's configuration starts it; the token comes in the environment."""
    folder, tokens = made
    program = StdioServerParameters(
        command=sys.executable,
        args=[COMMAND, "mcp", str(folder / "clinic.duckdb"), "--account", "alice"],
        env={**os.environ, "DUCKDB_DP_TOKEN": tokens["alice"]},
    )

    def left() -> float:
        return float(Ledger(folder / "clinic.duckdb.dp").asked_by("alice").budget_rows()[0]["remaining"])

    async def main() -> None:
        async with Client(stdio_client(program)) as client:
            await round_trip(client, left)

    anyio.run(main)


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_its_token_the_command_says_what_is_missing(made: Any, token: str | None) -> None:
    folder, _ = made
    env = {name: value for name, value in os.environ.items() if name != "DUCKDB_DP_TOKEN"}
    env |= {} if token is None else {"DUCKDB_DP_TOKEN": token}
    command = [sys.executable, COMMAND, "mcp", str(folder / "clinic.duckdb"), "--account", "alice"]
    ended = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "token" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_odd_values_are_answered(url: str, served: Any) -> None:
    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            for odd in ("'infinity'::DATE", "TIMESTAMP '290000-01-01'", "['-infinity'::TIMESTAMP]", "{'a': 'infinity'::DATE}", "MAP {'a': 'infinity'::DATE}",
                        "INTERVAL 1 DAY", "TIME '24:00:00'", "'\\xFF'::BLOB", "1e308 * 10"):  # fmt: skip
                found = await call(client, "ask", sql=f"SELECT {odd} AS d, 1 AS one")
                assert found["rows"][0][1] == 1, odd
            asked = "FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.01) JOIN (SELECT 'infinity'::DATE AS d) ON true"
            assert len((await call(client, "ask", sql=asked))["rows"]) == 1
            for tool in TOOLS.values():
                for name in tool.required:
                    assert f"needs the argument '{name}'" in await call(client, tool.name, **{name: None})
            for odd_number in (10**400, -(10**400)):
                assert "is not of the type" in await call(client, "ask", sql=COUNTS, epsilon=odd_number)
                assert "internal" not in str(await call(client, "read_release", release=odd_number))

    anyio.run(main)


@pytest.mark.slow
def test_every_type_is_answered_as_duckdb_writes_it(url: str, served: Any) -> None:
    """By ask, of a public table by explore; next to the largest number too, in what is paid."""
    with duckdb.connect() as con:
        columns = [row[0] for row in con.execute("DESCRIBE FROM test_all_types()").fetchall()]
        texts = {name: con.execute(f'SELECT "{name}"::VARCHAR FROM test_all_types()').fetchall() for name in columns}
    lost = {
        "bit",
        "uhugeint",
        "bignum",
        "timestamptz_array",
        "timestamp_tz",
    }  # of which Arrow has no type, or another zone
    exact = {"hugeint", "interval", "blob", "uuid", "date", "timestamp", "time", "timestamp_ns", "small_enum"}

    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            for name in columns:
                for tool in ("ask", "explore"):
                    found = await call(client, tool, sql=f'SELECT "{name}" AS x FROM test_all_types()')
                    assert isinstance(found, dict), (name, found)
                    shown = [row[0] for row in found["rows"]]
                    assert len(shown) == 3, name
                    if name in exact - lost:
                        assert [None if one is None else str(one) for one in shown] == [one for (one,) in texts[name]]
            paid = "FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.01)"
            largest = "1.7976931348623157e308::DOUBLE"
            found = await call(client, "ask", sql=f"SELECT n, {largest} AS big, -{largest} AS small {paid}")
            assert found["rows"][0][1:] == [1.7976931348623157e308, -1.7976931348623157e308]

    anyio.run(main)


def test_tools_that_are_named_are_there(url: str, served: Any) -> None:
    calls = {"dp_budget()": "budget", "dp_releases()": "read_release", "dp_release(1)": "read_release"}

    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            for asked, tool in calls.items():
                assert f"The tool {tool} has this" in await call(client, "explore", sql=f"FROM {asked}")
            assert tool in TOOLS
            said = await call(client, "explore", sql=f"FROM dp_sql('{COUNTS}', epsilon := 0.1)")
            assert "ask for true answers with ask, and price" in said
            assert set(OWN.values()) <= set(TOOLS)

    anyio.run(main)


def test_what_is_proposed_as_an_argument_is_written_as_a_call(url: str, served: Any) -> None:
    command = served.gateway.broker.command
    command("CREATE TABLE stays AS SELECT range % 100 AS person, range % 7 AS days FROM range(500)")
    command("CALL dp_protect('stays', unit := 'person', max_rows := 'auto', epsilon := 3, delta := 1e-9)")
    command("CALL dp_grant('alice', 'stays', epsilon := 1)")

    async def main() -> None:
        async with agent(url, served.tokens["alice"]) as client:
            for tool in ("price", "ask"):
                refused = await call(client, tool, sql="SELECT count(*) AS n FROM stays", precision=50)
                assert "with nothing beside it: FROM dp_sql(" in refused, refused
            again = "FROM dp_sql(" + refused.split("FROM dp_sql(")[1]
            assert (await call(client, "price", sql=again))["price"][0]["fits"]

    anyio.run(main)


def test_a_body_does_not_wait_for_its_headers(served: Any) -> None:
    """Connections have TCP_NODELAY of the socket that accepts them: else the kernel holds a body back for 40 ms."""
    server = HttpServer(served.gateway)
    assert server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.close()


def test_no_stream_is_kept_open(served: Any, url: str) -> None:
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {served.tokens['alice']}"}
    for method in ("GET", "DELETE", "PUT"):
        assert httpx2.request(method, f"{url}/mcp", headers=headers, timeout=5).status_code == 405
