# SPDX-License-Identifier: Apache-2.0
"""Requests that are refused: tests/cases/api/refusals.jsonl, one case a line."""
import json

import openai
import pytest

with open("tests/cases/api/refusals.jsonl", encoding="utf-8") as f:
    CASES = [json.loads(line) for line in f]


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_refusal(server, case):
    body = case["raw"] if "raw" in case else json.dumps(case["body"])
    status, _, reply = server.post(case.get("path", "/v1/chat/completions"), body)
    error = reply["error"]
    assert status == case.get("status", 400), reply
    assert error["param"] == case.get("param"), reply
    assert error["type"] == "invalid_request_error" and error["message"]
    for word in case.get("says", []):
        assert word in error["message"], reply


def test_client_sees_errors(client):
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="m", messages=[], temperature=9)
    assert e.value.param == "temperature"


def test_unknown_fields_are_ignored(server):
    status, _, _ = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi", "cache_control": {}}], "max_tokens": 1,
        "user": "me", "store": False, "metadata": {"a": "b"}, "service_tier": "auto",
        "no_such_field": [1, 2]})
    assert status == 200


def test_methods_and_paths(server):
    assert server.get("/no/such/path")[0] == 404
    status, headers, _ = server.request("GET", "/v1/chat/completions")
    assert status == 405 and headers["Allow"] == "POST"
    assert server.request("HEAD", "/livez")[0] == 200
    assert server.get("/")[0] == 200


@pytest.mark.parametrize("lengths", [
    b"Content-Length: 16\r\nContent-Length: 17", b"Content-Length: 16\r\ncontent-length: 16",
    b"Content-Length: 16\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"])
def test_a_length_that_is_given_twice(server, lengths):
    """What follows must not be read as a request of its own."""
    with server.raw() as s:
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n\r\n"
                  b'{"prompt":"abc"}\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n')
        answer = b""
        try:
            while piece := s.recv(65536):
                answer += piece
        except ConnectionResetError:  # it throws away what it has not read
            pass
    assert answer.count(b"HTTP/1.1 ") == 1 and answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"two_lengths" in answer
