# SPDX-License-Identifier: Apache-2.0
"""`tandem serve` on the first of several hosts, with a rank on each."""
import json
import os
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
        """Waits for a loss of the ranks: its report."""
        self.program.wait_err(r"^(restart in|details) ", seconds, after)
        return self.report(after)

    def report(self, after=0):
        """error, cause and fix of the first failure behind `after`."""
        text = self.err[after:]
        found = {k: re.search(rf"^{k} +(.*)$", text, re.M) for k in ("error", "cause", "fix")}
        return {k: v.group(1) if v else "" for k, v in found.items()}

    def events_of(self, name):
        """All events of this name, in the order in which they came."""
        with open(self.events, encoding="utf-8") as f:
            lines = [json.loads(x) for x in f if x.endswith("}\n")]
        return [e for e in lines if e.get("event") == name]

    def wait_event(self, name, number, phase, seconds=60):
        """The first event of this name from a rank in a phase."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for e in self.events_of(name) if os.path.exists(self.events) else ():
                if e["rank"] == number and e["phase"] == phase:
                    return e
            assert self.program.process.poll() is None, self.err
            time.sleep(0.002)
        raise AssertionError(f"no {name} of rank {number} in {phase}:\n{self.err}")

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


METRONOME = """
import time
last = time.time()
while True:
    time.sleep(0.02)
    now = time.time()
    print(last, now - last - 0.02, flush=True)
    last = now
"""


class Metronome:
    """Beside what is measured on its hosts: how long their cores were busy with others.

    Begins now, when something is broken."""

    def __init__(self, bed):
        self.programs = [bed.start(h, "python3", "-c", METRONOME) for h in bed.names()]
        self.began = time.time()

    def seconds(self, served):
        """From the fault to the event that reports it, less what a bystander waited."""
        return self.until(served.events_of("error")[-1]["t"])

    def until(self, at):
        kept = 0.0
        for p in self.programs:
            p.process.kill()
            beats = [tuple(map(float, x.split())) for x in p.out.splitlines()
                     if len(x.split()) == 2]
            kept += sum(max(late, 0) for t, late in beats if t < at)
        print(f"noticed after {at - self.began:.2f} s, {kept:.2f} s of them at a standstill")
        return at - self.began - kept
