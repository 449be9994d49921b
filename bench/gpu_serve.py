#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving costs on a GPU: `tandem serve` against `tandem bench MODEL`.

    bench/gpu_serve.py [--device cuda] [--batch 1,32] [--tokens 512] SHAPE

SHAPE is a folder with a config.json; weights are random, the text side is lexicon's.
First the server, one wave of requests for each number of --batch; then steps of as many
sequences at the mean context of those answers. Prints both and these bars; exit status 1
when one was missed:

    tokens a second while answers are written   95 % of the steps'
    the GPU idle between steps, one request     5 %
    weights there until a first token was made  2 s
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD = os.environ.get("BUILD", "build")
PROMPT = 64
START = 300  # seconds that a server may take
missed = []


def bar(what, got, wanted, form, good):
    print("%-46s %10s  (%s)  %s" % (what, form % got, wanted, "ok" if good else "MISSED"))
    if not good:
        missed.append(what)


def shape_with_text(shape, box):
    """A model folder: the shape's configuration, lexicon's tokenizer and template."""
    model = os.path.join(box, "model")
    os.mkdir(model)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join("models/lexicon", name), model)
    shutil.copy(os.path.join(shape, "config.json"), model)
    return model


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tandem(*words):
    done = subprocess.run((BUILD + "/tandem", *words), capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit("tandem %s: exit status %d\n%s" % (" ".join(words), done.returncode,
                                                  done.stderr.decode()))
    return json.loads(done.stdout)


def wait_ready(server, url):
    until = time.monotonic() + START
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


def serve(model, args, box):
    """Levels of `bench --url` by concurrency, and seconds of the warm-up."""
    port, log = free_port(), os.path.join(box, "events")
    url = "http://127.0.0.1:%d" % port
    most = max(args.batch)
    length = PROMPT + args.tokens + 128
    with open(os.path.join(box, "server"), "wb") as said:
        server = subprocess.Popen(
            (BUILD + "/tandem", "serve", model, "--device", args.device, "--weights",
             "random", "--port", str(port), "--max-num-seqs", str(most),
             "--max-model-len", str(length), "--event-log", log),
            stdout=said, stderr=said)
    try:
        wait_ready(server, url)
        levels = {}
        for n in args.batch:
            found = tandem("bench", "--url", url, "--concurrency", str(n), "--requests",
                           str(max(n, 2)), "--prompt-tokens", str(PROMPT),
                           "--max-tokens", str(args.tokens), "--json")
            levels[n] = found["levels"][0]
    finally:
        server.terminate()
        server.wait(60)
        with open(os.path.join(box, "server"), encoding="utf-8") as said:
            print(said.read().rstrip())
    times = {}
    with open(log, encoding="utf-8") as lines:
        for event in map(json.loads, lines):
            if event["event"] == "phase":
                times.setdefault(event["phase"], event["t"])
    return levels, times["serve"] - times["warmup"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("shape")
    args = parser.parse_args()
    args.batch = [int(n) for n in args.batch.split(",")]
    with tempfile.TemporaryDirectory() as box:
        model = shape_with_text(args.shape, box)
        levels, warm_up = serve(model, args, box)
        steps = tandem("bench", model, "--device", args.device, "--weights", "random",
                       "--batch", ",".join(map(str, args.batch)), "--prompt", str(PROMPT),
                       "--context", str(PROMPT + args.tokens // 2), "--json")
    for p in steps["points"]:
        if p["kind"] != "decode":
            continue
        n, level = p["batch"], levels[p["batch"]]
        if level["answered"] != level["requests"]:
            sys.exit("requests failed: %s" % level["errors"])
        gap = (level["whole_ms"]["p50"] - level["first_token_ms"]["p50"]) / (args.tokens - 1)
        print("%d at a time: %.3f ms a token, steps %.3f ms, back to back %.3f ms; "
              "%.1f tokens/s, prompts included; first token %.1f ms"
              % (n, gap, 1e3 * p["seconds"], 1e3 * p["ahead_seconds"],
                 level["output_tokens_per_second"], level["first_token_ms"]["p50"]))
        share = 100 * 1e3 * p["seconds"] / gap
        bar("%d at a time, tokens/s of the steps'" % n, share, ">= 95 %", "%.1f %%",
            share >= 95)
        if n == 1 and p["ahead_seconds"] > 0:
            idle = 100 * (1 - 1e3 * p["ahead_seconds"] / gap)
            bar("the GPU idle between steps", idle, "<= 5 %", "%.1f %%", idle <= 5)
    bar("first token after the weights", warm_up, "<= 2 s", "%.2f s", warm_up <= 2)
    return 1 if missed else 0


sys.exit(main())
