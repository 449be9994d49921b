# SPDX-License-Identifier: Apache-2.0
"""A server's life: start-up, the engine's deaths, limits, keys, the end."""
import json
import os
import signal
import threading
import time

import openai
import pytest

from conftest import Server, events, serving

LONG = {"prompt": "The lighthouse", "max_tokens": 400, "ignore_eos": True, "temperature": 0,
        "stream": True}
# Ids that were generated are prefilled when another engine goes on: other bits by nature,
# so texts are compared where these are too small to matter.
EXACT = ("--numerics", "f32")


def text_of(reply):
    return "".join(c["choices"][0]["text"] for c in events(reply) if "choices" in c)


def ask(server, body, out, key):
    out[key] = server.request("POST", "/v1/completions", body, timeout=120)


def start(server, body, out, key):
    t = threading.Thread(target=ask, args=(server, body, out, key))
    t.start()
    return t


def kill_engine(server):
    pid = server.engine()
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while server.get("/readyz")[0] == 200 and time.monotonic() < end:
        time.sleep(0.002)


def test_port_at_once_and_503_while_starting():
    with serving(ready=False) as s:
        assert s.get("/livez")[0] == 200
        assert s.listened < 0.5 or os.getloadavg()[0] > 2 * os.cpu_count()
        for path in ("/readyz", "/health"):
            status, headers, text = s.get(path)
            if status == 200:
                continue # it was fast
            assert status == 503 and int(headers["Retry-After"]) >= 1
            assert json.loads(text)["startup"]["state"] == "starting"
        status, headers, text = s.request("POST", "/v1/completions", {"prompt": "x"})
        if status != 200:
            assert status == 503 and int(headers["Retry-After"]) >= 1
            assert json.loads(text)["error"]["code"] == "not_ready"
        state = json.loads(s.wait_ready().get("/startupz")[2])
        assert state["ready"] and state["bytes"] == state["of"] > 0
        assert s.stop() == 0


