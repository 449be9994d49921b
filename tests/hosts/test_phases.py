# SPDX-License-Identifier: Apache-2.0
"""Each process of a server over two hosts is killed, stopped or cut off in each phase of
its start: named with its phase, in time, and nothing is left behind. (While it serves:
test_serve.py.)

A warm-up takes milliseconds. So that something can happen within it, packets are held up
on their way once the hosts have met: a warm-up has 36 sums, and each waits for one."""
import json
import os
import re
import signal
import time

import pytest
from conftest import TANDEM, kill
from serving import ALL, RANKS, Metronome, Served, rank

AT_WORK, IDLE = 2, 5  # seconds in which a loss is noticed
HELD = 60000  # microseconds each way: the warm-up takes 2.1 s
HOSTS = "192.168.200.12,192.168.200.13"


def served_until(bed, phase, options=()):
    """A server whose rank 1 has just entered a phase of its start."""
    s = Served(bed, *options)
    if phase == "warmup":
        s.program.wait_err(r"^fabric ")
        bed.do("delay", str(HELD))
    s.wait_event("phase", 1, phase)
    return s


def undelay(bed, phase):
    if phase == "warmup":
        bed.do("delay", "0")


def still_in(s, phase):
    """No rank of the first start had come further when the fault was there."""
    later = {"load": ("warmup", "serve"), "warmup": ("serve",)}[phase]
    end = s.events_of("error")[-1]["t"] if s.events_of("error") else time.time()
    assert not [e for e in s.events_of("phase") if e["phase"] in later and e["t"] < end]


# On which host, its command line, and what is said of its loss.
PROCESSES = {"front": ("spark-1", r"^\S*tandem serve", ""),
             "mpirun": ("spark-1", r"^\S*mpirun ", "mpirun was killed by signal 9"),
             "orted": ("spark-2", r"^\S*orted ", "spark-2"),
             "ssh": ("spark-1", r"^\S*ssh .*orted", "spark-2"),
             "agent": ("spark-2", r"^\S*tandem agent", ""),
             "own-agent": ("spark-1", r"^\S*tandem agent", ""),
             "ssh-agent": ("spark-1", r"^\S*ssh .* exec sh$", "")}
SAYS = {"spark-1": "rank 0 on spark-1 was killed by signal 9",
        "spark-2": "rank 1 on spark-2 was killed by signal 9"}
SAYS.update({name: says for name, (_, _, says) in PROCESSES.items()})


def victim(bed, what):
    """The outer pid of the process that a name stands for; 0: it is not there."""
    if what.startswith("spark-"):
        return rank(bed, what)
    host, pattern, _ = PROCESSES[what]
    return next((p for p, c in bed.processes(host, pattern)), 0)


def parent(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"^PPid:\s*(\d+)$", f.read(), re.M).group(1))


def soon(bed, what):
    end = time.monotonic() + 20
    while not victim(bed, what):
        assert time.monotonic() < end, what
        time.sleep(0.005)
    return victim(bed, what)


# ---- kill -9 of each process while it starts ------------------------------------------


@pytest.mark.parametrize("phase", ["load", "warmup"])
@pytest.mark.parametrize("what", ["spark-1", "spark-2", "mpirun", "orted", "ssh"])
def test_killed_in(bed, what, phase):
    s = served_until(bed, phase)
    clock = Metronome(bed)
    kill(victim(bed, what))
    if what == "spark-2":  # which is asked, over the same link, for what its kernel knows
        undelay(bed, phase)
    report = s.lost()
    assert clock.seconds(s) < AT_WORK, s.err
    still_in(s, phase)
    assert SAYS[what] in report["error"] + " " + report["cause"], s.err
    if what.startswith("spark"):
        assert f"in phase {phase}" in report["error"], s.err
    if what != "spark-2":
        undelay(bed, phase)
    if what in ("spark-2", "mpirun"):
        s.ready()
    assert s.stop() == 0


@pytest.mark.parametrize("phase", ["load", "warmup"])
def test_a_front_killed_in(bed, phase):
    s = served_until(bed, phase)
    kill(victim(bed, "front"))
    still_in(s, phase)
    undelay(bed, phase)
    bed.wait_gone(ALL)


# ---- ranks that stand still, links that are cut -------------------------------------------


@pytest.mark.parametrize("phase", ["load", "warmup"])
@pytest.mark.parametrize("host", ["spark-1", "spark-2"])
def test_stopped_in(bed, host, phase):
    s = served_until(bed, phase)
    clock = Metronome(bed)
    os.kill(rank(bed, host), signal.SIGSTOP)
    report = s.lost()
    assert clock.seconds(s) < AT_WORK, s.err
    still_in(s, phase)
    number = int(host[-1]) - 1
    assert re.match(rf"rank {number} on {host} is silent for .* s, in phase {phase}",
                    report["error"]), s.err
    undelay(bed, phase)
    assert s.stop() == 0


@pytest.mark.parametrize("what,says", [
    ("mpirun", "all ranks are silent for .* s"),
    ("orted", "rank 1 on spark-2 is silent for .* s, in phase serve")],
    ids=["mpirun", "orted"])
def test_a_launcher_that_is_stopped(bed, what, says):
    s = Served(bed)
    s.ready()
    want = s.ask()
    pid = victim(bed, what)
    clock = Metronome(bed)
    os.kill(pid, signal.SIGSTOP)
    report = s.lost()
    assert clock.seconds(s) < AT_WORK, s.err
    assert re.match(says, report["error"]), s.err
    s.ready(60, s.err.index("restart in"))
    assert s.ask() == want
    if what == "orted":  # it cannot be ended from elsewhere while it is stopped; its rank
        end = time.monotonic() + 20  # ends by itself
        while [p for p, c in bed.processes("spark-2", RANKS) if parent(p) == pid]:
            assert time.monotonic() < end
            time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
    assert s.stop() == 0


