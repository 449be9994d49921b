# SPDX-License-Identifier: Apache-2.0
"""The public openai client, as its users write it."""
import asyncio
import math

import openai
import pytest

from conftest import events

LIGHTHOUSE = [{"role": "user", "content": "What does the word lighthouse mean?"}]
VAGUE = [{"role": "user", "content": "Which of them, and why? Tell me about it."}]
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


def chat(client, messages=None, **kw):
    return client.chat.completions.create(model="any", messages=messages or LIGHTHOUSE, **kw)


def collect(stream):
    """A stream's texts, roles, reasons and usage, checked for the order of its parts."""
    content, reasoning, roles, finish, usage = "", "", [], [], None
    for chunk in stream:
        if not chunk.choices:
            usage = chunk.usage
            continue
        assert usage is None, "usage comes last"
        c = chunk.choices[0]
        assert not finish, "nothing comes behind the reason"
        if c.delta.role:
            roles.append(c.delta.role)
        content += c.delta.content or ""
        more = c.delta.model_extra.get("reasoning_content") or ""
        assert more == (c.delta.model_extra.get("reasoning") or "")
        reasoning += more
        if c.finish_reason:
            finish.append(c.finish_reason)
    return content, reasoning, roles, finish, usage


def test_chat_reasons_and_answers(client):
    r = chat(client)
    m = r.choices[0].message
    assert r.model == "lexicon" and r.object == "chat.completion"
    assert "tower" in m.content and "lighthouse" in m.reasoning_content
    assert m.reasoning == m.reasoning_content
    assert "<" not in m.content + m.reasoning_content
    assert m.content == m.content.strip()
    assert r.choices[0].finish_reason == "stop" and r.choices[0].stop_reason is None
    u = r.usage
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens
    assert 0 < u.completion_tokens_details.reasoning_tokens < u.completion_tokens


def test_stream_is_the_whole_answer(client):
    m = chat(client).choices[0].message
    content, reasoning, roles, finish, usage = collect(
        chat(client, stream=True, stream_options={"include_usage": True}))
    assert (content, reasoning) == (m.content, m.reasoning_content)
    assert roles == ["assistant"] and finish == ["stop"]
    assert usage.completion_tokens > 0


def test_first_delta_has_role_and_text(server):
    body = {"messages": LIGHTHOUSE, "stream": True}
    chunks = events(server.request("POST", "/v1/chat/completions", body)[2])
    first = chunks[0]["choices"][0]["delta"]
    assert first["role"] == "assistant"
    assert first.get("content") or first.get("reasoning_content")
    assert all("usage" not in c for c in chunks)


