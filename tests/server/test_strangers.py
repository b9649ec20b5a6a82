"""What those without an account, or with the least of one, can do to a gateway: keep it from others, or pretend to be elsewhere."""

import re
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("mcp", exc_type=ImportError)

import httpx2

from duckdb_dp.errors import DPError
from duckdb_dp.gateway import gateway as module
from duckdb_dp.gateway.http import guard, serving
from duckdb_dp.gateway.http.serving import HttpServer


def served_with(served: Any, **settings: Any) -> HttpServer:
    served.gateway.config = replace(served.gateway.config, http=0, **settings)
    return HttpServer(served.gateway)


def opened(port: int, sent: bytes = b"GET /health HTTP/1.1\r\nHost: a") -> socket.socket:
    """A connection that has sent half a request."""
    found = socket.create_connection(("127.0.0.1", port), timeout=5)
    found.sendall(sent)
    return found


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    finally:
        connection.close()


@pytest.mark.slow
def test_half_a_request_is_not_waited_for(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE", 0.4)
    server = served_with(served)
    try:
        whole = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        assert is_closed(opened(server.port))
        after_one = opened(server.port, whole)
        assert after_one.recv(100).startswith(b"HTTP/1.1 200")
        after_one.sendall(b"GET /health HTTP")
        while after_one.recv(1000):
            pass  # closed, though the first request was whole
        after_one.close()
        assert httpx2.get(f"http://127.0.0.1:{server.port}/health").text == "ok\n"
    finally:
        server.close()


def test_an_address_has_so_many_connections(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "OF_ADDRESS", 5)
    server = served_with(served)
    try:
        held = [opened(server.port) for _ in range(5)]
        assert is_closed(opened(server.port))
        held.pop().close()
        for _ in range(50):
            try:
                assert httpx2.get(f"http://127.0.0.1:{server.port}/health").text == "ok\n"
                break
            except httpx2.TransportError:
                time.sleep(0.05)
        else:
            pytest.fail("the connection that was closed is still counted")
        for each in held:
            each.close()
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [None, "127.0.0.1"])
def test_who_calls_is_what_the_proxy_says_and_nobody_else(
    served: Any, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED", 0.01)
    server = served_with(served, proxy=proxy)
    try:
        found = []
        for i in range(12):
            headers = {"authorization": f"Bearer wrong{i}", "x-forwarded-for": f"10.0.0.{i}"}
            found.append(httpx2.post(f"http://127.0.0.1:{server.port}/mcp", json={}, headers=headers).status_code)
        assert found == ([401] * 12 if proxy else [401] * 10 + [429] * 2)
    finally:
        server.close()


@pytest.mark.slow
def test_few_wrong_tokens_are_refused_at_a_time_and_right_ones_do_not_wait(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFUSED", 0.2)

    def guess() -> None:
        for _ in range(4):
            with pytest.raises(DPError):
                served.gateway.sign_in("alice", "wrong", client="guess")

    threads = [threading.Thread(target=guess) for _ in range(12)]
    start = time.monotonic()
    for each in threads:
        each.start()
    time.sleep(0.05)
    assert served.gateway.sign_in("alice", served.tokens["alice"], client="test").name == "alice"
    assert any(each.is_alive() for each in threads)
    for each in threads:
        each.join()
    served.gateway.audit.flush()
    noted = sum(row["outcome"] == "refused" for row in served.gateway.broker.ledger.accounts.audit())
    assert noted <= 4 * ((time.monotonic() - start) / 0.2 + 1)


CALLS = [
    "dp_marginals('{t}', ['salary'], epsilon := 0.1)", "dp_queries('{t}', [{{'salary': 'prefix'}}], epsilon := 0.1)", "dp_domain('{t}')",
    "dp_explain('{t}', ['salary'], epsilon := 0.1)", "dp_explain('{t}', {{'max_rows': [1, 3]}}, epsilon := 0.1)", "dp_max_rows('{t}', epsilon := 0.1)",
    "dp_quantiles('{t}', 'salary', [0.5], epsilon := 0.1)", "dp_sql('SELECT count(*) FROM {t}', epsilon := 0.1)", "dp_synthesize('{t}', epsilon := 0.1)",
    "dp_sql('SELECT count(*) FROM {t} JOIN towns USING (sex)', epsilon := 0.1)", "dp_running('{t}', ['salary'], epsilon := 0.1)",
    "dp_discover('{t}', 'salary', epsilon := 0.1)", "dp_quality('{t}', 'visits_syn', epsilon := 0.1)",
    "dp_links('{t}', synthetic := {{'visits': 'visits_syn'}}, epsilon := 0.1)", "dp_explain('{t}', 'SELECT count(*) FROM {t}', epsilon := 0.1)",
    "dp_marginals('{t}', ['nosuch'], epsilon := 'x')", "dp_sql('SELECT x.* FROM {t} x', epsilon := 0.1)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_table_that_was_not_granted_is_as_one_that_there_is_not(served: Any, call: str) -> None:
    """Protected, unprotected, or not there at all: the same line, which names no table of others."""
    session = served.session("alice")
    lines = set()
    for table in ("payroll", "plain", "nothing"):
        with pytest.raises(DPError) as caught:
            session.run(f"FROM {call.format(t=table)}")
        lines.add(re.sub(rf"\b{table}\b", "TABLE", str(caught.value)))
    assert len(lines) == 1, lines
    assert not any(name in line for line in lines for name in ("payroll", "4750")), lines


def test_an_origin_that_is_none_is_refused(served: Any, capfd: pytest.CaptureFixture[str]) -> None:
    server = served_with(served)
    try:
        url = f"http://127.0.0.1:{server.port}/sign-in"
        for origin in ("http://[::1", "http://[", "//", "null"):
            assert httpx2.post(url, headers={"origin": origin}).status_code == 403
    finally:
        server.close()
    assert "Traceback" not in capfd.readouterr().err


def test_half_a_body_is_told_so(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0.3)
    server = served_with(served)
    try:
        slow = opened(server.port, b"POST /sign-in HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nname=")
        assert slow.recv(200).startswith(b"HTTP/1.1 408")
        slow.close()
    finally:
        server.close()
