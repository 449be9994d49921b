# SPDX-License-Identifier: Apache-2.0
"""Mixed requests, many at a time: long, short, cancelled, malformed, streamed or not.

    soak.py URL PID [--count N] [--seconds S] [--at-a-time N] [--kill N]
        [--killer COMMAND] [--pause S] [--load S]

Every request must be answered whole or refused with a reason, greedy answers must equal
those that the quiet server gave, and at the end nothing may be left: no running answer, no
slot, no block, and no more memory than after the warm-up. PID is the server's process.

With --kill the engine is killed that many times meanwhile (by COMMAND if there is one),
--pause seconds after it was ready: then refusals with 503 while it is away are fine, and answers that saw two engines
end may fail. Answers that go on in another engine may differ from a near tie on (prompt
and answer are computed together then): one in ten is borne. It must be back within the
seconds of --load (what a start takes) and two more.
Prints `ok NAME` or `not ok NAME`.
"""
import argparse
import collections
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

WORDS = ["lighthouse", "boat", "river", "anger", "music", "cold", "glass", "horse", "bread",
         "tower", "quick", "garden"]


def chat(word, **more):
    """A greedy question about a word."""
    return {"messages": [{"role": "user", "content": f"What does the word {word} mean?"}],
            "temperature": 0, "max_tokens": 48,
            "chat_template_kwargs": {"enable_thinking": False}, **more}


MALFORMED = [
    b"", b"{", b"[]", b"null", b'{"messages": "x"}', b'{"messages": []}', b"\0\0\0",
    b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', b"[" * 500,
    json.dumps(chat("boat", temperature="hot")).encode(),
    json.dumps(chat("boat", max_tokens=-1)).encode(),
    json.dumps(chat("boat", n=0)).encode(),
    json.dumps(chat("boat", response_format={"type": "json_object"})).encode(),
    json.dumps(chat("boat " * 20000)).encode(),
]


