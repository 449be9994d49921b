# SPDX-License-Identifier: Apache-2.0
"""Hosts are looked at before every restart: while one is not there, or not as it has to be,
the server waits and says why; when it is, it serves again. (A first start that fails ends:
test_serve.py.)"""
import json
import os
import re
import signal
import time

import pytest
from conftest import kill
from serving import ALL, MODEL, URL, Served, rank

MIB = 1 << 20
CONFIG = f"{os.path.abspath(MODEL)}/config.json"


def break_off(bed):
    """As if the host was started anew and has no sshd yet."""
    for pid, _ in bed.processes("spark-2", "sshd"):
        kill(pid)


def come_back(bed):
    r = bed.run("spark-2", "/usr/sbin/sshd", "-f", "/run/sshd_config", "-E", "/run/sshd.log")
    assert r.returncode == 0, r.stderr


def change_model(bed):
    bed.run("spark-2", "sh", "-c", f"cp {CONFIG} /tmp/config && sed -i "
            f"'s/rms_norm_eps\\(.*\\)e-06/rms_norm_eps\\1e-05/' {CONFIG}")
    kill(rank(bed, "spark-2"))


def give_model_back(bed):
    bed.run("spark-2", "cp", "/tmp/config", CONFIG)


def take_memory(bed):
    kill(rank(bed, "spark-2"))
    end = time.monotonic() + 5
    while time.monotonic() < end:  # not below what is in use
        if "worker" not in str(bed.processes("spark-2", "worker")):
            break
        time.sleep(0.01)
    bed.do("memory", "spark-2", str(150 * MIB))


def give_memory(bed):
    bed.do("memory", "spark-2", "max")


@pytest.mark.parametrize("harm,undo,words", [
    (break_off, come_back, "ssh"),
    (change_model, give_model_back, "spark-2 has another model than spark-1"),
    (take_memory, give_memory, "does not fit"),
])
def test_waits_for_a_host(bed, harm, undo, words):
    s = Served(bed)
    s.ready()
    want = s.ask(tokens=16)
    a = s.asking(tokens=3000)  # longer than it takes to do harm
    time.sleep(0.3)
    at = len(s.err)
    harm(bed)
    s.program.wait_err(r"^waiting for the hosts", 30, at)
    assert re.search(words, s.err[at:]), s.err
    status, reply = bed.fetch("spark-1", f"{URL}/health")
    assert status == 503 and re.search(words, json.dumps(reply)), reply
    state = s.state()
    assert state["state"] == "lost" and re.search(words, state["error"]["what"]), state
    time.sleep(3)
    assert s.program.process.poll() is None, s.err
    assert s.err.count("waiting for the hosts") <= 2, s.err  # said once, not at each look
    assert a.process.poll() is None  # it waits, too
    undo(bed)
    s.ready(60, at)
    a.wait(110)
    assert "choices" in json.loads(a.out), a.out
    assert s.ask(tokens=16) == want
    assert s.stop() == 0


def test_stops_while_it_waits(bed):
    s = Served(bed)
    s.ready()
    at = len(s.err)
    break_off(bed)
    s.program.wait_err(r"^waiting for the hosts", 30, at)
    s.program.signal(signal.SIGTERM)
    assert s.program.wait(20) == 0
    bed.wait_gone(ALL)
