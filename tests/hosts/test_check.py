# SPDX-License-Identifier: Apache-2.0
"""tandem check between pretended hosts: the network that works, and every refusal."""
import json
import os
import time

import pytest
from conftest import TANDEM

FABRIC, MGMT = "192.168.200.0/24", "10.1.230.0/24"
MODEL = os.path.abspath("models/lexicon")
ROUTED = [("--mgmt", "routed", "--names", "fabric")]


def check(bed, *args, hosts=None, program=TANDEM):
    """The report of a check from spark-1, by addresses of the fabric."""
    hosts = hosts or ",".join(bed.addr(h) for h in bed.names())
    began = time.monotonic()
    r = bed.run("spark-1", program, "check", "--json", "--hosts", hosts, *args)
    seconds = time.monotonic() - began
    assert r.stdout.startswith("{"), (r.stdout, r.stderr)
    report = json.loads(r.stdout)
    assert report["ok"] == (r.returncode == 0), r.stderr
    assert report["seconds"] < 10 and seconds < 20, report["lines"]
    return report


def lines(report, verdict):
    return [x for x in report["lines"] if x["verdict"] == verdict]


def refusal(report, code):
    """The first failure, which has to have this code."""
    failures = lines(report, "fail")
    assert failures, report["lines"]
    assert failures[0]["code"] == code, failures[0]
    assert failures[0]["why"] and failures[0]["fix"]
    return failures[0]


def mgmt(bed):
    return ",".join(bed.addr(h, "mgmt") for h in bed.names())


def nft(bed, host, rule):
    if bed.run(host, "nft", "--version").returncode != 0:
        pytest.skip("needs nft")
    bed.do("firewall", host, rule)


# ---- it works ------------------------------------------------------------------------


@pytest.mark.parametrize("bed", [("--mgmt", m) for m in
                                 ("isolated", "blackhole", "noroute")], indirect=True)
def test_the_fabric_is_found_by_measurement(bed):
    report = check(bed, MODEL)
    assert report["network"] == FABRIC
    assert len(report["links"]) == 2
    for link in report["links"]:
        assert link["latency_us"] > 0 and link["gbytes"] > 0 and link["path_mtu"] == 1500
    for host in report["hosts"]:
        assert host["address"].startswith("192.168.200.") and host["iface"] == "fabric"
        assert host["pins"]["OMPI_MCA_btl_tcp_if_include"] == FABRIC
        assert host["pins"]["NCCL_SOCKET_IFNAME"] == "=fabric"


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_the_network_can_be_named(bed):
    assert check(bed, "--fabric", "mgmt")["network"] == MGMT
    assert check(bed, "--fabric", FABRIC, hosts="spark-1,spark-2")["network"] == FABRIC
    line = refusal(check(bed, "--fabric", "10.9.0.0/16"), "no-network")
    assert "192.168.200.13" in line["why"]


@pytest.mark.parametrize("bed", [("--hosts", "3")], indirect=True)
def test_three_hosts_meet_in_pairs(bed):
    report = check(bed)
    assert len(report["links"]) == 6
    assert all(x["gbytes"] > 0 for x in report["links"])


def test_this_machine_becomes_the_first(bed):
    hosts = f"{bed.addr('spark-2')},{bed.addr('spark-1')}"
    assert check(bed, hosts=hosts)["hosts"][0]["label"] == "spark-1"


def test_text_has_a_line_for_each_pair(bed):
    hosts = ",".join(bed.addr(h) for h in bed.names())
    r = bed.run("spark-1", TANDEM, "check", "--hosts", hosts)
    assert r.returncode == 0, r.stdout
    assert f"network {FABRIC}" in r.stdout
    assert "spark-1 192.168.200.12 -> spark-2 192.168.200.13" in r.stdout


# ---- names and ssh -------------------------------------------------------------------


def test_a_name_that_leads_nowhere(bed):
    line = refusal(check(bed, hosts="spark-1,spark-2"), "bad-name")
    assert "10.1.230.181" in line["what"] and "No route" in line["why"]
    line = refusal(check(bed, hosts="spark-1,spark-7"), "bad-name")
    assert "resolve" in line["what"]


def test_a_name_that_leads_to_loopback(bed):
    bed.run("spark-1", "sh", "-c", "echo 127.0.1.1 spark-1 spark-2 >/etc/hosts")
    r = bed.run("spark-1", TANDEM, "check", "--hosts", "spark-1,spark-2")
    assert r.returncode == 1
    assert "both this machine" in r.stderr and "127.0.1.1" in r.stderr


