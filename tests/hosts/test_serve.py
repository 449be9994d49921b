# SPDX-License-Identifier: Apache-2.0
"""tandem serve over pretended hosts: it works, and whatever fails is named and left
clean. Rank 1 is always started over ssh on another host."""
import json
import os
import re
import signal
import time

import pytest
from conftest import TANDEM, kill
from serving import ALL, MODEL, RANKS, URL, Metronome, Served, rank

AT_WORK, IDLE = 2, 5  # seconds in which a loss is noticed


def alone(bed, text="What is a harp?", tokens=24):
    """The answer of one host, from a file of its own."""
    r = bed.run("spark-1", TANDEM, "run", MODEL, text, "--temperature", "0", "--max-tokens",
                str(tokens), "--no-think", "--json", timeout=120)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)["text"]


# ---- it works ------------------------------------------------------------------------


@pytest.mark.parametrize("bed", [("--mgmt", m) for m in ("isolated", "blackhole")],
                         indirect=True)
def test_serves_over_two_hosts(bed):
    s = Served(bed)
    s.ready()
    assert re.search(r"^fabric  spark-1 192.168.200.12  <->  spark-2 192.168.200.13   "
                     r"fabric  [0-9.]+ us  [0-9.]+ GB/s$", s.err, re.M), s.err
    state = s.state()
    assert [(r["rank"], r["host"]) for r in state["ranks"]] == [(0, "spark-1"), (1, "spark-2")]
    assert all(r["resident"] > 0 and r["available"] > 0 for r in state["ranks"])
    assert rank(bed, "spark-1") and rank(bed, "spark-2")
    assert s.ask() == Served.ask(s)
    text = bed.run("spark-1", TANDEM, "status").stdout
    assert re.search(r"^rank 1 +spark-2  serve .* resident", text, re.M), text
    assert {e["rank"] for e in s.events_of("phase")} >= {0, 1}
    assert s.stop() == 0


def test_answers_as_one_host_does(bed):
    one = bed.start("spark-1", TANDEM, "serve", MODEL, "--port", "8000")
    one.wait_err(r"^ready ")
    s = Served.__new__(Served)
    s.bed, s.program = bed, one
    texts = ["What is a harp?", "What is a lake?", "Define: music"]
    want = [s.ask(t) for t in texts]
    assert s.stop() == 0
    s = Served(bed)
    s.ready()
    assert [s.ask(t) for t in texts] == want
    assert s.stop() == 0


def test_options_from_a_file(bed):
    bed.run("spark-1", "sh", "-c", "mkdir -p /root/.config/tandem && printf 'hosts = "
            "192.168.200.13,192.168.200.12\\nfabric = fabric\\n' "
            ">/root/.config/tandem/tandem.conf")
    p = bed.start("spark-1", TANDEM, "serve", MODEL, "--port", "8000")
    p.wait_err(r"^ready ")
    assert re.search(r"^fabric  spark-1 .* spark-2 ", p.err, re.M)
    p.signal(signal.SIGTERM)
    assert p.wait() == 0
    bed.wait_gone(ALL)


def test_a_millisecond_of_delay_is_only_slower(bed):
    s = Served(bed)
    s.ready()
    want = s.ask(tokens=8)
    bed.do("delay", "1000")
    assert s.ask(tokens=8) == want
    bed.do("delay", "0")
    assert s.stop() == 0


# ---- refused before anything is loaded ------------------------------------------------


def refused(bed, *options, seconds=20, **kw):
    s = Served(bed, *options, **kw)
    assert s.program.wait(seconds) == 1, s.err
    bed.wait_gone(ALL)
    r = s.report()
    assert r["error"] and r["cause"] and r["fix"], s.err
    assert "load" not in s.err.split("error")[0]
    return r


def test_more_ranks_than_devices(bed):
    r = refused(bed, "--tp", "2", hosts="192.168.200.12")
    assert re.search(r"2 ranks.*1 core", r["error"]), r
    assert "--hosts" in r["fix"]


def test_a_name_that_others_do_not_use(bed):
    r = refused(bed, hosts="spark-1,spark-2")
    assert "spark-2 leads to 10.1.230.181" in r["error"], r


def test_the_fabric_is_down(bed):
    bed.do("cut", "spark-2")
    r = refused(bed)
    assert "192.168.200.13" in r["error"] + r["cause"], r


def test_memory_that_does_not_suffice(bed):
    r = refused(bed, "--memory", "48M")
    assert "48.0 MiB" in r["error"] + r["cause"], r


