"""ClickBench's 43 queries with users as the unit: which are answered, and which are refused and why. Writes docs/clickbench.md.

    python benchmarks/accuracy/clickbench.py

The table has ClickBench's schema (https://github.com/ClickHouse/ClickBench, `hits`) and made-up rows: what is answered depends
on the schema, the declarations and the text alone.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

import duckdb_dp.testing

COLUMNS = """
WatchID BIGINT, JavaEnable SMALLINT, Title TEXT, GoodEvent SMALLINT, EventTime TIMESTAMP, EventDate DATE, CounterID INTEGER,
ClientIP INTEGER, RegionID INTEGER, UserID BIGINT, CounterClass SMALLINT, OS SMALLINT, UserAgent SMALLINT, URL TEXT, Referer TEXT,
IsRefresh SMALLINT, RefererCategoryID SMALLINT, RefererRegionID INTEGER, URLCategoryID SMALLINT, URLRegionID INTEGER,
ResolutionWidth SMALLINT, ResolutionHeight SMALLINT, ResolutionDepth SMALLINT, FlashMajor SMALLINT, FlashMinor SMALLINT,
FlashMinor2 TEXT, NetMajor SMALLINT, NetMinor SMALLINT, UserAgentMajor SMALLINT, UserAgentMinor TEXT, CookieEnable SMALLINT,
JavascriptEnable SMALLINT, IsMobile SMALLINT, MobilePhone SMALLINT, MobilePhoneModel TEXT, Params TEXT, IPNetworkID INTEGER,
TraficSourceID SMALLINT, SearchEngineID SMALLINT, SearchPhrase TEXT, AdvEngineID SMALLINT, IsArtifical SMALLINT,
WindowClientWidth SMALLINT, WindowClientHeight SMALLINT, ClientTimeZone SMALLINT, ClientEventTime TIMESTAMP,
SilverlightVersion1 SMALLINT, SilverlightVersion2 SMALLINT, SilverlightVersion3 INTEGER, SilverlightVersion4 SMALLINT,
PageCharset TEXT, CodeVersion INTEGER, IsLink SMALLINT, IsDownload SMALLINT, IsNotBounce SMALLINT, FUniqID BIGINT,
OriginalURL TEXT, HID INTEGER, IsOldCounter SMALLINT, IsEvent SMALLINT, IsParameter SMALLINT, DontCountHits SMALLINT,
WithHash SMALLINT, HitColor TEXT, LocalEventTime TIMESTAMP, Age SMALLINT, Sex SMALLINT, Income SMALLINT, Interests SMALLINT,
Robotness SMALLINT, RemoteIP INTEGER, WindowName INTEGER, OpenerName INTEGER, HistoryLength SMALLINT, BrowserLanguage TEXT,
BrowserCountry TEXT, SocialNetwork TEXT, SocialAction TEXT, HTTPError SMALLINT, SendTiming INTEGER, DNSTiming INTEGER,
ConnectTiming INTEGER, ResponseStartTiming INTEGER, ResponseEndTiming INTEGER, FetchTiming INTEGER,
SocialSourceNetworkID SMALLINT, SocialSourcePage TEXT, ParamPrice BIGINT, ParamOrderID TEXT, ParamCurrency TEXT,
ParamCurrencyID SMALLINT, OpenstatServiceName TEXT, OpenstatCampaignID TEXT, OpenstatAdID TEXT, OpenstatSourceID TEXT,
UTMSource TEXT, UTMMedium TEXT, UTMCampaign TEXT, UTMContent TEXT, UTMTerm TEXT, FromTag TEXT, HasGCLID SMALLINT,
RefererHash BIGINT, URLHash BIGINT, CLID INTEGER
"""

MADE = {
    "EventTime": "TIMESTAMP '2013-07-01' + to_minutes((hash(i) % 44640)::BIGINT)",
    "EventDate": "DATE '2013-07-01' + (hash(i) % 31)::INTEGER",
    "UserID": "hash(i // 20) % 3000",
    "CounterID": "CASE WHEN i % 3 = 0 THEN 62 ELSE (hash(i, 1) % 40)::INTEGER END",
    "RegionID": "(hash(i, 2) % 30)::INTEGER",
    "URL": "'http://site' || (hash(i, 3) % 25) || CASE WHEN i % 7 = 0 THEN '.google/' ELSE '.example/' END || (hash(i, 4) % 40)",
    "Referer": "CASE WHEN i % 3 > 0 THEN 'https://www.ref' || (hash(i, 5) % 12) || '.com/' || (hash(i, 6) % 500) ELSE '' END",
    "Title": "'Page ' || (hash(i, 7) % 30) || CASE WHEN i % 11 = 0 THEN ' Google' ELSE '' END",
    "SearchPhrase": "CASE WHEN i % 4 = 0 THEN 'phrase ' || (hash(i, 8) % 60) ELSE '' END",
    "MobilePhoneModel": "CASE WHEN i % 5 = 0 THEN 'model ' || (hash(i, 9) % 9) ELSE '' END",
    "BrowserLanguage": "'en'",
    "PageCharset": "'utf-8'",
    "URLHash": "CASE WHEN i % 50 = 0 THEN 2868770270353813622 ELSE (hash(i, 3) % 25)::BIGINT END",
    "RefererHash": "CASE WHEN i % 40 = 0 THEN 3594120000172545465 ELSE (hash(i, 5) % 25)::BIGINT END",
    "ResolutionWidth": "(800 + 100 * (hash(i, 11) % 12))::SMALLINT",
    "IsRefresh": "(i % 10 = 0)::SMALLINT",
    "DontCountHits": "(i % 20 = 0)::SMALLINT",
    "IsLink": "(i % 6 = 0)::SMALLINT",
    "TraficSourceID": "(i % 8 - 1)::SMALLINT",
    "WatchID": "hash(i, 12) // 4",
    "ClientIP": "(hash(i // 20) % 100000)::INTEGER",
}
"""What is not a small whole number or an empty text."""

_SUMS = ", ".join(["SUM(ResolutionWidth)", *(f"SUM(ResolutionWidth + {i})" for i in range(1, 90))])

QUERIES = Path(__file__).with_suffix(".sql").read_text().replace("@SUMS", _SUMS)
"""The queries as ClickBench has them; of the one with 90 sums the sums are written here."""

DECLARED = [
    "CALL dp_protect('hits', unit := 'UserID', max_rows := 20, epsilon := 1000, delta := 1e-9, discovery_delta := 5e-10)",
    "CALL dp_attribute('hits', 'EventDate', low := '2013-07-01', high := '2013-07-31')",
    "CALL dp_attribute('hits', 'ResolutionWidth', low := 0, high := 4000, step := 100)",
    "CALL dp_attribute('hits', 'AdvEngineID', low := 0, high := 20)",
    "CALL dp_attribute('hits', 'SearchEngineID', low := 0, high := 20)",
]
"""What a steward would declare who knows the log's month and a few codes, and has not looked at the data."""

