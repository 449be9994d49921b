# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/hosts.sh."""
import argparse
import json
import mmap
import os
import random
import re
import statistics
import sys
import threading
import time

sys.path.insert(0, "tests/hosts")
# pylint: disable=wrong-import-position
from testbed import TANDEM, Testbed, kill  # noqa: E402
from serving import Served, rank  # noqa: E402

REPEATS = 3


def line(name, text):
    print(f"{name:<9}{text}", flush=True)


def seconds_of(bed, *argv):
    """Medians of a program's seconds on the first host."""
    took = []
    for _ in range(REPEATS):
        began = time.monotonic()
        r = bed.run("spark-1", TANDEM, *argv, timeout=120)
        took.append(time.monotonic() - began)
        assert r.returncode == 0, r.stderr
    return statistics.median(took)


def hosts_of(bed):
    return ",".join(bed.addr(h) for h in bed.names())


def measure_check(args):
    bed = Testbed()
    hosts = hosts_of(bed)
    line("check", f"{seconds_of(bed, 'check', args.model, '--hosts', hosts):.2f} s "
                  "(wanted: at most 10)")
    line("plan", f"{seconds_of(bed, 'plan', args.model, '--hosts', hosts):.2f} s "
                 "(wanted: at most 2)")
    bed.close()


def loads(served):
    """Of each rank: seconds and bytes of its load, from the events."""
    found = {}
    with open(served.events, encoding="utf-8") as f:
        for text in f:
            e = json.loads(text)
            if e.get("event") == "loaded":
                found[e["rank"]] = e["n"]
    return found


def rchar(pid):
    with open(f"/proc/{pid}/io", encoding="ascii") as f:
        return int(re.search(r"^rchar: (\d+)", f.read(), re.M).group(1))


def warm_memory():
    """Touches as much memory as both ranks will take: a virtual machine gets memory from
    its host when it is touched for the first time, at a fraction of a GB/s, and may have
    given back what has been free for a while."""
    with open("/proc/meminfo", encoding="ascii") as f:
        free = int(re.search(r"^MemFree: +(\d+)", f.read(), re.M).group(1)) << 10
    n = min(13 << 30, free * 9 // 10) >> 21 << 21
    began = time.monotonic()
    with mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as m:
        m.madvise(mmap.MADV_HUGEPAGE)
        m[::4096] = bytes(n // 4096)
    took = time.monotonic() - began
    line("memory", f"{n / 2**30:.1f} GiB touched before, at {n / took * 1e-9:.2f} GB/s")


def phase_seconds(served, name, after):
    """From the first rank that enters a phase to the last that enters the next one."""
    starts = [e["t"] for e in served.events_of("phase")
              if e["phase"] == name and e["rank"] >= 0]
    ends = [e["t"] for e in served.events_of("phase")
            if e["phase"] == after and e["rank"] >= 0]
    return max(ends) - min(starts)


def measure_start(args):
    bed = Testbed()
    over = []
    warm_memory()
    for _ in range(REPEATS):
        s = Served(bed, "--threads", "1", model=args.model)
        began = s.program.began
        s.ready(300)
        ready = time.monotonic() - began
        load = phase_seconds(s, "load", "warmup")
        over.append(ready - load)
        took = {k: max(e["n"]["seconds"] for e in s.events_of(k))
                for k in ("loaded", "touched")}
        line("start", f"ready after {ready:.2f} s, of which {load:.2f} s in phase load "
                      f"(weights read after {took['loaded']:.2f} s, caches touched after "
                      f"{took['touched']:.2f} s)")
        line("phases", re.search(r"^ready .*\((.*)\)$", s.err, re.M).group(1))
        for number, host in enumerate(bed.names()):
            read, of = rchar(rank(bed, host)), loads(s)[number]["of"]
            line("read", f"{host} {read / 2**20:.1f} MiB, {read / of:.3f} x its slice of "
                         f"{of / 2**20:.1f} MiB (wanted: at most 1.03)")
        assert s.stop(60) == 0
        os.unlink(s.events)
    line("start", f"{statistics.median(over):.2f} s besides loading, at most "
                  f"{max(over):.2f} (wanted: at most 3)")
    bed.close()


def decode(bed, model, *options):
    """Tokens a second of one sequence, and the share of all-reduces in a step."""
    r = bed.run("spark-1", TANDEM, "bench", model, "--json", "--batch", "1", "--prompt", "128",
                *options, timeout=600)
    assert r.returncode == 0, r.stderr
    point = [p for p in json.loads(r.stdout)["points"] if p["kind"] == "decode"][0]
    summing = point["by_op"].get("all_reduce", {}).get("seconds", 0)
    return point["tokens_per_second"], summing / point["seconds"]


def measure_decode(args):
    """In turns: how fast memory is changes from minute to minute where others use it."""
    two, one = Testbed(), Testbed("--hosts", "1", "--spread")
    runs = []
    for _ in range(REPEATS):
        runs.append((decode(two, args.model, "--hosts", hosts_of(two), "--threads", "1"),
                     decode(one, args.model, "--threads", "2")))
        (a, share), (b, _) = runs[-1]
        line("decode", f"two hosts with a core each {a:.1f} tokens/s, one host with two "
                       f"threads {b:.1f}; {share * 100:.1f} % of a step in all-reduces")
    two.close()
    one.close()
    ratio = statistics.median(a for (a, _), _ in runs) / statistics.median(
        b for _, (b, _) in runs)
    share = statistics.median(share for (_, share), _ in runs)
    line("decode", f"{ratio:.2f} x (wanted: at least 0.9); {share * 100:.1f} % in all-reduces "
                   "(wanted: at most 10)")


def measure_kills(_args):
    bed = Testbed()
    s = Served(bed)
    s.ready()
    ready = time.monotonic() - s.program.began
    mark = os.path.join(bed.shared, "kill")
    over = threading.Event()

    def killer():
        rng = random.Random(1)
        while not over.is_set():
            if os.path.exists(mark):
                host = rng.choice(bed.names())
                kill(rank(bed, host))
                line("kill", f"rank on {host}")
                os.unlink(mark)
            time.sleep(0.02)

    thread = threading.Thread(target=killer)
    thread.start()
    pid = str(bed.inner(s.program.pid()))
    soak = bed.start("spark-1", "python3", "tests/e2e/soak.py", "http://127.0.0.1:8000", pid,
                     "--count", "2000", "--kill", "10", "--pause", "5", "--at-a-time", "16",
                     "--load", f"{ready:.1f}", "--killer",
                     f"touch {mark}; while [ -e {mark} ]; do sleep 0.02; done")
    code = soak.wait(1200)
    over.set()
    thread.join()
    print(soak.out, soak.err if code else "", flush=True)
    s.stop()
    bed.close()
    return code


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="models/lexicon")
    p.add_argument("what", nargs="*", default=["check", "start", "decode", "kills"])
    args = p.parse_args()
    parts = {"check": measure_check, "start": measure_start, "decode": measure_decode,
             "kills": measure_kills}
    codes = [parts[w](args) for w in args.what]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