class Soak:
    """The requests, what became of them, and what was wrong."""

    def __init__(self, args):
        self.args, self.host = args, urlsplit(args.url).netloc
        self.lock, self.wrong = threading.Lock(), []
        self.outcomes = collections.Counter()
        self.begun, self.expected, self.warm = 0, {}, None
        self.until, self.other = 0, []

    def connect(self):
        """A connection of its own: its end is the request's end."""
        return http.client.HTTPConnection(self.host, timeout=300)

    def post(self, path, body):
        """Sends a request; the connection and its reply."""
        c = self.connect()
        data = body if isinstance(body, bytes) else json.dumps(body)
        c.request("POST", path, data, {"Content-Type": "application/json"})
        return c, c.getresponse()

    def note(self, what, outcome, wrong=None):
        """Counts an outcome; a wrong one is kept."""
        with self.lock:
            self.outcomes[f"{what}: {outcome}"] += 1
            if wrong:
                self.wrong.append(f"{what}: {wrong}"[:600])

    def status(self):
        """What the server says of itself."""
        c = self.connect()
        c.request("GET", "/tandem/status")
        value = json.loads(c.getresponse().read())
        c.close()
        return value

    def resumed(self):
        """Answers that went on in another engine, by the server's count."""
        c = self.connect()
        c.request("GET", "/metrics")
        lines = c.getresponse().read().decode().splitlines()
        c.close()
        return int(float([line for line in lines if line.startswith(
            "tandem:resumed_answers_total")][0].split()[-1]))

    def engine(self):
        """The engine's process, None while there is none."""
        pid = self.args.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
        return int(children[0]) if children else None

    def memory(self):
        """Resident bytes of server and engine."""
        total = 0
        for pid in (self.args.pid, self.engine()):
            with open(f"/proc/{pid}/statm", encoding="ascii") as f:
                total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return total

    # ---- kinds of requests -------------------------------------------------------------

    def refused(self, what, reply):
        """A refusal must have a reason, in the form of the API."""
        try:
            reason = json.loads(reply.read())["error"]["message"]
        except (ValueError, KeyError, TypeError) as e:
            self.note(what, reply.status, f"refused without a reason: {reply.status} {e!r}")
            return
        busy = reply.status == 429 or (reply.status == 503 and self.args.kill)
        self.note(what, reply.status, None if busy or what == "malformed" or
                  self.twice(reason) else reason)
        if reply.status in (429, 503):
            time.sleep(0.2)

    def twice(self, reason):
        """Is it the fate of an answer that saw two engines end?"""
        return self.args.kill > 1 and "the engine ended twice" in (reason or "")

    def read_stream(self, reply):
        """Text and reason of the end."""
        text, reason, done = "", None, False
        for line in reply:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            event = json.loads(data)
            if "error" in event:
                return text, "error: " + event["error"]["message"]
            choice = event["choices"][0]
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
        return text, reason if done else "cut"

    def short(self, rng):
        """A greedy question whose answer is known, streamed or not."""
        word, stream = rng.choice(WORDS), rng.random() < 0.5
        c, reply = self.post("/v1/chat/completions", chat(word, stream=stream))
        what = "streamed" if stream else "whole"
        if reply.status != 200:
            self.refused(what, reply)
        else:
            if stream:
                text, reason = self.read_stream(reply)
            else:
                choice = json.loads(reply.read())["choices"][0]
                text, reason = choice["message"]["content"], choice["finish_reason"]
            same = (text, reason) == self.expected.get(word, (text, reason))
            whole = reason in ("stop", "length")
            wrong = f"{word}: {reason}: {text!r}, expected {self.expected.get(word)!r}"
            if self.args.kill and whole and not same:
                self.other.append(wrong)
            good = self.twice(reason) or whole and (same or self.args.kill)
            self.note(what, reason if same or not whole else "another text",
                      None if good else wrong)
        c.close()

    def long(self, rng):
        """A long prompt, some tokens of an answer that does not end by itself."""
        words = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(50, 500)))
        n = rng.randrange(1, 40)
        c, reply = self.post("/v1/completions", {
            "prompt": words, "max_tokens": n, "ignore_eos": True, "seed": 1})
        if reply.status != 200:
            self.refused("long", reply)
        else:
            o = json.loads(reply.read())
            got = o["usage"]["completion_tokens"]
            self.note("long", o["choices"][0]["finish_reason"],
                      None if got == n else f"{got} tokens instead of {n}")
        c.close()

    def cancelled(self, rng):
        """A client that goes away: before the reply, or in its middle."""
        stream = rng.random() < 0.7
        c = self.connect()
        c.request("POST", "/v1/chat/completions", json.dumps(chat(
            rng.choice(WORDS), stream=stream, ignore_eos=True, max_tokens=1000)))
        if stream and rng.random() < 0.7:
            reply = c.getresponse()
            if reply.status != 200:
                self.refused("cancelled", reply)
                c.close()
                return
            reply.read(rng.randrange(1, 3000))
        else:
            time.sleep(rng.random() * 0.1)
        c.sock.close() if c.sock else None
        c.close()
        self.note("cancelled", "left")

    def malformed(self, rng):
        """What must be refused with a status of 400 to 499."""
        c, reply = self.post("/v1/chat/completions", rng.choice(MALFORMED))
        if reply.status == 503 and self.args.kill or 400 <= reply.status < 500:
            self.refused("malformed", reply)
        else:
            self.note("malformed", reply.status, f"answered with {reply.status}")
        c.close()

    # ---- the run -----------------------------------------------------------------------

    def worker(self, seed):
        """Requests, one after the other, until there are enough."""
        rng = random.Random(seed)
        kinds = [self.short] * 5 + [self.long] * 2 + [self.cancelled] * 2 + [self.malformed]
        while True:
            with self.lock:
                if self.begun >= self.args.count or time.monotonic() > self.until:
                    return
                self.begun += 1
                warm = self.begun == max(self.args.count // 10, self.args.at_a_time)
            if warm and not self.args.kill:
                self.warm = self.memory()
            kind = rng.choice(kinds)
            try:
                kind(rng)
            except (OSError, http.client.HTTPException, ValueError) as e:
                self.note(kind.__name__, "broken", repr(e))

    def kill(self):
        """Kills the engine under load, waits until it is back; the seconds it took."""
        took = []
        for i in range(self.args.kill):
            time.sleep(self.args.pause)
            if self.args.killer:
                subprocess.run(self.args.killer, shell=True, check=True)
            else:
                os.kill(self.engine(), signal.SIGKILL)
            start = time.monotonic()
            while time.monotonic() - start < 60:
                time.sleep(0.02)
                state = self.status()
                if state["startup"]["ready"] and state["engine"]["losses"] > i:
                    break
            took.append(time.monotonic() - start)
        self.until = min(self.until, time.monotonic() + 5)
        return took

    def check(self, name, good, detail=""):
        """One line of the result."""
        print(f"{'ok' if good else 'not ok'} {name}{'' if good else f'  {detail}'}",
              flush=True)
        self.bad = getattr(self, "bad", False) or not good

    def run(self):
        """All of it; true if nothing was wrong."""
        for word in WORDS:
            _, reply = self.post("/v1/chat/completions", chat(word))
            choice = json.loads(reply.read())["choices"][0]
            self.expected[word] = (choice["message"]["content"], choice["finish_reason"])
        start = time.monotonic()
        self.until = start + self.args.seconds
        threads = [threading.Thread(target=self.worker, args=(i,))
                   for i in range(self.args.at_a_time)]
        for t in threads:
            t.start()
        took = self.kill() if self.args.kill else []
        for t in threads:
            t.join()
        seconds = time.monotonic() - start
        print(f"{self.begun} requests in {seconds:.1f} s, {self.args.at_a_time} at a time")
        for what, n in sorted(self.outcomes.items()):
            print(f"  {n:6d}  {what}")
        self.check("all_answered_or_refused", sum(self.outcomes.values()) == self.begun)
        self.check("nothing_wrong", not self.wrong,
                   f"{len(self.wrong)}: " + "\n  ".join([""] + self.wrong[:10]))
        for _ in range(100):
            s = self.status()
            left = {"running": s["requests"]["running"], "waiting": s["requests"]["waiting"],
                    "slots": s["cache"]["slots_used"], "blocks": s["cache"]["blocks_used"]}
            if not any(left.values()):
                break
            time.sleep(0.1)
        self.check("nothing_left", not any(left.values()), left)
        if self.args.kill:
            losses, resumed = s["engine"]["losses"], self.resumed()
            print(f"  {resumed} answers went on in another engine, {len(self.other)} of them "
                  "differ from the undisturbed one")
            print("  back after " + ", ".join(f"{t:.2f}" for t in took) + " s")
            self.check("answers_went_on", len(self.other) <= 1 + resumed // 10,
                       f"{len(self.other)} of {resumed}: {self.other[:5]}")
            self.check("engine_was_lost", losses == self.args.kill, losses)
            self.check("engine_came_back",
                       s["startup"]["ready"] and max(took) < self.args.load + 2, took)
        elif self.warm:
            now, warm = self.memory() / 2**20, self.warm / 2**20
            print(f"  memory {warm:.1f} MiB after the warm-up, {now:.1f} at the end")
            self.check("memory_is_flat", now - warm < 16 + 0.02 * warm, f"{warm} {now}")
        return not self.bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("pid", type=int)
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seconds", type=float, default=86400)
    p.add_argument("--at-a-time", type=int, default=64)
    p.add_argument("--kill", type=int, default=0)
    p.add_argument("--killer")
    p.add_argument("--pause", type=float, default=3)
    p.add_argument("--load", type=float, default=58)
    return 0 if Soak(p.parse_args()).run() else 1


if __name__ == "__main__":
    sys.exit(main())
