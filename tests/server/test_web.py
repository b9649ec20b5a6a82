"""The pages: headers, cookies, forms, escaping, downloads, and what a steward decides."""

import contextlib
import csv
import html
import io
import re
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest

pytest.importorskip("mcp", exc_type=ImportError)

from starlette.testclient import TestClient

from duckdb_dp.errors import DPError
from duckdb_dp.gateway.http.app import application
from duckdb_dp.gateway.http.guard import HEADERS

ASKED = "FROM dp_sql('SELECT sex, count(*) AS n FROM visits GROUP BY sex', epsilon := 0.2)"
LARGE = "FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.8)"


class Browser:
    """A signed-in browser without scripts."""

    def __init__(self, served: Any, name: str | None = None, scheme: str = "http") -> None:
        self.http = TestClient(application(served.gateway), base_url=f"{scheme}://testserver")
        if name is not None:
            self.http.__enter__()
            assert self.send("/sign-in", "/sign-in", name=name, token=served.tokens[name]).url.path == "/"

    def close(self) -> None:
        self.http.__exit__(None, None, None)

    def csrf(self, path: str) -> str:
        return fields(self.http.get(path).text)["csrf"]

    def send(self, page: str, path: str, **form: str) -> Any:
        return self.http.post(path, data={"csrf": self.csrf(page), **form})

    def price(self, sql: str) -> Any:
        return self.send("/ask", "/ask", do="price", sql=sql)

    def ask(self, sql: str) -> Any:
        priced = fields(self.price(sql).text)
        return self.http.post(
            "/ask", data={"csrf": priced["csrf"], "priced": priced["priced"], "sql": sql, "do": "ask"}
        )