@pytest.mark.parametrize("bed", [("--names", "loopback")], indirect=True)
def test_an_own_name_on_loopback_is_a_warning(bed):
    report = check(bed)
    warned = [x for x in lines(report, "warn") if x["topic"] == "name"]
    assert {x["host"] for x in warned} == {"spark-1", "spark-2"}


def test_this_machine_has_to_be_among_them(bed):
    r = bed.run("spark-1", TANDEM, "check", "--hosts", "192.168.200.13")
    assert r.returncode == 1 and "not among the hosts" in r.stderr
    r = bed.run("spark-1", TANDEM, "check", "--hosts", "spark-1,root@spark-2")
    assert r.returncode == 2 and "--ssh" in r.stderr


def test_ssh_fails_at_each_step(bed):
    bed.run("spark-2", "mv", "/root/.ssh/authorized_keys", "/root/.ssh/none")
    assert "login" in refusal(check(bed), "ssh")["what"]
    bed.run("spark-1", "mv", "/root/.ssh/known_hosts", "/root/.ssh/none")
    assert "host key" in refusal(check(bed), "ssh")["what"]
    for pid, _ in bed.processes("spark-2", "sshd"):
        os.kill(pid, 9)
    assert "no sshd" in refusal(check(bed), "ssh")["what"]
    assert "cannot be started" in refusal(check(bed, "--ssh", "no-such-ssh"), "ssh")["what"]


@pytest.mark.parametrize("bed", [("--mgmt", "routed")], indirect=True)
def test_ssh_knows_the_name_but_not_the_address(bed):
    bed.run("spark-1", "sed", "-i", "s/,192[^ ]*//", "/root/.ssh/known_hosts")
    report = check(bed, "--fabric", "fabric", hosts="spark-1,spark-2")
    assert report["network"] == FABRIC
    line = refusal(report, "ssh")
    assert "192.168.200.13" in line["what"] and "host key" in line["what"]
    assert check(bed, "--fabric", "mgmt", hosts=mgmt(bed))["ok"]


def test_a_host_that_is_dead(bed):
    bed.do("blackhole", "spark-2")
    refusal(check(bed), "ssh")


# ---- the program ---------------------------------------------------------------------


def put(bed, host, path, text, mode="755"):
    script = "rm -f \"$1\"; mkdir -p \"$(dirname \"$1\")\"; printf '%s' \"$2\" >\"$1\"; " \
        "chmod $3 \"$1\""
    r = bed.run(host, "sh", "-c", script, "sh", path, text, mode)
    assert r.returncode == 0, r.stderr


def test_a_program_that_cannot_run_there(bed):
    bed.run("spark-2", "rm", TANDEM)
    assert "is not there" in refusal(check(bed), "remote-program")["why"]
    put(bed, "spark-2", TANDEM, "#!/bin/sh\necho 'tandem 0.0.1 (another)'\n")
    assert "another" in refusal(check(bed), "remote-program")["why"]
    put(bed, "spark-2", TANDEM, "#!/bin/sh\n", "644")
    assert "ermission" in refusal(check(bed), "remote-program")["why"]
    put(bed, "spark-2", TANDEM, "\x7fELF of another kind")
    assert TANDEM in refusal(check(bed), "remote-program")["why"]


def test_an_agent_that_stands_still(bed):
    version = bed.run("spark-1", TANDEM, "--version").stdout.strip()
    build = version.split("(")[1].rstrip(")")
    hello = json.dumps({"tandem": 1, "build": build}, separators=(",", ":"))
    put(bed, "spark-2", TANDEM, f"#!/bin/sh\n[ $1 = agent ] || exec echo '{version}'\n"
        f"echo '{hello}'\nexec sleep 60\n")
    refusal(check(bed), "timeout")


def test_a_bundle_is_copied_once(bed):
    version = bed.run("spark-1", TANDEM, "--version").stdout.strip()
    build = version.split("(")[1].rstrip(")")
    bed.run("spark-2", "rm", TANDEM)
    bed.run("spark-1", "sh", "-c", f"mkdir -p /opt/t/bin && cp {TANDEM} /opt/t/bin && "
            f"echo {build} >/opt/t/build-id")
    report = check(bed, program="/opt/t/bin/tandem")
    there = f"/root/.cache/tandem/{build}/bin/tandem"
    assert report["hosts"][1]["facts"]["program"] == there
    bed.run("spark-1", "rm", "/opt/t/build-id")  # no bundle any more, but it is there
    assert check(bed, program="/opt/t/bin/tandem")["ok"]


