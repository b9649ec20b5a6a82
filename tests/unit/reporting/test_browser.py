"""The page in a real browser: nothing sticks out on a phone, all text can be read, and it prints.

Runs where a Chromium is found; DUCKDB_DP_BROWSER=required makes a missing one a failure.
"""

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip

MEASURE = """
<!doctype html><meta charset="utf-8"><body style="margin:0"><script>
const page = %s, widths = [320, 390, 768, 1280], found = {};
let left = widths.length;
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.srcdoc = page;
  frame.onload = () => {
    const root = frame.contentDocument.documentElement, view = frame.contentWindow;
    found[width] = {scroll: root.scrollWidth, height: root.scrollHeight, faint: faint(frame.contentDocument, view),
                    paper: light(ground(frame.contentDocument.body, view))};
    if (--left === 0) document.title = JSON.stringify(found);
  };
  document.body.append(frame);
}
function rgba(text) { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; }
function over(top, bottom, alpha) { return [0, 1, 2].map(i => top[i] * alpha + bottom[i] * (1 - alpha)); }
function light(c) {
  const [r, g, b] = c.map(x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(element, view) {
  if (!element) return [255, 255, 255];
  const style = view.getComputedStyle(element), own = rgba(style.backgroundColor);
  let color = own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement, view), own[3]);
  const before = view.getComputedStyle(element, "::before");
  if (before.content === '""') color = over(rgba(before.backgroundColor), color, Number(before.opacity));
  return color;
}
function faint(document, view) {
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!words || element.closest(".hidden")) continue;
    const style = view.getComputedStyle(element), drawn = element.namespaceURI.endsWith("svg");
    const ink = rgba(drawn ? style.fill : style.color).slice(0, 3), paper = ground(element, view);
    const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${element.tagName}.${element.className}: ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad.slice(0, 5);
}
</script>
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run Chromium without a window; what it printed."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("DUCKDB_DP_BROWSER") == "required":
            pytest.fail("no Chromium was found")
        pytest.skip("no Chromium was found")
    profile = tmp_path_factory.mktemp("profile")

    def run(*arguments: str) -> str:
        command = [found, *FLAGS, f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    return run


def measure(browser: Callable[..., str], page: str, folder: Path, scheme: str) -> dict[str, Any]:
    """Widths and contrasts of a page in frames of several widths."""
    wrapped = folder / "wrapped.html"
    # In a script no text may end the script.
    wrapped.write_text(MEASURE % json.dumps(page).replace("</", "<\\/"), encoding="utf-8")
    preferred = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    printed = browser(preferred, "--dump-dom", "--virtual-time-budget=20000", f"file://{wrapped}")
    (title,) = re.findall(r"<title>(.*?)</title>", printed, re.DOTALL)[:1]
    found: dict[str, Any] = json.loads(html.unescape(title))
    assert set(found) == {"320", "390", "768", "1280"}
    return found


@pytest.mark.slow
@pytest.mark.some(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overview", "ranges"])
def test_it_fits_and_can_be_read(
    browser: Callable[..., str], pages: Any, tmp_path: Path, name: str, scheme: str
) -> None:
    for width, measured in measure(browser, pages(name), tmp_path, scheme).items():
        assert measured["scroll"] <= int(width), (width, measured)
        assert measured["faint"] == [], (width, measured)
        assert measured["height"] > 1000
        assert (measured["paper"] > 0.5) == (scheme == "light")


@pytest.mark.slow
def test_what_does_not_fit_or_is_faint_is_seen(browser: Callable[..., str], pages: Any, tmp_path: Path) -> None:
    page = pages("conditions").replace("</main>", '<p style="width:900px;color:#999">wide and faint</p></main>')
    found = measure(browser, page, tmp_path, "light")
    assert [found[width]["scroll"] > int(width) for width in ("320", "390", "768", "1280")] == [True, True, True, False]
    assert all("wide and faint" in measured["faint"][0] for measured in found.values())


@pytest.mark.slow
def test_it_prints(browser: Callable[..., str], pages: Any, tmp_path: Path) -> None:
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(pages("overview"), encoding="utf-8")
    browser(f"--print-to-pdf={paper}", "--no-pdf-header-footer", f"file://{page}")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 20