def test_a_link_cut_within_the_load(bed):
    s = served_until(bed, "load")
    os.kill(rank(bed, "spark-2"), signal.SIGSTOP)  # a load takes a moment, and so does a cut
    clock = Metronome(bed)
    bed.do("cut", "spark-2")
    os.kill(rank(bed, "spark-2"), signal.SIGCONT)
    report = s.lost()
    assert clock.seconds(s) < AT_WORK, s.err
    still_in(s, "load")
    assert re.match(r"rank 1 on spark-2 is silent for .* s, in phase load",
                    report["error"]), s.err
    s.program.signal(signal.SIGTERM)
    assert s.program.wait(60) == 0
    bed.wait_gone(RANKS, 20)  # on both sides of the cut: they find out by themselves
    bed.do("mend", "spark-2")
    bed.wait_gone(ALL, 60)  # Open MPI's daemon, when the network is back


def test_a_link_cut_while_idle(bed):
    s = Served(bed)
    s.ready()
    time.sleep(1)
    clock = Metronome(bed)
    bed.do("cut", "spark-2")
    report = s.lost()
    assert clock.seconds(s) < IDLE, s.err
    assert "rank 1 on spark-2 is silent" in report["error"], s.err
    bed.wait_gone(RANKS)
    bed.do("mend", "spark-2")
    s.ready()
    assert s.stop() == 0


# ---- no memory in the warm-up -------------------------------------------------------------

GRAB = """
import os, sys, time
kept = []
for mark, size in (("load", 450), ("warmup", 300)):
    while not os.path.exists(sys.argv[1] + mark):
        time.sleep(0.005)
    kept.append(bytearray(size << 20))
time.sleep(60)
"""


def touch(path):
    with open(path, "w", encoding="ascii"):
        pass


def test_killed_for_memory_in_warmup(bed):
    mark = f"{bed.shared}/grab-"
    grab = bed.start("spark-2", "python3", "-c", GRAB, mark)
    bed.do("memory", "spark-2", str(900 << 20))
    s = Served(bed, "--max-model-len", "256")
    s.program.wait_err(r"^fabric ")
    bed.do("delay", str(HELD))
    s.wait_event("phase", 1, "load")
    touch(mark + "load")
    s.wait_event("phase", 1, "warmup")
    with open(f"/proc/{rank(bed, 'spark-2')}/oom_score_adj", "w", encoding="ascii") as f:
        f.write("1000")  # the kernel's first choice
    touch(mark + "warmup")
    while bed.processes("spark-2", RANKS):
        time.sleep(0.002)
    clock = Metronome(bed)
    undelay(bed, "warmup")  # spark-2 is asked over the same link
    report = s.lost()
    assert clock.seconds(s) < AT_WORK, s.err
    still_in(s, "warmup")
    assert report["error"] == ("spark-2 (rank 1) was killed by the kernel: out of memory, "
                               "in phase warmup"), s.err
    assert re.search(r"counts 1 more such kill there; the rank had 0\.[1-9][0-9]* GiB .* "
                     r"[0-9.]+ GiB were left then and [0-9.]+ GiB are now", report["cause"]), s.err
    grab.process.kill()
    bed.do("memory", "spark-2", "max")
    s.ready()
    assert s.stop() == 0


# ---- kills within `tandem check` ----------------------------------------------------------


WHY = {"agent": "killed there, or the connection", "own-agent": "it was killed by signal 9",
       "ssh-agent": "the ssh to it was killed by signal 9"}


@pytest.mark.parametrize("what", WHY)
def test_killed_within_check(bed, what):
    p = bed.start("spark-1", TANDEM, "check", "--json", "--hosts", HOSTS)
    pid = soon(bed, what)
    time.sleep(0.4)  # it has been asked for its facts
    clock = Metronome(bed)
    kill(pid)
    assert p.wait(20) == 1
    assert clock.until(time.time()) < AT_WORK
    failures = [x for x in json.loads(p.out)["lines"] if x["verdict"] == "fail"]
    assert len(failures) == 1 and failures[0]["code"] == "peer-lost", failures
    assert re.search(r"the agent on \S+ ended", failures[0]["what"]), failures
    assert WHY[what] in failures[0]["why"], failures
    assert failures[0]["host"] in (("spark-1", "192.168.200.12") if what == "own-agent"
                                   else ("spark-2", "192.168.200.13"))
    bed.wait_gone(ALL)


@pytest.mark.parametrize("what", ["agent", "ssh-agent"])
def test_stopped_within_check(bed, what):
    p = bed.start("spark-1", TANDEM, "check", "--json", "--hosts", HOSTS)
    pid = soon(bed, what)
    os.kill(pid, signal.SIGSTOP)
    assert p.wait(30) == 1
    report = json.loads(p.out)
    failures = [x for x in report["lines"] if x["verdict"] == "fail"]
    assert len(failures) == 1 and failures[0]["code"] == "timeout", failures
    assert "192.168.200.13" in failures[0]["what"] and report["seconds"] < 10
    if what == "agent":  # what is stopped ends when it goes on
        os.kill(pid, signal.SIGCONT)
    bed.wait_gone(ALL)


def test_a_killed_check_leaves_nothing(bed):
    p = bed.start("spark-1", TANDEM, "check", "--hosts", HOSTS)
    soon(bed, "agent")
    p.signal(signal.SIGKILL)
    bed.wait_gone(ALL + "|ssh ")
