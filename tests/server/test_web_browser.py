"""The pages in a real browser: a visit from sign-in to answer, on a desk and on a phone, under the content policy."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", exc_type=ImportError)

from duckdb_dp.gateway.http.serving import HttpServer
from tests.server import browser

ASKED = "FROM dp_sql('SELECT sex, count(*) AS n FROM visits GROUP BY sex', epsilon := 0.2)"
LARGE = "FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.8)"


@pytest.fixture
def page(served: Any, tmp_path: Path) -> Any:
    if browser.find() is None:
        if os.environ.get("DUCKDB_DP_BROWSER") == "required":
            pytest.fail("no Chromium was found")
        pytest.skip("no Chromium was found")
    server = HttpServer(served.gateway)
    with browser.browsing(tmp_path / "profile") as found:
        found.home = f"http://127.0.0.1:{server.port}"
        yield found
    server.close()


def sign_in(page: Any, name: str, token: str) -> None:
    page.open(f"{page.home}/sign-in")
    page.type("input[name=name]", name)
    page.type("input[name=token]", token)
    page.click("main button")


def ask(page: Any, sql: str) -> None:
    page.open(f"{page.home}/ask")
    page.type("#sql", sql)
    page.click("button[value=price]")
    page.wait("!!document.querySelector('#spend')")
    page.click("#spend")


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("width", [390, 320, 1280])
def test_a_visit(served: Any, page: Any, width: int, tmp_path: Path) -> None:
    folder = Path(os.environ.get("DUCKDB_DP_PICTURES", tmp_path))
    taken: list[str] = []

    def look(name: str) -> None:
        """Nothing sticks out; a picture for those who look."""
        assert page.run("document.documentElement.scrollWidth") <= width, name
        assert page.run("getComputedStyle(document.querySelector('button')).cursor") == "pointer", (
            "the style sheet is there"
        )
        page.picture(folder / f"{width}_{len(taken):02}_{name}.png")
        taken.append(name)

    page.width(width)
    page.open(f"{page.home}/sign-in")
    look("sign_in")
    sign_in(page, "alice", served.tokens["alice"])
    look("datasets")
    page.open(f"{page.home}/dataset/visits")
    look("columns")

    page.open(f"{page.home}/ask")
    page.wait("typeof words !== 'undefined' && words.length > 0")
    page.type("#sql", "FROM dp_marg")
    page.wait("!document.querySelector('#completions').hidden")
    look("completion")
    for kind in ("keyDown", "keyUp"):
        page.send("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert page.run("document.querySelector('#sql').value") == "FROM dp_marginals("
    page.run("document.querySelector('#sql').value = ''")
    page.type("#sql", ASKED)
    page.click("button[value=price]")
    assert "This costs" in page.run("document.querySelector('.price').innerText")
    look("price")
    page.type("#sql", " ")
    assert page.run("document.querySelector('#spend').disabled"), "what was changed has to be priced again"
    page.run(f"document.querySelector('#sql').value = {json.dumps(ASKED)}; changed()")
    page.click("#spend")
    assert page.run("document.querySelectorAll('.mark-interval').length") == 2
    look("answer")
    ask(page, "FROM dp_marginals('visits', ['age', 'sex'], epsilon := 0.3)")
    look("marginal")
    ask(page, LARGE)
    assert "waits for a steward" in page.run("document.body.innerText")
    look("waiting")
    for name in ("releases", "budget"):
        page.open(f"{page.home}/{name}")
        look(name)
    page.click(".top button")

    sign_in(page, "sam", served.tokens["sam"])
    for path in ("queue", "queue/1", "accounts", "records/ledger", "records/audit"):
        page.open(f"{page.home}/{path}")
        look(path.replace("/", "_"))
    page.open(f"{page.home}/queue/1")
    page.click("button[value=approve]")
    assert "approved by sam" in page.run("document.body.innerText")
    assert page.complaints() == []


@pytest.mark.slow
def test_what_the_policy_stops_is_seen(served: Any, page: Any) -> None:
    page.open(f"{page.home}/sign-in")
    page.run("document.body.setAttribute('onclick', 'window.stolen = 1'); document.body.click()")
    page.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.stolen = 1'}))")
    assert page.run("window.stolen") is None
    assert any("Content Security Policy" in each for each in page.complaints())