def test_open_mpi_is_missing(bed):
    orted = check(bed)["hosts"][1]["facts"]["orted"]
    bed.run("spark-2", "rm", orted)
    assert "orted" in refusal(check(bed), "no-mpi")["why"]


# ---- networks ------------------------------------------------------------------------


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_a_fabric_that_is_down(bed):
    bed.do("cut", "spark-2")
    report = check(bed, hosts=mgmt(bed))
    assert report["network"] == MGMT
    assert any("down" in x["what"] for x in lines(report, "warn"))
    line = refusal(check(bed, "--fabric", FABRIC, hosts=mgmt(bed)), "no-network")
    assert "carrier" in line["why"]


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_a_fabric_that_swallows_everything(bed):
    bed.do("blackhole", "spark-2")
    line = refusal(check(bed, "--fabric", "fabric", hosts=mgmt(bed)), "no-network")
    assert "cannot reach each other" in line["what"]


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_one_direction_only(bed):
    nft(bed, "spark-2", "iifname fabric tcp flags syn / syn,ack")
    line = refusal(check(bed, "--fabric", "fabric", hosts=mgmt(bed)), "one-way")
    assert "spark-1 cannot reach spark-2" in line["what"]
    assert check(bed, hosts=mgmt(bed))["network"] == MGMT


@pytest.mark.parametrize("ports", ["46000-46031", "46100-46199"])
def test_a_firewall_on_the_ports(bed, ports):
    nft(bed, "spark-2", f"tcp dport {ports}")
    line = refusal(check(bed), "firewall")
    assert "46000 to 46199" in line["fix"] and "spark-2" in line["fix"]


def test_packets_of_different_size(bed):
    bed.run("spark-1", "ip", "link", "set", "fabric", "mtu", "9000")
    line = refusal(check(bed), "mtu")
    assert "9000" in line["what"] and "1500" in line["what"]


def test_a_link_that_carries_little(bed):
    slow = ("tc", "qdisc", "add", "dev", "fabric", "root", "tbf", "rate", "50mbit", "burst",
            "64kb", "latency", "50ms")
    if bed.run("spark-1", *slow).returncode != 0:
        pytest.skip("needs the tbf queue of the kernel")
    line = refusal(check(bed), "slow-link")
    assert "says 10.0 Gbit/s and carries 0.0" in line["what"]
    report = check(bed, "--fabric", "fabric")  # asked for: taken as it is
    assert report["network"] == FABRIC and lines(report, "warn")


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_an_address_that_two_have(bed):
    bed.run("spark-2", "ip", "addr", "add", bed.addr("spark-1") + "/24", "dev", "fabric")
    line = refusal(check(bed, hosts=mgmt(bed)), "duplicate-address")
    assert "192.168.200.12" in line["what"]


@pytest.mark.parametrize("bed", ROUTED, indirect=True)
def test_a_bridge_of_containers_is_no_network(bed):
    for host in bed.names():
        bed.run(host, "ip", "link", "add", "docker0", "type", "bridge")
        bed.run(host, "ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
        bed.run(host, "ip", "link", "set", "docker0", "up")
    assert check(bed)["ok"]  # the same address on all of them, and nobody minds
    line = refusal(check(bed, "--fabric", "docker0"), "no-network")
    assert "a bridge of containers" in line["why"]


# ---- clock and model -----------------------------------------------------------------


def test_a_clock_that_is_an_hour_off(bed):
    bed.do("clock", "spark-2", "3600")
    line = refusal(check(bed), "clock")
    assert "3600 s ahead" in line["what"] and line["host"] == "spark-2"


def test_models_that_differ(bed):
    bed.run("spark-2", "sh", "-c", f"echo ' ' >>{MODEL}/config.json")
    assert "config.json" in refusal(check(bed, MODEL), "model-differs")["why"]
    shard = bed.run("spark-1", "sh", "-c", f"cd {MODEL} && ls *.safetensors | head -n 1"
                    ).stdout.strip()
    bed.run("spark-2", "truncate", "-s", "1M", f"{MODEL}/{shard}")
    assert shard in refusal(check(bed, MODEL), "model-differs")["why"]
    bed.run("spark-2", "rm", "-r", MODEL)
    assert "missing" in refusal(check(bed, MODEL), "model-differs")["why"]
