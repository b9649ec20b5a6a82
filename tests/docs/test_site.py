"""The documentation builds as a site, with warnings as errors, and a reader's browser fetches nothing for it."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.server import browser

ROOT = Path(__file__).parents[2]

for needed in ("mkdocs", "material", "mkdocstrings", "nbconvert"):
    pytest.importorskip(needed)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """docs/site_hooks.py as a module."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    found = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ROOT / "mkdocs.yml", "-d", folder],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return folder


@pytest.mark.slow
def test_every_document_and_notebook_is_a_page(site: Path, hooks: ModuleType) -> None:
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert pages == {page.replace(".md", ".html") for page in documents | set(hooks.OUTSIDE.values())}


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path) -> None:
    linked = set(re.findall(r'<a href="([^"#]+\.html)"[^>]* class="md-nav__link', (site / "index.html").read_text()))
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html", "index.html"}
    assert pages <= linked


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]+', path.read_text())
        assert not loaded, path


FRAME = """
const fs = require("fs"), vm = require("vm");
const [shim, worker, index, word] = process.argv.slice(1);
const inside = vm.createContext(Object.assign(new EventTarget(), { console, MessageEvent }));
for (const name of ["addEventListener", "dispatchEvent"]) inside[name] = EventTarget.prototype[name].bind(inside.self = inside);
const target = new EventTarget();
inside.addEventListener = target.addEventListener.bind(target);
inside.dispatchEvent = target.dispatchEvent.bind(target);
inside.window = inside.parent = inside;
let script;
inside.document = { createElement: () => (script = {}), documentElement: { append() {} } };
const outside = vm.createContext({ location: { protocol: "file:" }, EventTarget, MessageEvent });
outside.window = outside;
outside.document = { createElement: () => ({ contentWindow: inside }), documentElement: { append() {} } };
vm.runInContext(fs.readFileSync(shim, "utf8"), outside);
const data = vm.runInNewContext(fs.readFileSync(index, "utf8") + "; JSON.stringify(__index)");
const running = new outside.Worker(worker);
running.addEventListener("message", ({ data: found }) => {
  if (found.type === 1) running.postMessage({ type: 2, data: word });
  else console.log(JSON.stringify(found.data.items.map((group) => group[0].location)));
});
running.postMessage({ type: 0, data: { ...JSON.parse(data), options: { suggest: false } } });
vm.runInContext(fs.readFileSync(script.src, "utf8"), inside);
script.onload();
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript")
def test_the_search_works_in_pages_that_were_opened_as_files(site: Path) -> None:
    assert "new MessageEvent" in (site / "index.html").read_text()
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search*.js")
    files = [ROOT / "docs" / "search_worker.js", worker, site / "search" / "search_index.js"]
    done = subprocess.run(["node", "-e", FRAME, *files, "querysmasher"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mechanisms/querysmasher.html" in done.stdout


STICKS_OUT = """(() => {
  for (const code of document.querySelectorAll(".md-content pre > code"))
    if (/[\u2500-\u257f]/.test(code.textContent)) code.style.whiteSpace = "pre";  // a table in text, whose lines must not break
  const wide = document.documentElement.clientWidth;
  const found = [...document.querySelectorAll(".md-content *:not(span)")].filter((part) =>
    part.getBoundingClientRect().right > wide + 1 || (part.scrollWidth > part.clientWidth + 1 && part.matches("pre, code, div, table")));
  return found.map((part) => [part.tagName, part.textContent.slice(0, 60)]);
})()"""


@pytest.mark.slow
def test_nothing_sticks_out_of_a_page_on_a_phone(site: Path, tmp_path: Path) -> None:
    """What scrolls sideways hides a number."""
    if browser.find() is None:
        assert os.environ.get("DUCKDB_DP_BROWSER") != "required", "no Chromium was found"
        pytest.skip("no Chromium was found")
    with browser.browsing(tmp_path / "profile") as page:
        page.width(390)
        page.send("Emulation.setScriptExecutionDisabled", value=True)  # half of the time
        for path in sorted(site.rglob("*.html")):
            page.open(path.as_uri())
            assert page.run(STICKS_OUT) == [], path


@pytest.mark.slow
def test_the_python_reference_has_the_public_functions(site: Path) -> None:
    text = (site / "python.html").read_text()
    for name in ("load", "plan", "Workload.marginals", "picture.strategy", "testing.load_exact"):
        assert f'id="duckdb_dp.{name}"' in text
    assert "Privacy: costs nothing" in text


@pytest.mark.parametrize(
    ("target", "source", "page", "expected"),
    [
        ("../README.md", "docs/index.md", "index.md", "index.md"),
        ("../CHANGELOG.md", "docs/index.md", "index.md", "changes.md"),
        ("../../notebooks/README.md", "docs/how-to/notebooks.md", "how-to/notebooks.md", "../notebooks/index.md"),
        ("docs/architecture.md", "CONTRIBUTING.md", "contributing.md", "architecture.md"),
        ("1_first_release.ipynb", "notebooks/README.md", "notebooks/index.md", "1_first_release.md"),
        ("../privacy.md", "docs/how-to/units.md", "how-to/units.md", "../privacy.md"),
        ("../sql/dp_sql.sql", "docs/sql.md", "sql.md", "../sql/dp_sql.sql"),  # not on the site: mkdocs will say so
    ],
)
def test_links_of_the_repository_become_links_of_the_site(
    hooks: ModuleType, target: str, source: str, page: str, expected: str
) -> None:
    assert hooks.link(target, source, page) == expected
