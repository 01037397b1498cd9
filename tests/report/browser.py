"""Chromium over its DevTools protocol: what the tests of the page need of it, and no more."""

import base64
import json
import subprocess
import time
import urllib.request
from pathlib import Path

import websocket

SECONDS = 60.0


class Browser:
    """A headless Chromium with one tab."""

    def __init__(self, program, profile: Path):
        self.process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.count = 0
        self.events = []
        try:
            self.socket = websocket.create_connection(self._address(profile), timeout=SECONDS)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _address(self, profile):
        port_file = profile / "DevToolsActivePort"
        limit = time.monotonic() + SECONDS
        while not (port_file.exists() and port_file.read_text().count("\n")):
            if time.monotonic() > limit or self.process.poll() is not None:
                raise TimeoutError("Chromium did not start")
            time.sleep(0.05)
        port = port_file.read_text().split("\n")[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=SECONDS) as answer:
            return next(tab["webSocketDebuggerUrl"] for tab in json.load(answer) if tab["type"] == "page")

    def call(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") == self.count:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, path: Path, width=1280, scheme="light"):
        """Open a page from the disk at a width and in a colour scheme; events are those of this page."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(json.loads(self.socket.recv()))

    def run(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key):
        code = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self):
        """Errors and warnings of the page's console."""
        said = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                said.append(event["params"]["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                said.append(str(event["params"]["args"]))
            elif event["method"] == "Log.entryAdded":
                said.append(event["params"]["entry"]["text"])
        return said

    def requested(self):
        """The addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path):
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.terminate()
        self.process.wait()
