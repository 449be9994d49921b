# SPDX-License-Identifier: Apache-2.0
"""A running server for the tests, and ways to talk to it."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import openai
import pytest

TANDEM = os.environ.get("TANDEM", "build/tandem")
MODEL = "models/lexicon"


class Server:
    """`tandem serve` on a free port. `log` is what it wrote so far."""

    def __init__(self, *options):
        self.home = tempfile.TemporaryDirectory()
        env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        env["HOME"] = self.home.name
        env.pop("XDG_STATE_HOME", None)
        self.events = os.path.join(self.home.name, "events.jsonl")
        self.err = open(os.path.join(self.home.name, "stderr"), "w+", encoding="utf-8")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [TANDEM, "serve", MODEL, "--port", "0", "--threads", "1", "--event-log",
             self.events, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.err, env=env)
        self.port = int(self.wait_log(r"^listen  \S+ port (\d+)$", 10).group(1))
        self.listened = time.monotonic() - self.started

    @property
    def log(self):
        with open(self.err.name, encoding="utf-8") as f:
            return f.read()

    def wait_log(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.log, re.M)
            if found:
                return found
            assert self.process.poll() is None, self.log
            time.sleep(0.01)
        raise AssertionError(f"no {pattern} in:\n{self.log}")

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.get("/readyz")[0] == 200:
                return self
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.get('/startupz')}\n{self.log}")

    def request(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, text)"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(c):
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read().decode("utf-8")

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        status, headers, text = self.request("POST", path, body, **kw)
        return status, headers, json.loads(text)

    def raw(self):
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def status(self):
        return json.loads(self.get("/tandem/status")[2])

    def metric(self, name):
        text = self.get("/metrics")[2]
        found = re.search(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", text, re.M)
        return float(found.group(1))

    def wait_idle(self, seconds=20):
        """Until no block or slot is in use; they would be leaks."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s = self.status()
            busy = (s["requests"]["running"] + s["requests"]["waiting"]
                    + s["cache"]["slots_used"] + s["cache"]["blocks_used"])
            if busy == 0:
                return s
            time.sleep(0.05)
        raise AssertionError(f"still busy: {s}")

    def wait_running(self, n=1, seconds=30):
        """The engine's own count, which it tells five times a second."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.status()["requests"]["running"] >= n:
                return
            time.sleep(0.01)
        raise AssertionError(self.status())

    def engine(self):
        """The pid of the worker."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return int(f.read().split()[0])

    def client(self, **kw):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1",
                             api_key=kw.pop("api_key", "none"),
                             max_retries=kw.pop("max_retries", 0), timeout=60, **kw)

    def stop(self, sig=signal.SIGTERM, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.err.close()


@contextlib.contextmanager
def serving(*options, ready=True):
    s = Server(*options)
    try:
        yield s.wait_ready() if ready else s
    finally:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
        s.home.cleanup()


@pytest.fixture(scope="session")
def server():
    with serving("--max-num-seqs", "8") as s:
        yield s
        s.wait_idle()
        assert s.stop() == 0, "the server does not end cleanly"


@pytest.fixture(scope="session")
def client(server):
    return server.client()


def events(text):
    """The JSON of a stream's data lines; its last one is [DONE]."""
    data = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(d) for d in data[:-1]]
