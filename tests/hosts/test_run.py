# SPDX-License-Identifier: Apache-2.0
"""tandem run and bench over pretended hosts: rank 0 has the user's terminal."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

from conftest import SCRIPT, TANDEM
from serving import ALL, MODEL, rank


def hosts(bed):
    return ",".join(bed.addr(h) for h in bed.names())


def run(bed, *args, **kw):
    return bed.run("spark-1", TANDEM, "run", MODEL, "--hosts", hosts(bed), "--temperature",
                   "0", *args, **kw)


class Terminal:
    """A program in a terminal of its own, as a shell starts it."""

    def __init__(self, bed, *argv):
        main, side = pty.openpty()

        def adopt():
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # for what lies between
            fcntl.ioctl(side, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([SCRIPT, "exec", "spark-1", *argv], stdin=side,
                                        stdout=side, stderr=side, env=bed.env,
                                        preexec_fn=adopt)
        os.close(side)
        self.fd, self.text = main, ""

    def wait_for(self, pattern, seconds=30):
        """Reads until the text behind the last match has the pattern."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text, re.S):
            assert time.monotonic() < end, f"no {pattern} in {self.text!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"ended: {self.text!r}") from None
        self.text = self.text[re.search(pattern, self.text, re.S).end():]

    def type(self, text):
        time.sleep(0.5)  # the prompt comes a moment before keys are read one by one
        os.write(self.fd, text.encode())


def test_one_answer_equals_that_of_one_host(bed):
    two = run(bed, "What is a harp?")
    assert two.returncode == 0, two.stderr
    one = bed.run("spark-1", TANDEM, "run", MODEL, "What is a harp?", "--temperature", "0")
    assert two.stdout == one.stdout and "chordophone" in one.stdout
    bed.wait_gone(ALL)


def test_a_prompt_that_begins_with_a_hyphen_and_json(bed):
    r = run(bed, "--json", "--max-tokens", "4", "--", "-5 + 3")
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["usage"]["completion_tokens"] <= 4


def test_bench_runs_on_all_ranks(bed):
    r = bed.run("spark-1", TANDEM, "bench", MODEL, "--hosts", hosts(bed), "--json",
                "--batch", "1", "--prompt", "64", timeout=120)
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["points"]


def test_a_conversation_in_a_terminal(bed):
    t = Terminal(bed, TANDEM, "run", MODEL, "--hosts", hosts(bed), "--temperature", "0")
    t.wait_for(r"\^D leaves")
    t.wait_for("> ")
    t.type("What is a haxp?\x1b[D\x1b[D\x7fr\n")  # the line is edited
    t.wait_for("chordophone")
    t.wait_for("> ")
    t.type("Tell me all about music and more\n")
    t.wait_for("and more\r\n.*[a-z]")
    t.type("\x03")  # stops an answer, not the conversation
    t.wait_for("> ")
    t.type("What is a lake?\n")
    t.wait_for("water")
    t.wait_for("> ")
    t.type("\x04")
    assert t.process.wait(20) == 0
    bed.wait_gone(ALL)


def test_a_killed_rank_ends_the_conversation_with_its_cause(bed):
    t = Terminal(bed, TANDEM, "run", MODEL, "--hosts", hosts(bed))
    t.wait_for(r"\^D leaves")
    t.wait_for("> ")
    os.kill(rank(bed, "spark-2"), signal.SIGKILL)
    t.wait_for("error +.*rank 1 on spark-2 was killed by signal 9")
    assert t.process.wait(20) == 1
    bed.wait_gone(ALL)


def test_an_error_is_told_once(bed):
    r = run(bed, "x", "--max-model-len", "8")
    assert r.returncode != 0
    assert len(re.findall("^error ", r.stderr, re.M)) == 1, r.stderr
