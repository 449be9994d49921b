# SPDX-License-Identifier: Apache-2.0
"""Ranks that never join: another MPI on their host, or stopped before MPI knows them."""
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import TANDEM
from serving import ALL, RANKS, Served

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("name,says", [("Another MPI 1.0", "has another MPI"),
                                       ("Open MPI v5.0.11", "has an Open MPI that tandem")])
def test_a_rank_of_another_mpi(bed, name, says):
    linked = subprocess.run(["ldd", os.path.join(os.path.dirname(TANDEM),
                                                 "libtandem-mpi.so")],
                            capture_output=True, text=True, check=True).stdout
    library = re.search(r"=> (\S+/libmpi\.so\S*)", linked).group(1)
    other = f"{bed.shared}/other.so"
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", other,
                    f'-DNAME="{name}"', f"{HERE}/other_mpi.c"], check=True)
    bed.run("spark-2", "sh", "-c", f"rm {library} && cp {other} {library}")
    s = Served(bed)
    assert s.program.wait(30) == 1
    r = s.report()
    assert r["error"].startswith(f"spark-2 {says}") and name in r["cause"], s.err
    bed.wait_gone(ALL)


def test_a_rank_that_is_stopped_before_it_joins(bed):
    s = Served(bed)
    s.program.wait_err(r"^fabric ")
    end = time.monotonic() + 20
    found = []
    while not found:
        assert time.monotonic() < end
        found = [p for p, c in bed.processes("spark-2", RANKS)
                 if "--world" in c and not re.search("mpirun|ssh|orted", c)]
    os.kill(found[0], signal.SIGSTOP)
    r = s.lost(30)
    assert re.match("rank 1 on spark-2 did not join within|the ranks did not find each other "
                    "within", r["error"]), s.err
    assert "stopped" in r["cause"], s.err
    assert s.stop() == 0