def test_startup_stream():
    with serving(ready=False) as s:
        with s.raw() as c:
            c.sendall(b"GET /startupz HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
            data = b""
            while b'"ready":true' not in data:
                data += c.recv(65536)
        # how many states are seen in between depends on how fast the start is
        assert b"text/event-stream" in data
        assert 0 < data.find(b'"state":"starting"') < data.find(b'"ready":true')
        s.wait_ready()
        assert s.stop() == 0


def test_a_retrying_client_waits_for_the_start():
    with serving(ready=False) as s:
        r = s.client(max_retries=10).completions.create(model="m", prompt="The", max_tokens=1)
        assert r.choices[0].finish_reason
        assert s.stop() == 0


def test_engine_killed_while_streaming():
    with serving(*EXACT) as s:
        out = {}
        start(s, LONG, out, "quiet").join()
        quiet = text_of(out["quiet"][2])
        threads = [start(s, LONG, out, i) for i in range(3)]
        s.wait_running(3)
        kill_engine(s)
        status, headers, text = s.request("POST", "/v1/completions", {"prompt": "x"})
        if status != 200:
            assert status == 503 and "Retry-After" in headers
            assert "SIGKILL" in json.loads(text)["error"]["message"]
        s.wait_ready()
        for t in threads:
            t.join()
        for i in range(3):
            assert out[i][0] == 200
            assert text_of(out[i][2]) == quiet
        state = json.loads(s.get("/startupz")[2])
        assert state["restarts"] == 1 and "SIGKILL" in state["error"]["what"]
        assert s.metric("tandem:engine_losses_total") == 1
        assert s.metric("tandem:resumed_answers_total") == 3
        s.wait_idle()
        assert s.stop() == 0
        with open(s.events, encoding="utf-8") as f:
            log = [json.loads(line) for line in f]
        phases = [e["phase"] for e in log if e["event"] in ("ready", "error")]
        assert phases == ["serve"] * 3, "of the engine, wherever the front stands"


def test_waiting_requests_survive_deaths():
    body = {**LONG, "max_tokens": 60}
    with serving("--max-num-seqs", "2", *EXACT) as s:
        out = {}
        start(s, body, out, "quiet").join()
        threads = [start(s, body, out, i) for i in range(12)]
        s.wait_running(2)
        kill_engine(s)
        for t in threads:
            t.join()
        assert {text_of(out[i][2]) for i in range(12)} == {text_of(out["quiet"][2])}
        s.wait_idle()
        assert s.stop() == 0


def test_two_deaths_end_a_request():
    with serving() as s:
        out = {}
        t = start(s, {**LONG, "max_tokens": 3000, "stream": False}, out, 0)
        for _ in range(2):
            s.wait_running()
            kill_engine(s)
            s.wait_ready()
        t.join()
        assert out[0][0] == 500
        assert json.loads(out[0][2])["error"]["code"] == "engine_lost"
        assert s.stop() == 0


def test_failures_in_a_row_stop_the_server():
    """An engine that dies before it works, again and again."""
    with serving() as s:
        end = time.monotonic() + 60
        while s.process.poll() is None and time.monotonic() < end:
            try:
                os.kill(s.engine(), signal.SIGKILL)
            except (IndexError, FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.02)
        assert s.process.returncode == 1
        assert "times in a row" in s.log and "SIGKILL" in s.log


def test_what_can_not_start_says_why():
    s = Server("--memory", "1M")
    assert s.process.wait(60) == 1
    assert "error   the engine ended: " in s.log and "fix     " in s.log
    assert s.log.count("error   ") == 1
    with open(s.events, encoding="utf-8") as f:
        codes = [json.loads(line).get("code") for line in f]
    assert "does-not-fit" in codes
    s.err.close()


def test_port_taken():
    with serving(ready=False) as s:
        with pytest.raises(AssertionError) as e:
            Server("--port", str(s.port))
        assert "another process uses that port" in str(e.value)


def test_queue_limit():
    with serving("--max-num-seqs", "1", "--max-queue", "1") as s:
        out = {}
        threads = [start(s, {**LONG, "max_tokens": 1500}, out, 0)]
        s.wait_running()
        threads += [start(s, {**LONG, "max_tokens": 5}, out, i) for i in range(1, 7)]
        for t in threads:
            t.join()
        codes = sorted(r[0] for r in out.values())
        assert codes.count(200) >= 2 and codes.count(429) >= 3
        refused = [r for r in out.values() if r[0] == 429]
        assert all("Retry-After" in r[1] for r in refused)
        assert s.stop() == 0


def test_queue_timeout():
    with serving("--max-num-seqs", "1", "--queue-timeout", "0.3") as s:
        out = {}
        threads = [start(s, {**LONG, "max_tokens": 1200}, out, i) for i in range(3)]
        for t in threads:
            t.join()
        late = [r for r in out.values() if r[0] == 503]
        assert late and all("Retry-After" in r[1] for r in late)
        assert json.loads(late[0][2])["error"]["code"] == "queue_timeout"
        assert s.stop() == 0


def test_api_key():
    with serving("--api-key", "sesame") as s:
        assert s.client(api_key="sesame").models.list().data
        with pytest.raises(openai.AuthenticationError):
            s.client(api_key="sesamf").models.list()
        for headers, code in (({}, 401), ({"x-api-key": "sesame"}, 200),
                              ({"x-api-key": "sesam"}, 401),
                              ({"Authorization": "Bearer sesamesesame"}, 401),
                              ({"Authorization": "Bearer "}, 401)):
            assert s.get("/v1/models", headers=headers)[0] == code
        assert s.get("/health")[0] == 200
        assert "sesame" not in s.log + open(s.events, encoding="utf-8").read()
        assert s.stop() == 0


def test_a_terminal_that_goes_stops_the_server():
    with serving() as s:
        assert s.stop(signal.SIGHUP) == 0


def test_nohup_outlives_the_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as children inherit it
    with serving() as s:
        signal.signal(signal.SIGHUP, before)
        s.process.send_signal(signal.SIGHUP)
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        assert s.stop() == 0


def test_stop_finishes_what_runs():
    with serving() as s:
        out = {}
        body = {**LONG, "max_tokens": 2500}
        start(s, body, out, "quiet").join()
        t = start(s, body, out, 0)
        s.wait_running()
        s.process.send_signal(signal.SIGTERM)
        t.join()
        assert s.process.wait(20) == 0
        assert text_of(out[0][2]) == text_of(out["quiet"][2])


def test_stop_has_a_limit():
    with serving("--drain-timeout", "0.5") as s:
        out = {}
        t = start(s, {**LONG, "max_tokens": 3900}, out, 0)
        s.wait_running()
        begun = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(20) == 0
        assert time.monotonic() - begun < 8
        t.join()
        assert "stopping" in out[0][2] and out[0][2].endswith("data: [DONE]\n\n")


def test_the_engine_ends_with_the_server():
    with serving() as s:
        engine = s.engine()
        s.process.kill()
        s.process.wait()
        end = time.monotonic() + 5
        while os.path.exists(f"/proc/{engine}") and time.monotonic() < end:
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{engine}")
