# SPDX-License-Identifier: Apache-2.0
"""Plans of several hosts: what `tandem plan` knows of each, and that what does not fit on
one of them is refused before a rank runs."""
import json
import re
import shutil
import time

import pytest
from conftest import TANDEM
from serving import ALL, MODEL, Served

MARK = "started"  # in the shared folder: mpirun has been started for more than its version
MIB = 1 << 20


def mark_starts(bed):
    """mpirun of the first host leaves a mark when it starts something."""
    mpirun = shutil.which("mpirun")
    r = bed.run("spark-1", "sh", "-c", f"""
        cp -L --remove-destination {mpirun} {mpirun}.real
        rm {mpirun}
        printf '#!/bin/sh\\n[ "$1" = --version ] || touch {bed.shared}/{MARK}\\n\
exec -a {mpirun} {mpirun}.real "$@"\\n' | sed 's,#!/bin/sh,#!/bin/bash,' >{mpirun}
        chmod 755 {mpirun}""")
    assert r.returncode == 0, r.stderr


def started(bed):
    return bed.run("spark-1", "test", "-e", f"{bed.shared}/{MARK}").returncode == 0


def hosts_of(bed):
    return ",".join(bed.addr(h) for h in bed.names())


def check_refusal(text):
    """The report of a plan that does not fit on the second host; its fix."""
    r = {k: re.search(rf"^{k} +(.*)$", text, re.M) for k in ("error", "cause", "fix")}
    assert all(r.values()), text
    assert re.search(r"rank 1 does not fit on spark-2: .* needs [0-9.]+ MiB for one sequence",
                     r["error"].group(1)), text
    assert re.search(r"the control group .* allows [0-9.]+ MiB, [0-9.]+ MiB of them used",
                     r["cause"].group(1)), text
    return r["fix"].group(1)


@pytest.mark.parametrize("verb", ["serve", "run", "bench"])
def test_refused_before_mpi_starts(bed, verb):
    mark_starts(bed)
    bed.do("memory", "spark-2", str(150 * MIB))
    options = {"serve": ["--port", "8000"], "run": ["hello"],
               "bench": ["--batch", "64", "--prompt", "4000"]}[verb]
    r = bed.run("spark-1", TANDEM, verb, MODEL, *options, "--hosts", hosts_of(bed))
    assert r.returncode == 1, r.stdout + r.stderr
    check_refusal(r.stderr)
    assert not started(bed)
    bed.wait_gone(ALL)


def test_the_nearest_plan_fits(bed):
    mark_starts(bed)
    bed.do("memory", "spark-2", str(270 * MIB))
    s = Served(bed, "--max-num-seqs", "256", "--max-model-len", "4096")
    assert s.program.wait(30) == 1, s.err
    fix = check_refusal(s.err)
    assert not started(bed)
    seqs = re.search(r"--max-num-seqs ([0-9]+) fits", fix)
    assert seqs, fix
    bed.wait_gone(ALL)
    # what other programs there use changes by some MiB meanwhile
    fewer = str(int(seqs.group(1)) * 7 // 8)
    s = Served(bed, "--max-num-seqs", fewer, "--max-model-len", "4096")
    s.ready()
    assert s.ask()
    assert s.stop() == 0


# ---- tandem plan -------------------------------------------------------------------------


def plan(bed, *options):
    """(seconds, its output, its report of an error)"""
    began = time.monotonic()
    r = bed.run("spark-1", TANDEM, "plan", MODEL, "--hosts", hosts_of(bed), *options)
    assert (r.returncode == 0) == (r.stderr == ""), r.stderr
    return time.monotonic() - began, r.stdout, r.stderr


def test_each_host_has_its_own_numbers(bed):
    bed.do("memory", "spark-2", str(2048 * MIB))
    _, text, _ = plan(bed, "--json")
    d = json.loads(text)
    assert [h["host"] for h in d["hosts"]] == ["spark-1", "spark-2"]
    assert all(h["known"] and h["cores"] == 1 and h["gpus"] == 0 for h in d["hosts"]), d
    assert d["ranks"][1]["host_bytes"] == 2048 * MIB < d["ranks"][0]["host_bytes"]
    _, text, _ = plan(bed)
    assert re.search(r"^spark-2 +1 core, 2\.0 GiB|^spark-2 +1 core, 1\.9 GiB", text, re.M), text
    assert re.search(r"^network +not looked at", text, re.M)
    bed.do("memory", "spark-2", str(150 * MIB))
    check_refusal(plan(bed)[2])


@pytest.mark.parametrize("harm", ["blackhole", "cut"])
def test_a_host_that_does_not_answer(bed, harm):
    bed.do(harm, "spark-2")
    seconds, text, _ = plan(bed)
    assert re.search(r"^192\.168\.200\.13 not known: .*; taken to be like spark-1$", text,
                     re.M), text
    assert seconds < 6, seconds  # 2, and time for a busy machine


def test_a_host_without_the_program(bed):
    bed.run("spark-2", "rm", TANDEM)
    _, text, _ = plan(bed)
    assert re.search(r"not known: this build of tandem \(\w+\) is not on", text), text
