#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All speeds of the processor's side in one table, and the bars that they must reach.

    bench/bars.py [--models DIR] [--threads N] [--skip-ops]

Times every operation (build/benchops), loading (build/bench_load), and `tandem bench` and
`tandem run` on lexicon and on two synthetic models of 2 GB, which are made below DIR
(build/bench) when they are missing. Wants the machine for itself for about five minutes.
Exit status 1: a bar was missed, or something could not be measured.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

BUILD = os.environ.get("BUILD", "build")
missed = []


def run(*command):
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("%s: exit status %d\n%s" % (" ".join(command), done.returncode,
                                             done.stderr.decode()))
    return done.stdout.decode()


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def bar(what, got, wanted, form="%.0f %%", at_most=False):
    """One line of the table of bars."""
    good = got <= wanted if at_most else got >= wanted
    if not good:
        missed.append(what)
    print("%-52s %10s  %s %-10s %s" % (what, form % got, "<=" if at_most else ">=",
                                       form % wanted, "ok" if good else "MISSED"))
    sys.stdout.flush()


def share(x):
    return "%4.0f %%" % (100 * x) if x else "     -"


def operations(threads):
    print("%-34s %28s   %28s" % ("operation", "bf16:  time  read  peak",
                                 "f32:  time  read  peak"))
    table = {}
    for numerics in ("bf16", "f32"):
        lines = run(BUILD + "/benchops", "--json", "--numerics", numerics, *threads)
        for o in objects(lines):
            table.setdefault(o["op"], {})[numerics] = o
    for op, of in table.items():
        cells = ["%10.3f ms %s %s" % (1e3 * o["seconds"], share(o["read_share"]),
                                      share(o["peak_share"]))
                 for o in (of["bf16"], of["f32"])]
        print("%-34s %28s   %28s" % (op, *cells))
    print()


def model(directory, name):
    path = os.path.join(directory, name)
    if not os.path.exists(os.path.join(path, "config.json")):
        os.makedirs(directory, exist_ok=True)
        run(BUILD + "/make_model", "--preset", name, path)
    return path


def points(path, threads, *options):
    o = json.loads(run(BUILD + "/tandem", "bench", path, "--json", "--prompt", "1024",
                       *threads, *options))
    found = {(p["kind"], p["batch"]): p for p in o["points"]}
    for (kind, batch), p in found.items():
        print("%-18s %-4s %-8s batch %d: %9.3f ms %9.1f tokens/s %s of read %s of peak" % (
            os.path.basename(path), "f32" if "f32" in options else "bf16", kind, batch,
            1e3 * p["seconds"], p["tokens_per_second"], share(p["read_share"]),
            share(p["peak_share"])))
    sys.stdout.flush()
    return found


def lexicon(threads):
    """Tokens per second of an answer, and seconds of a process with one token."""
    command = [BUILD + "/tandem", "run", "models/lexicon", "--json", "--no-think",
               "--temperature", "0", *threads, "What does the word lighthouse mean?"]
    speed, whole = [], []
    for _ in range(5):
        speed.append(json.loads(run(*command))["timings"]["tokens_per_second"])
        start = time.monotonic()
        run(*command, "--max-tokens", "1")
        whole.append(time.monotonic() - start)
    return statistics.median(speed), statistics.median(whole)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--models", default=BUILD + "/bench")
    a.add_argument("--threads")
    a.add_argument("--skip-ops", action="store_true")
    a = a.parse_args()
    threads = ["--threads", a.threads] if a.threads else []
    moe, dense = model(a.models, "bench-moe"), model(a.models, "bench-dense")
    if not a.skip_ops:
        operations(threads)
    load = json.loads(run(BUILD + "/bench_load", "--json", moe))
    print("load               cached %.2f of %.2f GB/s, not cached %.2f of %.2f GB/s" % (
        load["warm"], load["plain"], load["cold"], load["direct"]))
    m = points(moe, threads, "--batch", "1,8")
    wide = points(moe, threads, "--batch", "1", "--numerics", "f32")
    d = points(dense, threads, "--batch", "1,8")
    points("models/lexicon", threads, "--batch", "1,8")
    speed, whole = lexicon(threads)
    print()
    bar("mixture, decode, batch 1, of read", 100 * m["decode", 1]["read_share"], 75)
    bar("mixture, step of batch 8, times batch 1",
        m["decode", 8]["seconds"] / m["decode", 1]["seconds"], 3, "%.2f", True)
    bar("dense, decode, batch 1, of read", 100 * d["decode", 1]["read_share"], 85)
    bar("mixture, prompt of 1024, of the bf16 peak",
        100 * m["prefill", 1]["peak_share"], 55)
    bar("dense, prompt of 1024, of the bf16 peak", 100 * d["prefill", 1]["peak_share"], 55)
    bar("mixture, prompt of 1024, f32, of the f32 peak",
        100 * wide["prefill", 1]["peak_share"], 60)
    bar("load, cached, of plain parallel reads", 100 * load["warm"] / load["plain"], 80)
    bar("load, not cached, of direct reads", 100 * load["cold"] / load["direct"], 90)
    bar("lexicon, run, tokens/s", speed, 1000, "%.0f")
    bar("lexicon, process with one token, ms", 1e3 * whole, 150, "%.0f", True)
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