def test_running_usage(server):
    body = {"messages": LIGHTHOUSE, "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chunks = events(server.request("POST", "/v1/chat/completions", body)[2])
    counts = [c["usage"]["completion_tokens"] for c in chunks]
    assert counts == sorted(counts) and counts[0] == 1
    assert chunks[-1]["choices"] == []


def test_thinking_off(client):
    m = chat(client, extra_body=PLAIN).choices[0].message
    assert m.content and m.reasoning_content is None
    assert m.content == chat(client, reasoning_effort="none").choices[0].message.content


def test_length_within_reasoning(client):
    c = chat(client, max_tokens=5).choices[0]
    assert c.finish_reason == "length" and c.message.content is None
    assert c.message.reasoning_content.startswith("The user asks")
    assert chat(client, max_completion_tokens=5).usage.completion_tokens == 5


def test_content_forms_and_roles(client):
    plain = chat(client, [{"role": "system", "content": "Be brief."}, *LIGHTHOUSE])
    parts = chat(client, [{"role": "developer", "content": [{"type": "text", "text": "Be "},
                                                            {"type": "text", "text": "brief."}]},
                          {"role": "user", "content": [{"type": "text", "text":
                                                        LIGHTHOUSE[0]["content"]}]}])
    assert plain.choices[0].message.content == parts.choices[0].message.content
    assert plain.usage.prompt_tokens == parts.usage.prompt_tokens


def test_conversation_with_reasoning_and_tools(client):
    messages = [*LIGHTHOUSE,
                {"role": "assistant", "content": None, "reasoning_content": "I look it up.",
                 "tool_calls": [{"id": "call_1", "type": "function", "function": {
                     "name": "lookup", "arguments": '{"word": "lighthouse", "n": 2}'}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a tower with a light"},
                {"role": "user", "content": "And quick?"}]
    tools = [{"type": "function", "function": {"name": "lookup", "parameters": {
        "type": "object", "properties": {"word": {"type": "string"}}}}}]
    r = chat(client, messages, tools=tools)
    assert r.choices[0].finish_reason in ("stop", "length")
    assert chat(client, messages, tools=tools, tool_choice="none",
                max_tokens=1).usage.prompt_tokens < r.usage.prompt_tokens


def test_stop_strings(client):
    whole = chat(client, extra_body=PLAIN).choices[0].message.content
    at = whole.index("light", 12)
    r = chat(client, extra_body=PLAIN, stop=["no such text", whole[at:at + 9]])
    assert r.choices[0].message.content == whole[:at]
    assert r.choices[0].finish_reason == "stop"
    assert r.choices[0].stop_reason == whole[at:at + 9]
    kept = chat(client, stop=whole[at:at + 9],
                extra_body={**PLAIN, "include_stop_str_in_output": True})
    assert kept.choices[0].message.content == whole[:at + 9]
    content, *_ = collect(chat(client, extra_body=PLAIN, stop=whole[at:at + 9], stream=True))
    assert content == whole[:at]


def test_stop_token_ids(server, client):
    r = chat(client, extra_body={**PLAIN, "return_token_ids": True})
    ids = r.choices[0].token_ids
    assert len(ids) == r.usage.completion_tokens - 1
    assert len(r.prompt_token_ids) == r.usage.prompt_tokens
    cut = chat(client, extra_body={**PLAIN, "return_token_ids": True, "stop_token_ids": [ids[3]]})
    n = ids.index(ids[3])
    assert cut.choices[0].token_ids == ids[:n] and cut.choices[0].stop_reason == ids[3]
    text = server.post("/detokenize", {"tokens": ids})[2]["prompt"]
    assert text == r.choices[0].message.content


def test_min_tokens_and_ignore_eos(client):
    short = chat(client, extra_body=PLAIN)
    n = short.usage.completion_tokens
    assert chat(client, max_tokens=n + 9,
                extra_body={**PLAIN, "min_tokens": n + 5}).usage.completion_tokens >= n + 5
    r = chat(client, max_tokens=n + 9, extra_body={**PLAIN, "ignore_eos": True})
    assert r.usage.completion_tokens == n + 9 and r.choices[0].finish_reason == "length"


def test_seed_and_n(client):
    kw = {"messages": VAGUE, "temperature": 2, "seed": 7, "n": 3, "max_tokens": 12,
          "extra_body": PLAIN}
    a, b = chat(client, **kw), chat(client, **kw)
    texts = [c.message.content for c in a.choices]
    assert texts == [c.message.content for c in b.choices]
    assert [c.index for c in a.choices] == [0, 1, 2] and len(set(texts)) > 1
    assert a.usage.completion_tokens <= 36
    one = chat(client, **{**kw, "n": 1})
    assert one.choices[0].message.content == texts[0]
    assert one.usage.prompt_tokens == a.usage.prompt_tokens


def test_n_streams(client):
    texts, ends = {}, {}
    for chunk in chat(client, n=3, temperature=1, seed=3, max_tokens=8, stream=True,
                      extra_body=PLAIN):
        c = chunk.choices[0]
        texts[c.index] = texts.get(c.index, "") + (c.delta.content or "")
        if c.finish_reason:
            ends[c.index] = c.finish_reason
    whole = chat(client, n=3, temperature=1, seed=3, max_tokens=8, extra_body=PLAIN)
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert ends == {c.index: c.finish_reason for c in whole.choices}


def test_logit_bias(client):
    r = chat(client, logprobs=True, top_logprobs=3, extra_body={**PLAIN, "return_token_ids": True})
    first = r.choices[0].token_ids[0]
    banned = chat(client, logit_bias={str(first): -100},
                  extra_body={**PLAIN, "return_token_ids": True})
    assert banned.choices[0].token_ids[0] != first


def test_chat_logprobs(client):
    r = chat(client, logprobs=True, top_logprobs=4, extra_body=PLAIN)
    entries = r.choices[0].logprobs.content
    assert len(entries) == r.usage.completion_tokens - 1
    text = b"".join(bytes(e.bytes) for e in entries).decode()
    assert text == r.choices[0].message.content
    for e in entries:
        assert len(e.top_logprobs) == 4 and e.logprob <= 0
        tops = [t.logprob for t in e.top_logprobs]
        assert tops == sorted(tops, reverse=True) and e.logprob == tops[0]
    streamed = []
    for chunk in chat(client, logprobs=True, top_logprobs=4, stream=True, extra_body=PLAIN):
        for c in chunk.choices:
            streamed += c.logprobs.content if c.logprobs else []
    assert [e.logprob for e in streamed] == [e.logprob for e in entries]


def test_completion_forms(server, client):
    text = "The lighthouse"
    ids = server.post("/tokenize", {"prompt": text})[2]["tokens"]
    kw = {"model": "any", "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
    a = client.completions.create(prompt=text, **kw)
    b = client.completions.create(prompt=ids, **kw)
    c = client.completions.create(prompt=[text, "Quick"], **kw)
    d = client.completions.create(prompt=[ids], **kw)
    assert a.choices[0].text == b.choices[0].text == d.choices[0].text
    assert c.choices[0].text == a.choices[0].text and c.choices[1].index == 1
    assert a.usage.completion_tokens == 6 and a.choices[0].finish_reason == "length"
    assert a.choices[0].text
    streamed = "".join(x.choices[0].text
                       for x in client.completions.create(prompt=text, stream=True, **kw))
    assert streamed == a.choices[0].text


def test_echo_and_prompt_logprobs(client):
    text = "A lighthouse is a tower."
    r = client.completions.create(model="any", prompt=text, max_tokens=3, temperature=0,
                                  echo=True, logprobs=2)
    c, lp = r.choices[0], r.choices[0].logprobs
    assert c.text.startswith(text)
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
    assert len(lp.tokens) == r.usage.prompt_tokens + r.usage.completion_tokens
    assert "".join(lp.tokens) == c.text
    for token, at in zip(lp.tokens, lp.text_offset):
        assert c.text[at:at + len(token)] == token
    score = client.completions.create(model="any", prompt=text, max_tokens=0, echo=True,
                                      logprobs=0)
    assert score.choices[0].text == text and score.usage.completion_tokens == 0
    assert score.choices[0].logprobs.token_logprobs[1:] == lp.token_logprobs[1:len(
        score.choices[0].logprobs.tokens)]
    assert all(math.isfinite(x) for x in lp.token_logprobs[1:])
    p = client.completions.create(model="any", prompt=text, max_tokens=1,
                                  extra_body={"prompt_logprobs": 1})
    assert p.choices[0].prompt_logprobs[0] is None
    assert len(p.choices[0].prompt_logprobs) == p.usage.prompt_tokens


def test_cached_tokens(client):
    messages = [{"role": "system", "content": "You know words. " * 60}, *LIGHTHOUSE]
    a = chat(client, messages, max_tokens=8)
    b = chat(client, messages, max_tokens=8)
    assert b.usage.prompt_tokens_details.cached_tokens > 0
    assert a.choices[0].message.reasoning_content == b.choices[0].message.reasoning_content


def test_tokenize(server):
    r = server.post("/tokenize", {"prompt": "grüß dich", "return_token_strs": True})[2]
    assert r["count"] == len(r["tokens"]) == len(r["token_strs"]) and r["max_model_len"] > 0
    assert server.post("/detokenize", {"tokens": r["tokens"]})[2]["prompt"] == "grüß dich"
    c = server.post("/tokenize", {"messages": LIGHTHOUSE})[2]
    assert "<|im_start|>user" in server.post("/detokenize", {"tokens": c["tokens"]})[2]["prompt"]


def test_models_and_version(server, client):
    assert [m.id for m in client.models.list().data] == ["lexicon"]
    assert client.models.retrieve("lexicon").id == "lexicon"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    assert '"version"' in server.get("/version")[2]


def test_request_id(server):
    status, headers, body = server.post("/v1/chat/completions",
                                        {"messages": LIGHTHOUSE, "max_tokens": 1},
                                        headers={"X-Request-Id": "mine-1"})
    assert status == 200 and body["id"] == "chatcmpl-mine-1"
    assert headers["X-Request-Id"] == "mine-1"


def test_async_many(server):
    async def ask(client, i):
        r = await client.chat.completions.create(
            model="any", messages=LIGHTHOUSE, stream=i % 2 == 1, extra_body=PLAIN)
        if i % 2 == 0:
            return r.choices[0].message.content
        return "".join([c.choices[0].delta.content or "" async for c in r])

    async def main():
        async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1",
                                      api_key="x", max_retries=0) as client:
            return await asyncio.gather(*[ask(client, i) for i in range(24)])

    assert len(set(asyncio.run(main()))) == 1


def test_metrics(server, client):
    before = server.metric("vllm:generation_tokens_total")
    n = chat(client, max_tokens=4).usage.completion_tokens
    assert server.metric("vllm:generation_tokens_total") == before + n
    assert server.metric("vllm:num_requests_running") >= 0
    text = server.get("/metrics")[2]
    for name in ("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_count",
                 "e2e_request_latency_seconds_sum", "prefix_cache_queries_total",
                 "num_preemptions_total", "cache_config_info", "kv_cache_usage_perc",
                 "request_success_total"):
        assert f"vllm:{name}{{" in text
