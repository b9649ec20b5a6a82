"""Drives a Chromium without a window by its own protocol, over a pipe."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back, self._number, self._buffer = out, back, 0, b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next(30)
            assert found is not None, f"no answer to {method}"
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return dict(found["result"])
            self.events.append(found)

    def _next(self, seconds: float) -> dict[str, Any] | None:
        end = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            if not select.select([self._back], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            self._buffer += os.read(self._back, 1 << 20)
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def run(self, script: str) -> Any:
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Until a condition holds, also across pages."""
        for _ in range(200):
            with contextlib.suppress(AssertionError):
                if self.run(script):
                    return
            time.sleep(0.05)
        raise AssertionError(f"not in ten seconds: {script}\n{self.run('document.body.innerText')}")

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href !== 'about:blank' && {json.dumps(url)} !== ''")

    def click(self, selector: str) -> None:
        """Click, and wait for the page that comes."""
        self.run("window.old = true")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        self.wait("!window.old && document.readyState === 'complete'")

    def type(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def width(self, pixels: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=850, deviceScaleFactor=1, mobile=pixels < 600
        )

    def picture(self, path: Path) -> None:
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[str]:
        """What the browser logged: scripts that failed, and what the content policy stopped."""
        self.run("1")
        logged = [each["params"] for each in self.events if each.get("method") == "Log.entryAdded"]
        thrown = [str(each["params"]) for each in self.events if each.get("method") == "Runtime.exceptionThrown"]
        return [each["entry"]["text"] for each in logged if "400" not in each["entry"]["text"]] + thrown


@contextlib.contextmanager
def browsing(profile: Path) -> Iterator[Page]:
    """A browser, until the block ends."""
    program = find()
    assert program is not None
    theirs_in, out = os.pipe()
    back, theirs_out = os.pipe()

    # The browser reads 3 and writes 4. A shell moves the pipes there: code of our own between fork and exec would run beside threads.
    # Both are moved out of the way first, as either may be 3 or 4.
    spare = max(theirs_in, theirs_out) + 1
    moved = f'exec {spare}<&{theirs_in} {spare + 1}>&{theirs_out} 3<&{spare} 4>&{spare + 1} {spare}<&- {spare + 1}>&-; exec "$@"'
    command = ["bash", "-c", moved, "browser", program, *FLAGS, f"--user-data-dir={profile}"]
    running = subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(out, back)
    finally:
        os.close(out)
        running.terminate()
        running.wait(10)
        os.close(back)