EPSILON = 2.0
ROWS = 20_000


def made(connection: duckdb.DuckDBPyConnection) -> None:
    """The table, with made-up rows, and what is declared of it."""
    names = [column.split() for column in COLUMNS.replace("\n", " ").split(", ")]
    empty = {"TEXT": "''", "TIMESTAMP": MADE["EventTime"], "DATE": MADE["EventDate"]}
    shown = [
        f"({MADE.get(name) or empty.get(type_) or f'(hash(i, {place}) % 10)'})::{type_} AS {name}"
        for place, (name, type_) in enumerate(names)
    ]
    connection.execute(f"CREATE TABLE hits AS SELECT {', '.join(shown)} FROM range({ROWS}) t(i)")
    for call in DECLARED:
        connection.execute(call).fetchall()


def results() -> Iterator[tuple[int, str, str, str]]:
    """(number, text, answered or refused, charges or the reason) of each query."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        duckdb_dp.testing.load(connection, Path(folder) / "l.dp", seed=1)
        made(connection)
        for number, query in enumerate(filter(None, map(str.strip, QUERIES.split(";\n")))):
            before = _charges(connection)
            text = query.rstrip(";")
            try:
                connection.execute("FROM dp_sql(?, epsilon := ?)", [text, EPSILON]).fetchall()
                kind, found = "answered", ""
            except duckdb.Error as error:
                kind, found = "refused", str(error).split("\n")[0].removeprefix("Invalid Input Error: dp_sql: ")
            charges = _charges(connection) - before
            assert kind == "answered" or charges == 0, found
            yield (
                number,
                text,
                kind,
                f"{charges} charge{'s' if charges != 1 else ''}" if kind == "answered" else found,
            )


def _charges(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute("SELECT count(*) FROM dp_ledger()").fetchone()
    assert row is not None
    return int(row[0])


def page() -> str:
    """docs/clickbench.md."""
    found = list(results())
    answered = sum(kind == "answered" for *_, kind, _ in found)
    lines = [
        "# ClickBench's 43 queries",
        "",
        "[ClickBench](https://github.com/ClickHouse/ClickBench) asks 43 queries of one table of web hits. Here `UserID` is the unit.",
        f"{answered} are answered and {len(found) - answered} are refused, each with the reason shown, at no charge. The",
        "steward has declared:",
        "",
        "```text",
        *(f"{call};" for call in DECLARED),
        "```",
        "",
        "Columns that nobody has declared are grouped by the values that enough users hold, and `other`: a second charge; both",
        "together cost what was typed. `benchmarks/accuracy/clickbench.py` makes this page from made-up rows, and a slow",
        "test holds it true.",
        "",
        "| | query | | |",
        "|---|---|---|---|",
    ]
    for number, text, kind, what in found:
        shown = text if len(text) <= 160 else f"{text[:150]} ..."
        lines.append(
            f"| {number} | `{shown.replace('|', chr(92) + '|')}` | {kind} | {what.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page()
    (Path(duckdb_dp.__file__).parents[1] / "docs" / "clickbench.md").write_text(text)
    print(text)
