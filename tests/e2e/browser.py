# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its debugging pipe. Nothing but Python's own library.

    with Browser() as b:
        b.open("http://127.0.0.1:8000/")
        b.js("document.title")
        b.wait("document.querySelector('#log').childElementCount > 1")
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "Space": (32, " ")}


def find():
    """Chromium's path, None when there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """One browser with one page. Requests that it makes gather in `requests`, what its
    page complains about in `complaints`."""

    def __init__(self, limit=30):
        self.limit = limit
        self.requests, self.complaints, self.loaded = [], [], 0
        self.number, self.rest, self.session = 0, b"", None
        self.folder = tempfile.mkdtemp(prefix="tandem-browser.")
        to_read, self.to = os.pipe()
        self.come, from_write = os.pipe()
        # The browser expects its pipe at descriptors 3 and 4.
        ends = [os.dup(to_read), os.dup(from_write)]
        high = [self._above(fd) for fd in ends]
        command = [find(), "--headless=new", "--no-sandbox", "--disable-gpu",
                   "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   "--remote-debugging-pipe", "--user-data-dir=" + self.folder,
                   "about:blank"]
        script = f'exec 3<&{high[0]} 4>&{high[1]}; exec "$@"'
        self.process = subprocess.Popen(["bash", "-c", script, "browser"] + command,
                                        pass_fds=high, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for fd in [to_read, from_write] + ends + high:
            os.close(fd)

    @staticmethod
    def _above(fd):
        """A copy of fd that is none of those which the shell moves."""
        copies = [os.dup(fd)]
        while copies[-1] < 10:
            copies.append(os.dup(fd))
        for copy in copies[:-1]:
            os.close(copy)
        os.set_inheritable(copies[-1], True)
        return copies[-1]

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, until):
        """The next message; an event is noted on the way."""
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.come], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.come, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description")
                                   or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])
        elif method == "Page.loadEventFired":
            self.loaded += 1
        return message

    def call(self, method, **params):
        """One command of the protocol, its result."""
        self.number += 1
        ask = {"id": self.number, "method": method, "params": params}
        if self.session:
            ask["sessionId"] = self.session
        os.write(self.to, json.dumps(ask).encode() + b"\0")
        until = time.monotonic() + self.limit
        while True:
            message = self._message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def open(self, url):
        """Opens a page and waits until it is loaded."""
        before, until = self.loaded, time.monotonic() + self.limit
        self.call("Page.navigate", url=url)
        while self.loaded == before:
            self._message(until)

    def js(self, expression):
        """The value of an expression (a promise is waited for)."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        """Waits until an expression is true; false when it never was."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.js(expression):
                return True
            time.sleep(0.02)
        return False

    def type(self, text):
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        """A key, down and up."""
        code, text = KEYS[key]
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=" " if key == "Space" else key,
                      code=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0,
                      **({"text": text} if text and kind == "keyDown" else {}))

    def size(self, width, height, dark=False):
        """The window's size, and light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        """Writes what is to be seen as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