def test_no_program_on_the_other_host(bed):
    bed.run("spark-2", "rm", TANDEM)
    r = refused(bed)
    assert "does not run on 192.168.200.13" in r["error"], r


def test_no_ssh_to_the_other_host(bed):
    for pid, _ in bed.processes("spark-2", "sshd"):
        kill(pid)
    r = refused(bed)
    assert "ssh" in r["error"] + r["cause"], r


def test_a_firewall_on_the_ports_of_mpi(bed):
    if bed.run("spark-1", "nft", "--version").returncode != 0:
        pytest.skip("needs nft")
    bed.do("firewall", "spark-1", "tcp dport 1024-65535 ct state new iifname \"fabric\"")
    r = refused(bed)
    assert "ports of spark-1 are closed to spark-2" in r["error"], r


def test_a_model_cut_short_on_one_host(bed):
    bed.run("spark-2", "sh", "-c", f"truncate -s -4096 {os.path.abspath(MODEL)}/*.safetensors")
    r = refused(bed)
    assert "spark-2" in r["error"] + r["cause"], r


def test_another_model_on_one_host(bed):
    bed.run("spark-2", "sh", "-c",
            f"sed -i 's/rms_norm_eps\\(.*\\)e-06/rms_norm_eps\\1e-05/' "
            f"{os.path.abspath(MODEL)}/config.json")
    r = refused(bed)
    assert "config.json" in r["error"] + r["cause"], r


def test_a_port_that_is_taken(bed):
    taken = bed.start("spark-1", "python3", "-m", "http.server", "8000", "--bind",
                      "127.0.0.1")
    time.sleep(0.5)
    s = Served(bed)
    assert s.program.wait(20) == 1
    assert "8000" in s.report()["error"], s.err
    taken.process.kill()


def test_a_clock_one_hour_off(bed):
    bed.do("clock", "spark-2", "3600")
    r = refused(bed)
    assert "clock of spark-2 is 3600 s ahead" in r["error"], r


# ---- faults while it serves ------------------------------------------------------------


def harmed(bed, harm, pattern, tokens=400):
    """Harms a server in the middle of an answer: noticed, named, cleaned, answered."""
    s = Served(bed)
    s.ready()
    want = s.ask(tokens=16)
    a = s.asking(tokens=tokens)
    time.sleep(0.3)
    at = len(s.err)
    clock = Metronome(bed)
    harm(s)
    report = s.lost(20, at)
    assert re.search(pattern, report["error"] + " " + report["cause"]), s.err[at:]
    assert clock.seconds(s) < AT_WORK, s.err[at:]
    return s, a, at, want


def recovered(s, a, at, want):
    s.ready(60, at)
    a.wait(120)
    reply = json.loads(a.out)
    assert "choices" in reply, reply
    assert s.ask(tokens=16) == want
    assert s.stop() == 0


@pytest.mark.parametrize("host,number", [("spark-1", 0), ("spark-2", 1)])
def test_a_killed_rank(bed, host, number):
    recovered(*harmed(bed, lambda s: kill(rank(bed, host)),
                      rf"rank {number} on {host} was killed by signal 9.*phase serve"))


@pytest.mark.parametrize("host,number", [("spark-1", 0), ("spark-2", 1)])
def test_a_stopped_rank(bed, host, number):
    recovered(*harmed(bed, lambda s: os.kill(rank(bed, host), signal.SIGSTOP),
                      rf"rank {number} on {host} is silent"))


def test_a_stopped_rank_while_idle(bed):
    s = Served(bed)
    s.ready()
    time.sleep(2)
    at = len(s.err)
    clock = Metronome(bed)
    os.kill(rank(bed, "spark-2"), signal.SIGSTOP)
    report = s.lost(20, at)
    assert "rank 1 on spark-2 is silent" in report["error"], s.err
    assert clock.seconds(s) < IDLE, s.err
    s.ready(60, at)
    assert s.stop() == 0


@pytest.mark.parametrize("what", ["mpirun", "orted", "ssh .*orted"])
def test_a_killed_launcher(bed, what):
    def harm(s):
        host = "spark-2" if what == "orted" else "spark-1"
        found = [p for p, c in bed.processes(host, what)
                 if what != "orted" or not re.search("sh -c|sshd", c)]
        assert found, bed.processes(host)
        kill(found[0])
    recovered(*harmed(bed, harm, r"mpirun|spark-2|rank"))


def test_a_link_that_goes_down_and_comes_back(bed):
    s, a, at, want = harmed(bed, lambda s: bed.do("cut", "spark-2"), "spark-2")
    bed.do("mend", "spark-2")
    recovered(s, a, at, want)


