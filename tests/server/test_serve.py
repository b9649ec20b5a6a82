"""The process of ``duckdb-dp serve``: its settings, its start, and its end, with running statements finished."""

import http.client
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from duckdb_dp.accounting.ledger import Ledger
from duckdb_dp.cli import main
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config, check_files
from duckdb_dp.gateway.errors import Foreign, Log, hearing
from tests.server.conftest import make_database


def test_settings_are_one_file_and_the_same_as_flags(tmp_path: Path) -> None:
    database, file = tmp_path / "c.duckdb", tmp_path / "g.toml"
    database.touch()
    file.write_text(f'database = "{database}"\nhttp = 1\n[limits]\nseconds = 5\nrows = 7')
    found = Config.read(file, {"http": 2, "flight": None}, {"rows": 9, "memory": None})
    assert (found.http, found.flight, found.limits.seconds, found.limits.rows) == (2, None, 5, 9)
    for text, words in (
        ("http = 1", "name the database"),
        (f'database = "{database}"\nhttps = 1', "there is no setting 'https'"),
        (f'database = "{database}"\n[limits]\nrow = 1', "there is no setting 'row'"),
        (f'database = "{database}"\n[limits]\nrows = 0', "rows is 0"),
        (f'database = "{database}"\nhttp = 70000', "give a port"),
        (f'database = "{database}"\nhost = "0.0.0.0"', "unencrypted"),
        (f'database = "{database}"\ntls = ["a"]', "a certificate and its key"),
        ("database = 5", "database is 5; give the name of a file"),
        (f'database = "{database}"\nledger = 5', "ledger is 5"),
        (f'database = "{database}"\nhost = 5', "host is 5"),
        (f'database = "{database}"\ntwin = "x"', "twin is 'x'"),
        (f'database = "{database}"\ntwin = -1', "twin is -1"),
        (f'database = "{database}"\nat_least = true', "at_least is true"),
        (f'database = "{database}"\nat_least = nan', "at_least is "),
        (
            f'database = "{database}"\nlog = "/nonexistent/x.log"',
            "log is '/nonexistent/x.log', where no file can be written",
        ),
        (f'database = "{database}"\nlog = [1]', "log is "),
        (f'database = "{database}"\ntls = [1, 2]', "tls is 1"),
        (
            f'database = "{database}"\ntls = ["/nonexistent/a", "b"]',
            "tls names '/nonexistent/a', and there is no such file",
        ),
        (f'database = "{database}"\ntls = ["{database}", "{database}"]', "are no certificate and its key"),
        (f'database = "{database}"\nlimits = 5', "limits is no table"),
        ('database = "nothing.duckdb"', "there is no database"),
        ("database = ", "cannot be read as TOML"),
    ):
        file.write_text(text)
        with pytest.raises(DPError, match=words):
            check_files(Config.read(file, {}, {}))


