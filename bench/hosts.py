# SPDX-License-Identifier: Apache-2.0
"""The measurements of bench/hosts.sh."""
import argparse
import json
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


def measure_start(args):
    bed = Testbed()
    over = []
    for _ in range(REPEATS):
        s = Served(bed, "--threads", "1", model=args.model)
        began = s.program.began
        s.ready(300)
        ready = time.monotonic() - began
        load = max(n["seconds"] for n in loads(s).values())
        over.append(ready - load)
        line("start", f"ready after {ready:.2f} s, of which {load:.2f} s loading")
        for number, host in enumerate(bed.names()):
            read, of = rchar(rank(bed, host)), loads(s)[number]["of"]
            line("read", f"{host} {read / 2**20:.1f} MiB, {read / of:.3f} x its slice of "
                         f"{of / 2**20:.1f} MiB (wanted: at most 1.03)")
        assert s.stop(60) == 0
    line("start", f"{statistics.median(over):.2f} s besides loading (wanted: at most 3)")
    bed.close()


def decode(bed, model, *options):
    """Tokens a second of one sequence, and the share of all-reduces in a step."""
    rates, shares = [], []
    for _ in range(REPEATS):
        r = bed.run("spark-1", TANDEM, "bench", model, "--json", "--batch", "1", "--prompt",
                    "128", "--max-tokens", "32", *options, timeout=600)
        assert r.returncode == 0, r.stderr
        points = json.loads(r.stdout)["points"]
        point = [p for p in points if p["kind"] == "decode"][0]
        rates.append(point["tokens_per_second"])
        summing = point["by_op"].get("all_reduce", {}).get("seconds", 0)
        shares.append(summing / point["seconds"])
    return statistics.median(rates), statistics.median(shares)


def measure_decode(args):
    bed = Testbed()
    two, share = decode(bed, args.model, "--hosts", hosts_of(bed), "--threads", "1")
    bed.close()
    bed = Testbed("--hosts", "1", "--spread")
    one, _ = decode(bed, args.model, "--threads", "2")
    bed.close()
    line("decode", f"two hosts with a core each {two:.2f} tokens/s, one host with two threads "
                   f"{one:.2f}: {two / one:.2f} x (wanted: at least 0.9)")
    line("decode", f"{share * 100:.1f} % of a step in all-reduces (wanted: at most 10)")


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
