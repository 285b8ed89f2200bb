"""Chromium without a window, driven through chromedriver, inside a test node's namespace."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.node import TestNode, eventually, inside

PORT = 9515
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
PHONE, DESKTOP = (390, 844), (1280, 900)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def what_is_missing() -> str:
    """Return why there can be no browser here, "" if there can."""
    missing = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)} (Debian: chromium, chromium-driver)" if missing else ""


class Browser:
    """One tab."""

    def __init__(self, node: TestNode, profile: str) -> None:
        self._node = node
        self._path = "/session"
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={profile}"]}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "", {"capabilities": {"alwaysMatch": capabilities}})
        self._path = f"/session/{made['sessionId']}"

    def look(self, *, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Be a screen of this size, on a machine set to dark or light."""
        width, height = size
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: str, host: str = "127.0.0.1:10249") -> None:
        self._ask("POST", "/url", {"url": f"http://{host}{path}"})

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the developer tools' protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        return self.command("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def text(self, selector: str = "body") -> str:
        found: str = self._ask("GET", f"/element/{self._find(selector)}/text")
        return found

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def path(self) -> str:
        """Return the path of the page that is shown."""
        url: str = self._ask("GET", "/url")
        return "/" + url.split("/", 3)[3]

    def complaints(self) -> list[str]:
        """Return what the browser has complained of: policy violations, what could not be loaded, failing scripts."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._ask("DELETE", "")

    def _find(self, selector: str) -> str:
        found: str = self._ask("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        def ask() -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
            try:
                text = json.dumps(body) if body is not None else None
                connection.request(method, self._path + path, text, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        status, text = inside(self._node.name, ask)
        value = json.loads(text)["value"]
        assert status == 200, f"{method} {path}: {value['message'].splitlines()[0]}"
        return value


@contextlib.contextmanager
def browser(node: TestNode) -> Iterator[Browser]:
    """Start a browser in the node's namespace; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        argv = ["ip", "netns", "exec", node.name, "chromedriver", f"--port={PORT}"]
        with (node.folder / "chromedriver.log").open("wb") as log:
            driver = subprocess.Popen(argv, stdout=log, stderr=log)
        made = None
        try:
            eventually(lambda: node.get(PORT, "/status")[0] == 200, "chromedriver answers")
            made = Browser(node, folder)
            yield made
        finally:
            if made is not None:
                made.close()
            driver.terminate()
            driver.wait(30)
