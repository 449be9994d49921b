# SPDX-License-Identifier: Apache-2.0
"""Clients that leave, stall, or send what is no request. After each of them the server
must answer others, and have no slot or block in use."""
import json
import socket
import struct
import time

import pytest

from conftest import events

LONG = {"prompt": "The lighthouse", "max_tokens": 3000, "ignore_eos": True, "temperature": 0}


def http_post(path, body, extra=""):
    data = json.dumps(body)
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{extra}\r\n{data}").encode()


def read_all(s):
    data = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


@pytest.fixture(autouse=True)
def clean(server):
    yield
    server.wait_idle()
    status, _, body = server.post("/v1/completions",
                                  {"prompt": "The", "max_tokens": 2, "ignore_eos": True})
    assert status == 200 and body["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False])
def test_client_leaves(server, stream, reset):
    with server.raw() as s:
        s.sendall(http_post("/v1/completions", {**LONG, "stream": stream}))
        if stream:
            assert b"200 OK" in s.recv(1000)
        else:
            time.sleep(0.3)
        server.wait_running()
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    start = time.monotonic()
    server.wait_idle()
    assert time.monotonic() - start < 2, "cancelled within a few steps"


def test_clients_leave_while_queued(server):
    conns = [server.raw() for _ in range(20)]
    for s in conns:
        s.sendall(http_post("/v1/completions", {**LONG, "stream": True}))
    time.sleep(0.5)
    before = server.status()["requests"]
    assert before["running"] == 8 and before["waiting"] == 12
    for s in conns[8:]:
        s.close()
    end = time.monotonic() + 5
    while server.status()["requests"]["waiting"] and time.monotonic() < end:
        time.sleep(0.02)
    assert server.status()["requests"]["waiting"] == 0
    for s in conns[:8]:
        s.close()


def test_half_close_counts_as_leaving(server):
    with server.raw() as s:
        s.sendall(http_post("/v1/completions", {**LONG, "stream": True}))
        s.recv(1000)
        s.shutdown(socket.SHUT_WR)
        server.wait_idle()


def test_slow_reader_gets_everything(server):
    body = {"prompt": "The", "max_tokens": 300, "ignore_eos": True, "temperature": 0,
            "stream": True}
    with server.raw() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(http_post("/v1/completions", body, "Connection: close\r\n"))
        data = b""
        while True:
            piece = s.recv(512)
            if not piece:
                break
            data += piece
            if len(data) < 20000:
                time.sleep(0.005)
    # chunk sizes lie between the data: take them out
    _, _, raw = data.partition(b"\r\n\r\n")
    text = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        n = int(size, 16)
        text, raw = text + raw[:n], raw[n + 2:]
    slow = "".join(c["choices"][0]["text"] for c in events(text.decode()))
    fast = server.post("/v1/completions", {**body, "stream": False})[2]
    assert slow == fast["choices"][0]["text"]


def test_reader_that_stops(server):
    """What it leaves unread stays bounded, and it is dropped when others need nothing."""
    with server.raw() as s:
        s.sendall(http_post("/v1/completions", {**LONG, "stream": True}))
        time.sleep(1)
        assert server.status()["requests"]["running"] <= 1


def test_pipelined_requests(server):
    one = http_post("/v1/completions", {"prompt": "The", "max_tokens": 1})
    last = http_post("/v1/completions", {"prompt": "The", "max_tokens": 1},
                     "Connection: close\r\n")
    with server.raw() as s:
        s.sendall(one + one + last)
        assert read_all(s).count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("bytes_", [
    b"\x00" * 64, b"\xff\xfe GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"\r\n\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"b" * 100000 + b"\r\n\r\n",
], ids=["nul", "high_bytes", "no_path", "blank", "header", "negative", "huge", "chunks",
        "long_path", "long_header"])
def test_garbage(server, bytes_):
    with server.raw() as s:
        s.settimeout(3)
        try:
            s.sendall(bytes_)
            s.shutdown(socket.SHUT_WR)
            data = read_all(s)
        except OSError:
            data = b""
    assert b" 200 " not in data.split(b"\r\n")[0]


def test_garbage_behind_a_request(server):
    with server.raw() as s:
        s.sendall(http_post("/v1/completions", {**LONG, "max_tokens": 5}) + b"\x01\x02garbage")
        s.settimeout(5)
        assert b"200 OK" in s.recv(100)


def test_body_too_large(server):
    head = ("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99000000\r\n\r\n")
    with server.raw() as s:
        s.sendall(head.encode())
        assert b" 413 " in s.recv(1000)


def test_chunked_body_too_large(server):
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with server.raw() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(257):
                s.sendall(piece)
            s.sendall(b"0\r\n\r\n")
            assert b" 413 " in s.recv(1000)
        except (ConnectionError, BrokenPipeError):
            pass


def test_chunked_body(server):
    body = json.dumps({"prompt": "The", "max_tokens": 1}).encode()
    with server.raw() as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                  b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 7):
            s.sendall(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]))
        s.sendall(b"0\r\n\r\n")
        assert b"200 OK" in read_all(s)


def test_deep_json(server):
    deep = '{"messages":' + "[" * 5000 + "]" * 5000 + "}"
    status, _, reply = server.post("/v1/chat/completions", deep)
    assert status == 400 and reply["error"]["message"]


def test_invalid_utf8(server):
    status, _, text = server.request("POST", "/v1/completions",
                                     b'{"prompt": "\xff\xfe", "max_tokens": 1}')
    assert status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error"


def test_context_too_long(server):
    status, _, reply = server.post("/v1/completions", {"prompt": "word " * 5000})
    assert status == 400 and reply["error"]["code"] == "context_length_exceeded"
    assert reply["error"]["param"] == "prompt"
