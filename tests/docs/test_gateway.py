"""docs/gateway.md, from its first command to its last."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("mcp", exc_type=ImportError)
pytest.importorskip("adbc_driver_flightsql", exc_type=ImportError)
pytest.importorskip("google.protobuf", exc_type=ImportError)

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "gateway.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("bash") is None, reason="the tutorial uses them")
def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in (("python", ""), ("duckdb-dp", str(ROOT / "tests" / "command.py"))):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        (programs / name).chmod(0o755)
    script = "set -emu\n" + "\n".join(blocks("bash"))
    for stated, port in zip((31337, 8080), free_ports(2), strict=True):
        script = script.replace(str(stated), str(port))
    work = tmp_path / "work"
    work.mkdir()
    env = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "no_proxy": "127.0.0.1",
    }
    ended = subprocess.run(
        ["bash", "-c", script], cwd=work, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    said = ended.stdout + ended.stderr + "".join(path.read_text() for path in work.glob("gateway.log"))
    assert ended.returncode == 0, said
    first, second = (
        dict(re.findall(r"^(\w+): (.*)$", part, re.MULTILINE)) for part in ended.stdout.split("datasets:")[1:]
    )
    assert first["answer"] == second["answer"]
    assert "cost nothing" in first["again"]
    assert "waits for a steward" in first["refused"]
    assert "'rows'" in second["refused"], "it was approved"
    assert "'ci_low'" in ended.stdout
    assert '"stopped"' in (work / "gateway.log").read_text()
    assert "ddp_" not in (work / "gateway.log").read_text()


def test_the_settings_are_known(tmp_path: Path) -> None:
    from duckdb_dp.gateway.config import Config

    (stated,) = blocks("toml")
    database, file = tmp_path / "clinic.duckdb", tmp_path / "gateway.toml"
    database.touch()
    file.write_text(stated.replace("/srv/clinic/clinic.duckdb", str(database)))
    found = Config.read(file, {}, {})
    assert found.http == tomllib.loads(stated)["http"]
    assert found.limits.seconds == 30