@pytest.mark.slow
def test_the_commands_of_accounts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_database(tmp_path / "c.duckdb")
    database = str(tmp_path / "c.duckdb")
    assert main(["account", database, "carl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["token"].startswith("ddp_")
    assert main(["grant", database, "carl", "visits", "--epsilon", "0.5", "--synthetic", "visits_syn"]) == 0
    assert "carl" in capsys.readouterr().out
    assert main(["accounts", database, "--json"]) == 0
    carl = next(row for row in json.loads(capsys.readouterr().out) if row["name"] == "carl")
    assert (carl["epsilon"], carl["synthetic"]) == (0.5, "c.main.visits_syn")
    assert main(["requests", database]) == 0
    for name, why in (
        ("visits", "is protected"),
        ("plain", "does not hold rows as dp_synthesize"),
        ("nothing", "there is no table"),
        ("payroll", "is protected"),
    ):
        assert main(["grant", database, "carl", "visits", "--epsilon", "0.5", "--synthetic", name]) == 1
        assert why in capsys.readouterr().err
    for wrong in (
        ["grant", database, "carl", "nothing", "--epsilon", "1"],
        ["approve", database, "3"],
        ["share", database, "9", "carl"],
    ):
        assert main(wrong) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_a_process_serves_until_sigterm_and_finishes_what_runs(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    make_database(tmp_path / "c.duckdb")
    log = tmp_path / "log"
    command = "import sys; from duckdb_dp.cli import main; sys.exit(main())"
    arguments = ["serve", str(tmp_path / "c.duckdb"), "--http", "0", "--log", str(log), "--twin", "0.1"]
    process = subprocess.Popen([sys.executable, "-c", command, *arguments], env={**os.environ})
    try:
        while not (log.exists() and '"serving"' in log.read_text()):
            assert process.poll() is None
            time.sleep(0.1)
        port = int(re.findall(r'"http": (\d+)', log.read_text())[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[:2] == ["no twin", "twin"], "each grant on visits names a synthetic table, and payroll has none"
    assert events[-2:] == ["stopping", "stopped"]


BOTH = """
import sys
from pathlib import Path
from duckdb_dp.gateway import serve
from duckdb_dp.gateway.config import Config
config = Config(database=Path(sys.argv[1]), flight=0, http=0, log=Path(sys.argv[1] + ".log"))
serve.run(config, ready=lambda ports: print(ports["flight"], ports["http"], flush=True))
"""
STDIO = "import sys; from duckdb_dp.cli import main; sys.exit(main(['mcp', sys.argv[1], '--account', 'alice']))"
CALL = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": {"sql": "FROM dp_synthesize('visits', epsilon := 0.02)"}}
}  # fmt: skip
HELLO = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def by_flight(served: "subprocess.Popen[str]", token: str) -> Callable[[], int]:
    from tests.server.flight_clients import Plain

    assert served.stdout is not None
    port = served.stdout.readline().split()[0]
    return lambda: Plain(f"grpc://localhost:{port}", token).ask(CALL["params"]["arguments"]["sql"]).num_rows  # type: ignore[index]


def by_http(served: "subprocess.Popen[str]", token: str) -> Callable[[], int]:
    assert served.stdout is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(served.stdout.readline().split()[1]))
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def asks() -> int:
        with closing(connection):
            connection.request("POST", "/mcp", json.dumps(CALL), {**headers, "authorization": f"Bearer {token}"})
            return len(json.loads(connection.getresponse().read())["result"]["structuredContent"]["rows"])

    return asks


def by_stdio(served: "subprocess.Popen[str]", token: str) -> Callable[[], int]:
    assert served.stdin is not None
    assert served.stdout is not None
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    for each in (initialize, {"jsonrpc": "2.0", "method": "notifications/initialized"}, CALL):
        served.stdin.write(json.dumps(each) + "\n")
        served.stdin.flush()
    lines = served.stdout
    return lambda: len([json.loads(line) for line in lines][-1]["result"]["structuredContent"]["rows"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "ends"), [(by_flight, "TERM"), (by_http, "TERM"), (by_stdio, "TERM"), (by_stdio, "EOF")]
)
def test_what_is_charged_when_a_server_stops_is_answered(
    made: tuple[Path, dict[str, str]], way: Callable[..., Callable[[], int]], ends: str
) -> None:
    pytest.importorskip("mcp")
    database, token = made[0] / "clinic.duckdb", made[1]["alice"]
    script = STDIO if way is by_stdio else BOTH
    given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(database)], env={**os.environ, "DUCKDB_DP_TOKEN": token}, **given
    ) as served:
        try:
            asks, found, ledger = way(served, token), [], Ledger(f"{database}.dp")
            thread = threading.Thread(target=lambda: found.append(asks()))
            thread.start()
            while len(ledger.releases()) < 2:
                assert served.poll() is None
                assert thread.is_alive() or found, "refused"
                time.sleep(0.01)
            if ends == "TERM":
                served.send_signal(signal.SIGTERM)
            else:
                assert served.stdin is not None
                served.stdin.close()
            thread.join(60)
            assert found, "charged, and not answered"
            assert served.wait(60) == 0
        finally:
            served.kill()


def test_what_other_packages_log_is_in_the_log_without_their_texts() -> None:
    out = io.StringIO()
    with hearing(Log(out)):
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received: secret%s", 1)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("secret2", stacklevel=1)
        try:
            raise ValueError("secret3")
        except ValueError:
            logging.getLogger("mcp.server").exception("secret4")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["by"] for line in lines] == ["uvicorn.error", "py.warnings", "mcp.server"]
    assert lines[-1]["kind"] == "ValueError"
    assert "secret" not in out.getvalue()
    assert not any(isinstance(each, Foreign) for each in logging.getLogger().handlers)
