# SPDX-License-Identifier: Apache-2.0
"""What many clients cost that only listen to /startupz: memory, and time of a step.

    idle.py URL PID [--streams 1000] [--repeats 5]

PID is the server's process. One answer after the other is computed with and without the
streams, in turn; the time of a step is the engine's own, by /metrics. Exits 1 if 1,000
streams cost 100 MB or more, or a step takes longer by more than the rounds differ.
"""
import argparse
import http.client
import json
import resource
import socket
import statistics
import sys
import time
from urllib.parse import urlsplit

ANSWER = {"prompt": "The lighthouse", "max_tokens": 2000, "ignore_eos": True, "seed": 1}


def ask(host, method, path, body=None):
    """The reply's text."""
    c = http.client.HTTPConnection(host, timeout=300)
    c.request(method, path, body)
    reply = c.getresponse()
    text = reply.read().decode()
    c.close()
    assert reply.status == 200, text
    return text


def steps(host):
    """Steps so far and the seconds they took."""
    found = {}
    for line in ask(host, "GET", "/metrics").splitlines():
        for name in ("tandem:steps_total", "tandem:step_seconds_total"):
            if line.startswith(name):
                found[name] = float(line.split()[-1])
    return found["tandem:steps_total"], found["tandem:step_seconds_total"]


def step_time(host):
    """Microseconds of a step while an answer is computed."""
    time.sleep(0.5)  # the engine tells its counts five times a second
    n, seconds = steps(host)
    ask(host, "POST", "/v1/completions", json.dumps(ANSWER))
    time.sleep(0.5)
    m, more = steps(host)
    return (more - seconds) / (m - n) * 1e6


def resident(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def listen(host, n):
    """Streams that have had their first event."""
    name, port = host.rsplit(":", 1)
    streams = []
    for _ in range(n):
        s = socket.create_connection((name, int(port)), timeout=30)
        s.sendall(b"GET /startupz HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
        streams.append(s)
    for s in streams:
        assert b"200 OK" in s.recv(65536)
    return streams


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("pid", type=int)
    p.add_argument("--streams", type=int, default=1000)
    p.add_argument("--repeats", type=int, default=5)
    args = p.parse_args()
    host = urlsplit(args.url).netloc
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    step_time(host)
    before, cost, alone, beside = resident(args.pid), 0, [], []
    for _ in range(args.repeats):
        alone.append(step_time(host))
        streams = listen(host, args.streams)
        beside.append(step_time(host))
        cost = max(cost, resident(args.pid) - before)
        for s in streams:
            s.close()
    a, b = statistics.median(alone), statistics.median(beside)
    spread = max(alone) - min(alone)
    memory, slower = cost < 100e6 * args.streams / 1000, b - a > max(spread, 0.01 * a)
    print(f"{args.streams} idle streams: {cost / 1e6:.1f} MB (wanted below "
          f"{args.streams / 10:.0f}): {'met' if memory else 'MISSED'}")
    print(f"a step takes {a:.1f} us without them ({min(alone):.1f} to {max(alone):.1f}), "
          f"{b:.1f} with them ({min(beside):.1f} to {max(beside):.1f}): "
          f"{'MISSED' if slower else 'no measurable difference'}")
    return 1 if slower or not memory else 0


if __name__ == "__main__":
    sys.exit(main())
