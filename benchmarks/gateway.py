"""Load on a gateway: stored answers and first requests a second over Flight SQL and MCP, their times, and memory over many requests.

    python benchmarks/gateway.py                     # a minute
    python benchmarks/gateway.py --requests 100000   # memory over as many requests

The server has a process of its own, and the clients another. Beside the rate by the clock stands the one by the server's processor
time, which other work on the machine changes less.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow.flight as fl
from adbc_driver_flightsql import dbapi

import duckdb_dp
from duckdb_dp.gateway.flight.messages import pack

SERVE = """
import sys
from pathlib import Path
from duckdb_dp.gateway import serve
from duckdb_dp.gateway.config import Config, Limits
config = Config(database=Path(sys.argv[1]), flight=0, http=0, limits=Limits(at_once=1000, per_minute=10**9))
serve.run(config, ready=lambda ports: print(ports["flight"], ports["http"], flush=True))
"""


def make_database(path: Path) -> str:
    """Adult with 48,842 rows, and an account with a large grant; its token."""
    with duckdb.connect(str(path)) as con:
        duckdb_dp.load(con, progress=False)
        con.execute(f"CREATE TABLE adult AS FROM '{Path(duckdb_dp.__file__).parent / 'data_files' / 'adult.parquet'}'")
        con.execute("CALL dp_protect('adult', epsilon := 1000, delta := 1e-9)")
        con.execute("CALL dp_attribute('adult', 'sex', \"values\" := ['Male', 'Female'])")
        con.execute("CALL dp_attribute('adult', 'age', bins := [17, 30, 40, 50, 60, 91])")
        token = str(con.execute("CALL dp_account('alice', role := 'analyst')").fetchall()[0][2])
        con.execute("CALL dp_grant('alice', 'adult', epsilon := 900)")
    return token


def stored(number: int) -> str:
    """One of a hundred requests."""
    return f"FROM dp_marginals('adult', [['sex', 'age']], epsilon := {0.1 + number % 100 * 1e-6:.6f})"


class Load:
    """A served database and what its process uses."""

    def __init__(self, ports: list[str], token: str, process: psutil.Process) -> None:
        self.uri, self.http = f"grpc://localhost:{ports[0]}", int(ports[1])
        self.token, self.process = token, process

    def plain(self) -> Callable[[str], int]:
        """Statements by GetFlightInfo and DoGet."""
        client = fl.connect(self.uri)
        options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {self.token}".encode())])

        def ask(sql: str) -> int:
            descriptor = fl.FlightDescriptor.for_command(pack("CommandStatementQuery", query=sql))
            info = client.get_flight_info(descriptor, options)
            return int(client.do_get(info.endpoints[0].ticket, options).read_all().num_rows)

        return ask

    def adbc(self) -> Callable[[str], int]:
        """Statements as ADBC's DB API runs them: prepared, executed, read, closed."""
        connection = dbapi.connect(self.uri, db_kwargs={"username": "alice", "password": self.token}, autocommit=True)

        def ask(sql: str) -> int:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return int(cursor.fetch_arrow_table().num_rows)

        return ask

    def mcp(self) -> Callable[[str], int]:
        """Statements by the tool ``ask``, a request each on one connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http)
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

        def ask(sql: str) -> int:
            call = {"name": "ask", "arguments": {"sql": sql}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            connection.request("POST", "/mcp", json.dumps(body), headers)
            return len(json.loads(connection.getresponse().read())["result"]["structuredContent"]["rows"])

        return ask

    def measure(
        self, name: str, statements: list[str], make: Callable[[], Callable[[str], int]], clients: int = 4
    ) -> None:
        """Print the rate, the times, and the server's memory."""
        times: list[float] = []
        shares = [statements[start::clients] for start in range(clients)]
        asks = [make() for _ in range(clients)]

        def work(ask: Callable[[str], int], share: list[str]) -> None:
            for sql in share:
                began = time.perf_counter()
                assert ask(sql) > 0
                times.append(time.perf_counter() - began)

        used, began = self.used(), time.perf_counter()
        threads = [threading.Thread(target=work, args=each) for each in zip(asks, shares, strict=True)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        seconds, processor = time.perf_counter() - began, self.used() - used
        p50, p99 = np.percentile(times, [50, 99]) * 1000
        memory = self.process.memory_info().rss / 2**20
        print(
            f"{name:<34} {len(times):>7} {len(times) / seconds:>8.0f}/s {len(times) / processor:>8.0f}/s of the server's processor"
            f" {p50:>7.1f} ms {p99:>7.1f} ms {memory:>6.0f} MB",
            flush=True,
        )

    def used(self) -> float:
        """Seconds of processor time of the server."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000, help="stored answers that are read")
    parser.add_argument("--first", type=int, default=100, help="requests that are new")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.duckdb"
        token = make_database(path)
        script = Path(folder) / "serve.py"
        script.write_text(SERVE)
        began = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, str(script), str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            load = Load(server.stdout.readline().split(), token, psutil.Process(server.pid))
            print(f"started after {time.perf_counter() - began:.1f} s, of which {load.used():.1f} s of processor time")
            first = [
                f"FROM dp_marginals('adult', [['sex']], epsilon := {0.01 + number * 1e-7:.7f})"
                for number in range(arguments.first)
            ]
            load.measure("first requests, 4 clients", first, load.plain)
            load.measure("100 requests become stored", [stored(number) for number in range(100)], load.plain)
            for _ in range(max(1, arguments.requests // 10_000)):
                count = min(arguments.requests, 10_000)
                load.measure(
                    "stored answers, Flight, 4 clients", [stored(number) for number in range(count)], load.plain
                )
            load.measure("stored answers, ADBC, 4 clients", [stored(number) for number in range(2_000)], load.adbc)
            load.measure(
                "stored answers, MCP, 4 clients", [stored(number) for number in range(arguments.first * 5)], load.mcp
            )
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