def test_a_host_that_vanishes(bed):
    s, a, _, _ = harmed(bed, lambda s: bed.do("blackhole", "spark-2"), "spark-2")
    a.process.kill()  # then nothing is left to finish
    s.program.signal(signal.SIGTERM)
    assert s.program.wait(60) == 0
    bed.wait_gone(RANKS)
    bed.do("mend", "spark-2")
    bed.wait_gone(ALL, 60)  # Open MPI's daemon finds out when the network is back


def test_a_killed_front_leaves_nothing(bed):
    s = Served(bed)
    s.ready()
    s.asking(tokens=400)
    time.sleep(0.3)
    s.program.signal(signal.SIGKILL)
    bed.wait_gone(ALL)


HOG = """
import time
kept = []
while True:
    kept.append(b"x" * (4 << 20))
    time.sleep(0.005)
"""


def test_killed_for_memory_is_named(bed):
    s = Served(bed, "--max-model-len", "256", "--prefix-cache", "0")
    s.ready()
    time.sleep(1.5)  # a heartbeat with what is left has come
    bed.do("memory", "spark-2", str(500 << 20))
    with open(f"/proc/{rank(bed, 'spark-2')}/oom_score_adj", "w", encoding="ascii") as f:
        f.write("1000")  # the kernel's first choice
    at = len(s.err)
    bed.start("spark-2", "python3", "-c", HOG)
    report = s.lost(30, at)
    for pid, _ in bed.processes("spark-2", "python3"):
        kill(pid)
    bed.do("memory", "spark-2", "max")
    assert re.search(r"spark-2 \(rank 1\) was killed by the kernel: out of memory, in phase "
                     r"serve", report["error"]), s.err[at:]
    assert re.search(r"had [0-9.]+ GiB", report["cause"])
    s.ready(60, at)
    assert s.stop() == 0


# ---- faults while it starts ---------------------------------------------------------------


@pytest.mark.parametrize("when", ["listen", "fabric"])
@pytest.mark.parametrize("what", ["serve", "worker", "agent", "mpirun"])
def test_killed_while_it_starts(bed, when, what):
    """Whoever is killed in whatever phase: it works in the end, or all of it is gone."""
    s = Served(bed)
    s.program.wait_err(rf"^{when} ")
    end = time.monotonic() + 5
    hit = None
    while not hit and time.monotonic() < end and not re.search("^ready", s.err, re.M):
        for host in ("spark-2", "spark-1"):
            for pid, c in bed.processes(host, f"(tandem {what}|^{what})"):
                if not hit and not re.search("ssh|sh -c", c):
                    hit = pid
    if hit:
        try:
            kill(hit)
        except ProcessLookupError:
            pass
    end = time.monotonic() + 90
    while s.program.process.poll() is None and not re.search("^ready", s.err, re.M):
        assert time.monotonic() < end, s.err
        time.sleep(0.05)
    if s.program.process.poll() is None:
        while s.reply("What is a harp?", 4)[0] != 200:  # the kill came just after "ready"
            assert time.monotonic() < end, s.err
            time.sleep(0.1)
        assert s.stop() == 0
    elif what != "serve":
        assert s.report()["error"], s.err
    bed.wait_gone(ALL)


def test_a_link_that_goes_down_while_it_starts(bed):
    s = Served(bed)
    s.program.wait_err(r"^fabric ")
    bed.do("cut", "spark-2")
    report = s.lost(30)
    assert "spark-2" in report["error"] + report["cause"], s.err
    bed.do("mend", "spark-2")
    end = time.monotonic() + 90
    while s.program.process.poll() is None and not re.search("^ready", s.err, re.M):
        assert time.monotonic() < end, s.err
        time.sleep(0.1)
    if s.program.process.poll() is None:  # cut later: it was started again
        assert s.stop() == 0
    bed.wait_gone(ALL)


def test_a_full_disk_for_logs(bed):
    bed.run("spark-1", "sh", "-c", "mkdir -p /root/.local/state/tandem && mount -t tmpfs "
            "-o size=4k tmpfs /root/.local/state/tandem && "
            "head -c 9000 /dev/zero >/root/.local/state/tandem/full")
    p = bed.start("spark-1", TANDEM, "serve", MODEL, "--port", "8000", "--hosts",
                  "192.168.200.12,192.168.200.13")
    p.wait_err(r"^ready ")
    assert bed.fetch("spark-1", f"{URL}/readyz")[0] == 200
    p.signal(signal.SIGTERM)
    assert p.wait() == 0
    bed.wait_gone(ALL)
