# SPDX-License-Identifier: Apache-2.0
"""Pretended hosts (testbed.sh) and programs that run on them."""
import json
import os
import re
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "testbed.sh")
TANDEM = os.path.abspath(os.environ.get("TANDEM", "build/tandem"))


def _read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return None


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
            return f.read().replace("\0", " ").replace("\n", " ").strip()
    except OSError:
        return ""


class Program:
    """A program on a host; its output goes to files below the shared folder."""

    def __init__(self, bed, host, argv, env):
        self.bed, self.host = bed, host
        bed.started += 1
        base = os.path.join(bed.folder, "shared", f"program-{bed.started}")
        self.out_path, self.err_path = base + ".out", base + ".err"
        with open(self.out_path, "w", encoding="utf-8") as out, \
                open(self.err_path, "w", encoding="utf-8") as err:
            self.process = subprocess.Popen(
                [SCRIPT, "exec", host, *argv], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, env=env)
        self.began = time.monotonic()

    @staticmethod
    def _read(path):
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()

    @property
    def out(self):
        return self._read(self.out_path)

    @property
    def err(self):
        return self._read(self.err_path)

    def wait(self, seconds=60):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as e:
            raise AssertionError(f"still there after {seconds} s\n{self.err}") from e

    def wait_err(self, pattern, seconds=60, after=0):
        """The first match in what it wrote to standard error behind `after` bytes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.compile(pattern, re.M).search(self.err, after)
            if found:
                return found
            if self.process.poll() is not None and not re.search(pattern, self.err, re.M):
                raise AssertionError(f"ended ({self.process.returncode}):\n{self.err}")
            time.sleep(0.02)
        raise AssertionError(f"no {pattern} within {seconds} s in:\n{self.err}")

    def pid(self):
        """The outer process id of the program itself."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children",
                  encoding="ascii") as f:
            return int(f.read().split()[0])

    def signal(self, sig):
        os.kill(self.pid(), sig)


class Testbed:
    """The hosts of one test: names, addresses, programs, faults."""

    __test__ = False

    def __init__(self, *flags):
        up = subprocess.run([SCRIPT, "up", "--owner", str(os.getpid()), *flags],
                            capture_output=True, text=True, check=False)
        assert up.returncode == 0, up.stderr
        self.folder = up.stdout.strip()
        self.shared = os.path.join(self.folder, "shared")
        self.started = 0
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        self.env.update(TESTBED=self.folder, HOME="/root", OMP_WAIT_POLICY="passive")
        self.env.pop("XDG_STATE_HOME", None)
        self.env.pop("XDG_RUNTIME_DIR", None)

    def close(self):
        self.do("down")

    def do(self, *argv):
        """A command of testbed.sh, which must succeed: its output."""
        r = subprocess.run([SCRIPT, *argv], capture_output=True, text=True, env=self.env,
                           check=False)
        assert r.returncode == 0, r.stderr
        return r.stdout

    def run(self, host, *argv, timeout=60):
        """A program on a host, to its end."""
        return subprocess.run([SCRIPT, "exec", host, *argv], capture_output=True,
                              text=True, errors="replace", env=self.env, check=False,
                              stdin=subprocess.DEVNULL, timeout=timeout)

    def start(self, host, *argv, **env):
        return Program(self, host, argv, {**self.env, **env})

    def processes(self, host, pattern=""):
        """(outer pid, command line) of the processes there that match."""
        with open(os.path.join(self.folder, f"{host}.pid"), encoding="ascii") as f:
            space = _read_link(f"/proc/{f.read().strip()}/ns/pid")
        found = []
        for p in os.listdir("/proc"):
            if p.isdigit() and _read_link(f"/proc/{p}/ns/pid") == space:
                command = _command(p)
                if command and re.search(pattern, command):
                    found.append((int(p), command))
        return sorted(found)

    def wait_gone(self, pattern, seconds=10):
        """No process that matches is left on any host."""
        end = time.monotonic() + seconds
        while True:
            left = [(h, p) for h in self.names() for p in self.processes(h, pattern)]
            if not left:
                return
            assert time.monotonic() < end, f"still there after {seconds} s: {left}"
            time.sleep(0.05)

    def names(self):
        return sorted(f[:-4] for f in os.listdir(self.folder)
                      if re.fullmatch(r"spark-\d\.pid", f))

    def addr(self, host, network="fabric"):
        return self.do("addr", host, network).strip()

    def fetch(self, host, url, body=None, timeout=60):
        """An HTTP request made on a host: (status, JSON or text)."""
        argv = ["curl", "-sS", "-m", str(timeout), "-w", "\n%{http_code}", url]
        if body is not None:
            argv += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        r = self.run(host, *argv, timeout=timeout + 10)
        assert r.returncode == 0, r.stderr
        text, status = r.stdout.rsplit("\n", 1)
        try:
            return int(status), json.loads(text)
        except ValueError:
            return int(status), text

    def inner(self, pid):
        """A process's id as it is on its host."""
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return int(re.search(r"^NSpid:.*\s(\d+)$", f.read(), re.M).group(1))


def kill(pid):
    os.kill(pid, signal.SIGKILL)
