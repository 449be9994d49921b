# SPDX-License-Identifier: Apache-2.0
"""The testbed itself: networks, faults, limits, and that nothing of it is left."""
import glob
import os
import signal
import subprocess
import time

import pytest
from conftest import SCRIPT, Testbed, kill

SSH = ("ssh", "-o", "ConnectTimeout=2")


def test_only_the_fabric_leads_to_the_other_host(bed):
    r = bed.run("spark-1", *SSH, bed.addr("spark-2"), "hostname")
    assert r.stdout == "spark-2\n", r.stderr
    r = bed.run("spark-1", *SSH, "spark-2", "hostname")
    assert r.returncode == 255 and "spark-2" in r.stderr


@pytest.mark.parametrize("bed", [("--mgmt", "routed", "--names", "loopback")],
                         indirect=True)
def test_names_and_routes_can_be_otherwise(bed):
    assert bed.run("spark-1", *SSH, bed.addr("spark-2", "mgmt"), "hostname").returncode == 0
    assert bed.run("spark-2", "getent", "ahostsv4", "spark-2").stdout.startswith("127.0.1.1")


def test_cut_and_mended(bed):
    address = bed.addr("spark-2")
    bed.do("cut", "spark-2")
    assert bed.run("spark-1", *SSH, address, "true").returncode == 255
    bed.do("mend", "spark-2")
    end = time.monotonic() + 20  # until the kernel asks for the address again
    while bed.run("spark-1", *SSH, address, "true").returncode != 0:
        assert time.monotonic() < end


def test_firewall_drops_what_it_names(bed):
    if bed.run("spark-1", "nft", "--version").returncode != 0:
        pytest.skip("needs nft")
    bed.do("firewall", "spark-2", "tcp dport 22")
    assert bed.run("spark-1", *SSH, bed.addr("spark-2"), "true").returncode == 255
    bed.do("firewall", "spark-2", "")
    assert bed.run("spark-1", *SSH, bed.addr("spark-2"), "true").returncode == 0


def test_hosts_share_no_files(bed):
    bed.run("spark-1", "sh", "-c", "echo x >/etc/only-here")
    assert bed.run("spark-2", "test", "-e", "/etc/only-here").returncode == 1
    assert not os.path.exists("/etc/only-here")


def test_one_host_has_another_time(bed):
    bed.do("clock", "spark-2", "3600")
    there = int(bed.run("spark-2", "date", "+%s").stdout)
    assert abs(there - time.time() - 3600) < 60


def test_one_host_has_less_memory(bed):
    if not glob.glob("/sys/fs/cgroup/**/" + os.path.basename(bed.folder) + "-spark-2/"
                     "memory*", recursive=True):
        pytest.skip("no memory group here")
    bed.do("memory", "spark-2", str(64 << 20))
    big = ("python3", "-c", "x = bytearray(200 << 20)")
    assert bed.run("spark-2", *big).returncode in (137, -signal.SIGKILL)
    assert bed.run("spark-1", *big).returncode == 0


def test_delay_in_each_direction(bed):
    ssh = bed.start("spark-1", *SSH, bed.addr("spark-2"), "true")
    ssh.wait()
    bed.do("delay", "100000")
    began = time.monotonic()
    assert bed.run("spark-1", *SSH, bed.addr("spark-2"), "true").returncode == 0
    assert time.monotonic() - began > 1  # a dozen trips at 0.1 s


def left_of(folder):
    name = os.path.basename(folder)
    groups = glob.glob(f"/sys/fs/cgroup/*{name}*") + glob.glob(f"/sys/fs/cgroup/*/*{name}*")
    return [p for p in groups + [folder] if os.path.exists(p)]


def test_goes_with_its_owner():
    code = (f"import subprocess, time; print(subprocess.run(['{SCRIPT}', 'up'],"
            "capture_output=True, text=True).stdout.strip(), flush=True); time.sleep(60)")
    owner = subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE, text=True)
    folder = owner.stdout.readline().strip()
    assert os.path.isdir(folder)
    owner.kill()
    owner.wait()
    end = time.monotonic() + 20
    while left_of(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left_of(folder)


def test_a_killed_keeper_leaves_no_process():
    b = Testbed()
    pids = [p for h in b.names() for p, _ in b.processes(h)]
    with open(os.path.join(b.folder, "keeper.pid"), encoding="ascii") as f:
        kill(int(f.read()))
    end = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{p}") for p in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.05)
    Testbed().close()  # takes away what it left
    assert not left_of(b.folder)
