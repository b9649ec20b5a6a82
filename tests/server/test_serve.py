"""The process of ``duckdb-dp serve``: its settings, its start, and its end, with running statements finished."""

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from pathlib import Path

import pytest

from duckdb_dp.cli import main
from duckdb_dp.errors import DPError
from duckdb_dp.gateway.config import Config
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
        ('database = "nothing.duckdb"', "there is no database"),
        ("database = ", "cannot be read as TOML"),
    ):
        file.write_text(text)
        with pytest.raises(DPError, match=words):
            Config.read(file, {}, {})


def test_the_commands_of_accounts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_database(tmp_path / "c.duckdb")
    database = str(tmp_path / "c.duckdb")
    assert main(["account", database, "carl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["token"].startswith("ddp_")
    assert main(["grant", database, "carl", "visits", "--epsilon", "0.5", "--synthetic", "visits_syn"]) == 0
    assert main(["accounts", database, "--json"]) == 0
    carl = next(row for row in json.loads(capsys.readouterr().out) if row["name"] == "carl")
    assert (carl["epsilon"], carl["synthetic"]) == (0.5, "c.main.visits_syn")
    assert main(["requests", database]) == 0
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
    assert events[0] == "twin"
    assert events[-2:] == ["stopping", "stopped"]


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
