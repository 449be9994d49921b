# SPDX-License-Identifier: Apache-2.0
"""`tandem serve` on the first of several hosts, with a rank on each."""
import json
import re
import time

from testbed import TANDEM

MODEL = "models/lexicon"
PORT = 8000
URL = f"http://127.0.0.1:{PORT}"
RANKS = r"tandem (worker|run|bench) "
ALL = r"tandem (serve|worker|run|bench|agent)|mpirun|orted"


class Served:
    """A server; `err` is what it said so far. Times are generous: CI machines are slow."""

    def __init__(self, bed, *options, hosts=None, model=MODEL, **env):
        self.bed = bed
        self.hosts = hosts or ",".join(bed.addr(h) for h in bed.names())
        self.events = f"{bed.shared}/events.jsonl"
        self.program = bed.start(
            "spark-1", TANDEM, "serve", model, "--port", str(PORT), "--hosts", self.hosts,
            "--event-log", self.events, *options, **env)

    @property
    def err(self):
        return self.program.err

    def ready(self, seconds=60, after=0):
        return self.program.wait_err(r"^ready ", seconds, after)

    def state(self):
        return self.bed.fetch("spark-1", f"{URL}/startupz")[1]

    def reply(self, text, tokens, timeout=60):
        """(status, body)"""
        return self.bed.fetch(
            "spark-1", f"{URL}/v1/chat/completions",
            {"model": "lexicon", "temperature": 0, "max_tokens": tokens, "seed": 1,
             "messages": [{"role": "user", "content": text}]}, timeout)

    def ask(self, text="What is a harp?", tokens=24, timeout=60):
        status, reply = self.reply(text, tokens, timeout)
        assert status == 200, reply
        return reply["choices"][0]["message"]["content"]

    def asking(self, text="What is a harp?", tokens=200):
        """The same in the background: a program whose output is the reply."""
        body = {"model": "lexicon", "temperature": 0, "max_tokens": tokens, "seed": 1,
                "ignore_eos": True, "messages": [{"role": "user", "content": text}]}
        return self.bed.start("spark-1", "curl", "-sS", "-m", "120",
                              f"{URL}/v1/chat/completions", "-H",
                              "Content-Type: application/json", "-d", json.dumps(body))

    def lost(self, seconds=20, after=0):
        """(seconds until it was noticed, the report) of a loss of the ranks."""
        began = time.monotonic()
        self.program.wait_err(r"^(restart in|details) ", seconds, after)
        return time.monotonic() - began, self.report(after)

    def report(self, after=0):
        """error, cause and fix of the first failure behind `after`."""
        text = self.err[after:]
        found = {k: re.search(rf"^{k} +(.*)$", text, re.M) for k in ("error", "cause", "fix")}
        return {k: v.group(1) if v else "" for k, v in found.items()}

    def stop(self, seconds=30):
        self.program.signal(15)
        code = self.program.wait(seconds)
        self.bed.wait_gone(ALL)
        return code


def rank(bed, host):
    """The outer pid of the rank on a host."""
    found = bed.processes(host, RANKS)
    # mpirun and ssh have the rank's command line in theirs
    own = [p for p, c in found if "--world" in c and not re.search("mpirun|ssh|orted", c)]
    assert len(own) == 1, found
    return own[0]
