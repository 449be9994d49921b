# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm between the pretended hosts: contrib/tandem.sbatch as a batch job, and
`run` within an allocation. Skipped where Slurm is not installed (slurm-wlm, munge)."""
import os
import re
import shutil
import time

import pytest
from conftest import TANDEM, kill
from serving import ALL, MODEL, URL, rank

SBATCH = os.path.abspath("contrib/tandem.sbatch")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol")

pytestmark = [
    pytest.mark.skipif(
        not all(shutil.which(p, path="/usr/sbin:/usr/bin") for p in PROGRAMS),
        reason="needs Slurm: slurm-wlm, munge"),
    pytest.mark.parametrize("bed", [("--names", "fabric", "--spread")], indirect=True)]

CONF = """
ClusterName=pretended
SlurmctldHost=spark-1(192.168.200.12)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
ReturnToService=2
KillWait=10
NodeName=spark-1 NodeAddr=192.168.200.12 CPUs={cores} RealMemory=1000
NodeName=spark-2 NodeAddr=192.168.200.13 CPUs={cores} RealMemory=1000
PartitionName=all Nodes=ALL Default=YES State=UP
"""

START = """
set -e
mkdir -p /run/munge /var/log/munge /var/lib/munge /var/spool/slurmctld /var/spool/slurmd /etc/slurm
[ -s /etc/munge/munge.key ] || cp "$1/munge.key" /etc/munge/munge.key
chown -R munge: /run/munge /var/log/munge /var/lib/munge /etc/munge
chmod 755 /run/munge
setpriv --reuid munge --regid munge --clear-groups /usr/sbin/munged
cp "$1/slurm.conf" /etc/slurm/slurm.conf
rm -f /etc/slurm/cgroup.conf
[ "$(hostname)" != spark-1 ] || /usr/sbin/slurmctld
/usr/sbin/slurmd -N "$(hostname)"
"""


@pytest.fixture
def slurm(bed):
    with open(f"{bed.shared}/slurm.conf", "w", encoding="ascii") as f:
        f.write(CONF.format(cores=os.cpu_count()))
    with open(f"{bed.shared}/munge.key", "wb") as f:
        f.write(os.urandom(128))
    for host in bed.names():
        r = bed.run(host, "bash", "-c", START, "bash", bed.shared)
        assert r.returncode == 0, r.stderr
    end = time.monotonic() + 30
    while bed.run("spark-1", "sinfo", "-h", "-o", "%D %T").stdout.strip() != "2 idle":
        assert time.monotonic() < end, logs(bed)
        time.sleep(0.1)
    return bed


def logs(bed):
    return "\n".join(bed.run(h, "sh", "-c", "tail -n 20 /run/slurm*.log").stdout
                     for h in bed.names())


def test_run_within_an_allocation(slurm):
    r = slurm.run("spark-1", "salloc", "-N", "2", "--ntasks-per-node=1", "--exclusive",
                  TANDEM, "run", MODEL, "What is a harp?", "--hosts", "slurm",
                  "--temperature", "0", timeout=90)
    assert r.returncode == 0, r.stderr + logs(slurm)
    assert "chordophone" in r.stdout
    slurm.wait_gone(ALL)


def submit(bed):
    """The batch file, adapted as its comment says: the job's number."""
    with open(SBATCH, encoding="utf-8") as f:
        text = f.read()
    for name, value in (("tandem", TANDEM), ("model", os.path.abspath(MODEL))):
        text, n = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
        assert n == 1, name
    path = f"{bed.shared}/tandem.sbatch"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    r = bed.run("spark-1", "sbatch", "--parsable", f"--cpus-per-task={os.cpu_count()}",
                f"--chdir={bed.shared}", path)
    assert r.returncode == 0, r.stderr
    return r.stdout.strip()


def output(bed, job):
    try:
        with open(f"{bed.shared}/tandem-{job}.log", encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


def wait_output(bed, job, pattern, count=1, seconds=60):
    end = time.monotonic() + seconds
    while len(re.findall(pattern, output(bed, job), re.M)) < count:
        assert time.monotonic() < end, output(bed, job) + logs(bed)
        time.sleep(0.05)


def wait_state(bed, job, state, seconds=60):
    end = time.monotonic() + seconds
    shown = ""
    while f"JobState={state}" not in shown:
        assert time.monotonic() < end, shown + output(bed, job) + logs(bed)
        shown = bed.run("spark-1", "scontrol", "show", "job", job).stdout
        time.sleep(0.1)


def process(bed, host, what):
    return bed.processes(host, rf"^\S*{what} ")[0][0]


def parent(pid):
    """Its command line."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        pid = re.search(r"^PPid:\s*(\d+)$", f.read(), re.M).group(1)
    with open(f"/proc/{pid}/cmdline", encoding="ascii") as f:
        return f.read().replace("\0", " ")


def cores_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return re.search(r"^Cpus_allowed_list:\s*(\S+)$", f.read(), re.M).group(1)


def answer(bed):
    status, reply = bed.fetch("spark-1", f"{URL}/v1/chat/completions", {
        "model": "lexicon", "temperature": 0, "max_tokens": 24, "seed": 1,
        "messages": [{"role": "user", "content": "What is a harp?"}]})
    assert status == 200, reply
    return reply["choices"][0]["message"]["content"]


def test_the_batch_file(slurm):
    job = submit(slurm)
    wait_output(slurm, job, "^ready ")
    want = answer(slurm)
    started_by = parent(process(slurm, "spark-2", "orted"))
    assert "slurmstepd" in started_by, started_by
    all_cores = cores_of(process(slurm, "spark-1", "tandem serve"))
    assert cores_of(process(slurm, "spark-2", "orted")) == all_cores
    kill(rank(slurm, "spark-2"))
    wait_output(slurm, job, "^ready ", 2)
    assert "rank 1 on spark-2 was killed by signal 9" in output(slurm, job)
    assert answer(slurm) == want
    # as when its time is nearly up
    slurm.run("spark-1", "scancel", "--batch", "--signal=TERM", job)
    wait_state(slurm, job, "COMPLETED")
    slurm.wait_gone(ALL)


def test_a_cancelled_job_leaves_nothing(slurm):
    job = submit(slurm)
    wait_output(slurm, job, "^ready ")
    slurm.run("spark-1", "scancel", job)
    wait_state(slurm, job, "CANCELLED")
    slurm.wait_gone(ALL)
