# SPDX-License-Identifier: Apache-2.0
"""Hosts in networks of their own with a router between them: used when nothing that they
share works."""
import json
import re

import pytest
from conftest import TANDEM
from serving import ALL, RANKS, Served, rank

ROUTED = pytest.mark.parametrize("bed", [("--routed",)], indirect=True)


def check(bed):
    hosts = ",".join(bed.addr(h) for h in bed.names())
    return bed.run("spark-1", TANDEM, "check", "--json", "--hosts", hosts)


@ROUTED
def test_serves_over_a_router(bed):
    r = check(bed)
    assert r.returncode == 0, r.stdout + r.stderr
    assert json.loads(r.stdout)["network"] == "192.168.200.0/23"
    s = Served(bed)
    s.ready()
    assert re.search(r"^fabric  spark-1 192.168.200.12  <->  spark-2 192.168.201.13 ", s.err,
                     re.M), s.err
    want = s.ask()
    at = len(s.err)
    bed.run("spark-2", "kill", "-9", str(bed.inner(rank(bed, "spark-2"))))
    s.ready(60, at)  # over the same network
    assert s.ask() == want
    assert s.stop() == 0
    bed.wait_gone(f"{RANKS}|{ALL}")


@pytest.mark.parametrize("bed", [("--routed", "--mgmt", "routed")], indirect=True)
def test_a_shared_network_is_preferred(bed):
    r = check(bed)
    assert r.returncode == 0, r.stdout + r.stderr
    assert json.loads(r.stdout)["network"] == "10.1.230.0/24"


@ROUTED
def test_no_route_back(bed):
    bed.run("spark-2", "ip", "route", "del", "192.168.0.0/16")
    r = check(bed)
    assert r.returncode == 1
    text = r.stdout + r.stderr
    assert "spark-2" in text or "192.168.201.13" in text, text