def fields(page: str) -> dict[str, str]:
    """Hidden fields of a page's forms."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


@pytest.fixture
def browsers(served: Any) -> Any:
    opened: dict[str, Browser] = {}

    def of(name: str) -> Browser:
        if name not in opened:
            opened[name] = Browser(served, name)
        return opened[name]

    yield of
    for browser in opened.values():
        browser.close()


PAGES = ("/", "/dataset/visits", "/ask", "/releases", "/budget", "/words.json")
STEWARDS = ("/queue", "/accounts", "/records/ledger", "/records/audit", "/records/audit.csv")


@pytest.mark.slow
def test_every_page_is_for_those_who_are_signed_in(served: Any, browsers: Any) -> None:
    stranger = Browser(served)
    for path in (*PAGES, *STEWARDS, "/answer/x.csv", "/releases/1", "/queue/1"):
        found = stranger.http.get(path, follow_redirects=False)
        assert (found.status_code, found.headers["location"]) == (303, "/sign-in"), path
    for path in PAGES:
        assert browsers("alice").http.get(path).status_code == 200, path
        assert browsers("sam").http.get(path).status_code == 200, path
    for path in STEWARDS:
        assert browsers("alice").http.get(path).status_code == 403, path
        assert browsers("sam").http.get(path).status_code == 200, path


def test_headers_of_every_answer(served: Any, browsers: Any) -> None:
    browser = browsers("alice")
    for path in (*PAGES, "/nothing", "/sign-in", "/static/sql.js", "/static/gateway.css", "/health", "/mcp"):
        found = browser.http.get(path)
        assert {name: found.headers[name] for name in HEADERS} == HEADERS, path
        assert "unsafe" not in found.headers["content-security-policy"]
        assert "server" not in found.headers
        # Nothing inline that the policy would have to allow.
        assert not re.search(r"<style|style=|<script(?! src=)|javascript:|\son\w+=", found.text) or path.endswith(
            (".js", ".css")
        )
        assert found.headers["cache-control"] == ("public, max-age=3600" if "/static/" in path else "no-store")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_cookie(served: Any, scheme: str) -> None:
    browser = Browser(served, "alice", scheme)
    csrf = browser.csrf("/ask")
    name = "__Host-duckdb_dp" if scheme == "https" else "duckdb_dp"
    old = browser.http.cookies[name]
    found = browser.http.get("/sign-in", follow_redirects=False)
    assert found.headers["location"] == "/"
    fresh = Browser(served, scheme=scheme).http.get("/sign-in").headers["set-cookie"].lower()
    assert fresh.startswith(name.lower())
    assert all(word in fresh for word in ("httponly", "samesite=strict", "path=/"))
    assert ("; secure" in fresh) == (scheme == "https")
    browser.http.post("/sign-out", data={"csrf": csrf})
    browser.http.cookies.set(name, old)
    assert browser.http.get("/budget", follow_redirects=False).status_code == 303, (
        "signed out means gone, not only forgotten"
    )
    browser.close()


def test_a_form_of_another_site_does_nothing(served: Any, browsers: Any) -> None:
    sam, alice = browsers("sam"), browsers("alice")
    alice.ask(LARGE)
    for form in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": alice.csrf("/ask")}):
        assert sam.http.post("/queue/1", data={**form, "do": "approve"}).status_code == 403
        assert (
            sam.http.post("/accounts", data={**form, "do": "account", "name": "eve", "role": "steward"}).status_code
            == 403
        )
        assert sam.http.post("/ask", data={**form, "do": "price", "sql": ASKED}).status_code == 403
    good = {"csrf": sam.csrf("/ask"), "do": "approve"}
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert sam.http.post("/queue/1", data=good, headers=headers).status_code == 403
    assert Browser(served).http.post("/sign-in", data={"name": "sam", "token": served.tokens["sam"]}).status_code == 403
    assert "waiting" in sam.http.get("/queue/1").text


@pytest.mark.slow
def test_wrong_tokens_are_refused_and_then_not_heard(served: Any) -> None:
    browser = Browser(served)
    with browser.http:
        found = [browser.send("/sign-in", "/sign-in", name="alice", token=f"ddp_{i}") for i in range(12)]
        assert [each.status_code for each in found] == [401] * 10 + [429] * 2
        assert {re.search(r'role="alert">(.*?)<', each.text)[1] for each in found[:10]} == {
            html.escape("the name or the token is wrong; the steward makes new ones: CALL dp_account('alice').", quote=True).replace("&#x27;", "&#39;")
        }  # fmt: skip


@pytest.mark.slow
def test_price_first_and_then_the_answer(served: Any, browsers: Any) -> None:
    browser = browsers("alice")
    left = lambda: served.gateway.broker.ledger.asked_by("alice").budget_rows()[0]["remaining"]  # noqa: E731
    before = left()
    priced = browser.price(ASKED)
    assert re.search(
        r"This costs [\d.]+ % of your budget for visits, [\d.]+ % of what is left; each answer ± \d+", priced.text
    )
    unsealed = browser.http.post(
        "/ask", data={"csrf": fields(priced.text)["csrf"], "sql": ASKED, "do": "ask", "priced": ""}
    )
    assert "This costs" in unsealed.text
    other = fields(priced.text) | {"sql": ASKED.replace("0.2", "0.4"), "do": "ask"}
    assert "This costs" in browser.http.post("/ask", data=other).text, "what was changed is priced again"
    assert left() == before
    answer = browser.ask(ASKED)
    assert left() < before
    assert 'class="mark-interval"' in answer.text
    keys = re.findall(r'href="(/answer/[^"]+)"', answer.text)
    csv, parquet = (browser.http.get(key) for key in keys)
    assert csv.headers["content-disposition"] == 'attachment; filename="answer.csv"'
    read = pyarrow.csv.read_csv(io.BytesIO(csv.content))
    assert read.column_names == pyarrow.parquet.read_table(io.BytesIO(parquet.content)).column_names
    assert {"sex", "n", "ci_low", "ci_high"} <= set(read.column_names)
    after = left()
    (release,) = re.findall(r'href="(/releases/\d+)"', browser.http.get("/releases").text)
    assert 'class="mark-interval"' in browser.http.get(release).text
    assert browser.http.get(f"{release}.csv").content == csv.content
    browser.ask(ASKED)
    assert left() == after
    assert browsers("bob").http.get(keys[0]).status_code == 400, "an answer is of its visit alone"
    assert "Synthetic" in browser.ask("SELECT sex, count(*) FROM visits_syn GROUP BY sex").text
    assert browser.price("FROM dp_sql(").status_code == 400


@pytest.mark.slow
def test_a_steward_decides(served: Any, browsers: Any) -> None:
    alice, sam = browsers("alice"), browsers("sam")
    assert "wait for a steward" in alice.price(LARGE).text
    assert "request 1 waits" in html.unescape(alice.ask(LARGE).text)
    assert html.escape(LARGE, quote=True).replace("&#x27;", "&#39;") in sam.http.get("/queue").text
    page = sam.http.get("/queue/1").text
    assert re.search(r"Each answer ± \d+; [\d.]+ % of the budget of visits", page)
    assert sam.send("/queue/1", "/queue/1", do="refuse").status_code == 400
    assert sam.send("/queue/1", "/queue/1", do="approve").url.path == "/queue"
    assert 'class="mark-interval"' in alice.ask(LARGE).text or 'class="shaded"' in alice.ask(LARGE).text
    made = sam.send("/accounts", "/accounts", do="account", name="carol", role="analyst").text
    token = re.search(r"ddp_[\w-]+", made)[0]
    assert token not in sam.http.get("/accounts").text
    sam.send("/accounts", "/accounts", do="grant", name="carol", dataset="visits", epsilon="0.3")
    carol = Browser(served)
    with carol.http:
        carol.send("/sign-in", "/sign-in", name="carol", token=token)
        assert "visits" in carol.http.get("/").text
        sam.send("/accounts", "/accounts", do="account", name="carol", role="closed")
        assert carol.http.get("/", follow_redirects=False).headers["location"] == "/sign-in", "closed means out at once"
    for name in ("ledger", "audit"):
        assert sam.http.get(f"/records/{name}.csv").content.count(b"\n") > 2
        assert sam.http.get(f"/records/{name}.parquet").content.startswith(b"PAR1")


HOSTILE = "<script>alert(1)</script>\"'&{{ 77*77 }}"


@pytest.mark.slow
def test_hostile_texts_stay_texts(served: Any, browsers: Any) -> None:
    alice, sam = browsers("alice"), browsers("sam")
    quoted = HOSTILE.replace("'", "''")
    column = HOSTILE.replace('"', '""')
    tries = [
        alice.price(HOSTILE),
        alice.http.get("/ask", params={"sql": f"</textarea>{HOSTILE}"}),
        alice.http.get("/dataset/" + "%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
        alice.ask(f"SELECT '{quoted}' AS \"{column}\", 1 AS n FROM towns"),
        alice.ask(f"FROM dp_sql('SELECT count(*) AS n FROM visits', epsilon := 0.01, release := '{quoted}')"),
        alice.http.get("/releases"),
        alice.http.get("/releases/1"),
        sam.http.get("/records/audit"),
        sam.http.get("/records/ledger"),
        sam.send("/accounts", "/accounts", do="account", name=HOSTILE, role="analyst"),
    ]
    for found in tries:
        assert "<script>alert" not in found.text, found.url
        assert "</textarea>&" not in found.text
        assert "5929" not in found.text or "{{ 77*77 }}" in html.unescape(found.text)
    assert any("&lt;script&gt;" in found.text for found in tries)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_fuzzed_requests_get_no_traceback(served: Any, browsers: Any, seed: int) -> None:
    import random

    random.seed(seed)
    sam = browsers("sam")
    paths = [*PAGES, *STEWARDS, "/sign-in", "/sign-out", "/mcp", "/health", "/static/x", "/answer/..", "/releases/1e9.csv", "/queue/99999999999999999999"]  # fmt: skip
    bodies = [b"", b"csrf=", b"\xff\xfe=\x00", b"&".join([b"a=1"] * 100), b"{" * 1000, b"sql=" + b"%00" * 50, b'{"jsonrpc": "2.0", "id": {}, "method": 3}']  # fmt: skip
    csrf = sam.csrf("/ask").encode()
    for _ in range(150):
        path = random.choice(paths) + random.choice(["", "", "/", "%00", "?sql=%FF%00", "%2e%2e/", "é"])
        method = random.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
        body = random.choice(bodies)
        if random.random() < 0.5:
            junk = bytes(random.randrange(256) for _ in range(40))
            body = (
                b"csrf="
                + csrf
                + b"&do="
                + random.choice([b"ask", b"price", b"approve", b"grant", junk])
                + b"&sql="
                + junk
            )
        kind = random.choice(
            ["application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x", "\x7f"]
        )
        token = random.choice([served.tokens["sam"], "x", ""])
        found = sam.http.request(
            method,
            path,
            content=body,
            headers={"content-type": kind, "authorization": f"Bearer {token}"},
            follow_redirects=False,
        )
        assert found.status_code < 500, (method, path, body, found.text)
        assert "Traceback" not in found.text
        assert 'File "' not in found.text


def test_what_nobody_foresaw_is_a_number(served: Any, browsers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("secret4711")

    browser = browsers("alice")
    monkeypatch.setattr("duckdb_dp.gateway.http.pages.sections", broken)
    monkeypatch.setattr("duckdb_dp.gateway.session.Session.releases", broken)
    for found in (browser.http.get("/releases"), browser.ask(ASKED)):
        assert found.status_code == 500
        assert re.search(r"internal error \d+; the steward finds this number in the log", found.text)
        assert "secret4711" not in found.text


@pytest.mark.slow
def test_no_text_of_a_download_is_a_formula(browsers: Any, served: Any) -> None:
    alice, sam = browsers("alice"), browsers("sam")
    odd = "SELECT '=1+1' AS \"=a\", '+1' AS b, '@x' AS c, ['=1'] AS d, -2 AS e, -1.5::DECIMAL(4, 1) AS f, INTERVAL 1 DAY AS i, 'infinity'::DATE AS j, '\\x09'::BLOB AS k"
    (key,) = re.findall(r'href="(/answer/\S+\.csv)"', alice.ask(odd).text)
    heads, row = csv.reader(io.StringIO(alice.http.get(key).text))
    assert heads[0] == "'=a"
    assert row[:3] == ["'=1+1", "'+1", "'@x"]
    assert row[4:6] == ["-2", "-1.5"]  # numbers are numbers
    for form in ("=HYPERLINK(1)", "\t=1", "@a"):
        with contextlib.suppress(DPError):
            served.gateway.sign_in(form, "no", client=form)
    cells = [cell for line in csv.reader(io.StringIO(sam.http.get("/records/audit.csv").text)) for cell in line]
    assert "'=HYPERLINK(1)" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))]


@pytest.mark.slow
def test_nothing_of_a_request_is_hidden_from_a_steward(browsers: Any) -> None:
    alice, sam = browsers("alice"), browsers("sam")
    alice.ask("FROM dp_sql('SELECT count(*) AS n FROM visits WHERE sex <> ''\x1b[2K\u202eabc\r''', epsilon := 0.8)")
    for path in ("/queue", "/queue/1", "/records/audit"):
        page = sam.http.get(path).text
        assert "\\u001b[2K\\u202eabc" in page
        assert not {"\x1b", "\u202e", "\r"} & set(page)


@pytest.mark.slow
def test_releases_are_listed_newest_first_fifty_on_a_page_and_each_says_what_it_is(served: Any, browsers: Any) -> None:
    alice = browsers("alice")
    session = served.session("alice")
    for age in range(52):
        session.run(f"FROM dp_sql('SELECT count(*) AS n FROM visits WHERE age > {age}', epsilon := 0.01)")

    def listed(path: str) -> list[int]:
        return [int(number) for number in re.findall(r'href="/releases/(\d+)"', alice.http.get(path).text)]

    first, second = listed("/releases"), listed("/releases?page=2")
    assert len(first) == 50
    assert first + second == sorted({*first, *second}, reverse=True)
    assert listed("/releases?page=99") == second
    assert listed("/releases?page=x") == first
    page = html.unescape(alice.http.get(f"/releases/{first[0]}").text)
    for said in (
        "visits: count(*) where age > 51",
        "<dd>visits</dd>",
        "<dd>dp_sql</dd>",
        "<dd>0.01 at delta 1e-09</dd>",
    ):
        assert said in page


def test_what_a_page_completes_is_what_the_role_may_call_and_is_no_row_of_the_audit(served: Any, browsers: Any) -> None:
    for name, steward in (("alice", False), ("sam", True)):
        browser, session = browsers(name), served.session(name)
        served.gateway.audit.flush()
        before = len(served.gateway.broker.ledger.accounts.audit())
        words = browser.http.get("/words.json").json()
        served.gateway.audit.flush()
        assert len(served.gateway.broker.ledger.accounts.audit()) == before
        assert ("dp_account" in words["functions"]) == steward
        assert "dp_protect" not in words["functions"]
        with pytest.raises(DPError) as refused:
            session.run("FROM dp_protect('visits')")
        assert ", ".join(words["functions"]) in str(refused.value), "one list"
        assert words["tables"] == ["towns", "visits", "visits_syn"]


def test_tables_to_read_are_on_the_pages(browsers: Any) -> None:
    alice = browsers("alice")
    page = alice.http.get("/").text
    assert re.search(r'href="/dataset/towns">towns</a>, public', page)
    assert re.search(r'href="/dataset/visits_syn">visits_syn</a>, synthetic', page)
    assert "Public:" in alice.http.get("/dataset/towns").text
    assert "Synthetic:" in alice.http.get("/dataset/visits_syn").text
    assert "payroll" not in page


def test_a_request_that_was_approved_and_paid_is_said_to_be(browsers: Any) -> None:
    alice, sam = browsers("alice"), browsers("sam")
    alice.ask(LARGE)
    sam.send("/queue/1", "/queue/1", do="approve")
    assert "Ask it again" in alice.http.get("/budget").text
    queue = html.unescape(sam.http.get("/queue").text)
    assert "Request 1</a> of alice about visits, for epsilon 0.8: approved by sam" in queue
    assert LARGE.removeprefix("FROM ") in queue
    alice.ask(LARGE)
    page = alice.http.get("/budget").text
    assert "Ask it again" not in page
    assert "asked again and answered" in page
    assert "Epsilons do not add up" in page
    assert not re.search(r"\d\d:\d\d:\d\d\.\d", sam.http.get("/accounts").text)


def test_the_ledger_says_who_paid(served: Any, browsers: Any) -> None:
    alice, bob, sam = served.session("alice"), served.session("bob"), browsers("sam")
    for session in (alice, bob):
        session.run(ASKED)
    rows = list(csv.DictReader(io.StringIO(sam.http.get("/records/ledger.csv").text)))
    assert [row["account"] for row in rows] == ["", "alice, bob"], "the curator's synthetic rows are no account's"
    assert "<td>alice, bob</td>" in sam.http.get("/records/ledger").text
