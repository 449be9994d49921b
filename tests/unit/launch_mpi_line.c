/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of mpirun, as data: what must be on it for one host, for several, for
 * Slurm; which mpirun is taken; memory that runs out.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "base/mem.h"
#include "launch/mpi_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char program[] = "/opt/tandem/bin/tandem", verb[] = "worker", model[] = "/m";
static char *command[] = {program, verb, model, NULL};

static struct td_cluster_host hosts[2];
static struct td_facts facts[2];

static struct td_cluster cluster_of(int n)
{
    static const char *const address[] = {"192.168.200.12", "192.168.200.13"};
    memset(hosts, 0, sizeof(hosts));
    memset(facts, 0, sizeof(facts));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(hosts[i].name, sizeof(hosts[i].name), "spark-%d", i + 1);
        (void)snprintf(hosts[i].address, sizeof(hosts[i].address), "%s", address[i]);
        (void)snprintf(hosts[i].iface, sizeof(hosts[i].iface), "fab%d", i);
        hosts[i].facts = &facts[i];
    }
    (void)snprintf(facts[1].program, sizeof(facts[1].program), "/home/x/tandem");
    struct td_cluster c = {.n = n, .hosts = hosts};
    if (n > 1)
        (void)snprintf(c.cidr, sizeof(c.cidr), "192.168.200.0/24");
    return c;
}

/* The words, with a space between and around each. */
static char *line_of(const struct td_mpi_job *job)
{
    static char text[8192];
    struct td_argv a = {0};
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_mpi_line(job, &a, &err), TD_OK);
    size_t at = 0;
    text[at++] = ' ';
    for (size_t i = 0; i < a.n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", a.v[i]);
    assert_null(a.v[a.n]);
    td_argv_release(&a);
    return text;
}

static void assert_has(const char *line, const char *words)
{
    if (!strstr(line, words))
        fail_msg("no '%s' in:%s", words, line);
}

static void assert_not(const char *line, const char *words)
{
    if (strstr(line, words))
        fail_msg("'%s' in:%s", words, line);
}

static void one_host(void **state)
{
    struct td_cluster c = cluster_of(1);
    struct td_mpi_job job = {.mpirun = "/usr/bin/mpirun",
                             .cluster = &c,
                             .ranks = 4,
                             .tagged = true,
                             .command = command};
    (void)state;
    const char *line = line_of(&job);
    assert_has(line, " /usr/bin/mpirun --bind-to none --tag-output ");
    assert_has(line, " -np 4 -H localhost:4 /opt/tandem/bin/tandem worker /m ");
    assert_has(line, " --mca btl self,vader ");
    assert_has(line, " --mca oob_tcp_if_include lo ");
    assert_has(line, " --mca pml ob1 ");
    assert_not(line, "ssh");
    assert_not(line, "rsh");
    assert_not(line, " -x ");
    assert_not(line, "root");
    assert_not(line, " : ");
    job.root = true;
    assert_has(line_of(&job), " --allow-run-as-root ");
    job.tagged = false;
    assert_not(line_of(&job), " --tag-output ");
    assert_int_equal(td_mpi_host_of(&job, 3), 0);
}

static void several_hosts(void **state)
{
    struct td_cluster c = cluster_of(2);
    static const char *const env[] = {"TD_TEST_SET", "TD_TEST_UNSET", NULL};
    struct td_mpi_job job = {.mpirun = "mpirun",
                             .cluster = &c,
                             .ranks = 4,
                             .ssh = "ssh -p 2222",
                             .env = env,
                             .command = command};
    (void)state;
    assert_int_equal(setenv("TD_TEST_SET", "1", 1), 0);
    const char *line = line_of(&job);
    assert_has(line, " --mca plm_rsh_agent ssh -p 2222 ");
    assert_has(line, " -o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=1 ");
    assert_has(line, " --mca oob_tcp_if_include 192.168.200.0/24 ");
    assert_has(line, " --mca btl_tcp_if_include 192.168.200.0/24 ");
    assert_has(line, " --mca oob_tcp_dynamic_ipv4_ports 46000-46031 ");
    assert_has(line, " --mca btl_tcp_port_min_v4 46100 ");
    assert_has(line, " --mca btl_tcp_port_range_v4 100 ");
    assert_has(line, " --mca btl self,vader,tcp ");
    assert_has(line, " --mca oob_tcp_keepalive_time 1 ");
    assert_has(line, " --mca odls_base_sigkill_timeout 0 ");
    assert_has(line, " -np 2 -H 192.168.200.12:2 -x ");
    assert_has(line, " : -np 2 -H 192.168.200.13:2 -wdir / ");
    assert_has(line, " -x NCCL_SOCKET_IFNAME==fab0 ");
    assert_has(line, " -x NCCL_SOCKET_IFNAME==fab1 ");
    assert_has(line, " -x TD_TEST_SET ");
    assert_not(line, "TD_TEST_UNSET");
    assert_not(line, "OMPI_MCA");
    assert_not(line, "spark-");
    /* Each host's own program; the arguments are the same. */
    assert_has(line, " /opt/tandem/bin/tandem worker /m : ");
    assert_has(line, " /home/x/tandem worker /m ");
    for (int r = 0; r < 4; r++)
        assert_int_equal(td_mpi_host_of(&job, r), r / 2);
    assert_int_equal(unsetenv("TD_TEST_SET"), 0);
}

static void slurm(void **state)
{
    struct td_cluster c = cluster_of(2);
    struct td_mpi_job job = {.mpirun = "mpirun",
                             .cluster = &c,
                             .ranks = 2,
                             .slurm = true,
                             .command = command};
    (void)state;
    const char *line = line_of(&job);
    assert_has(line, " --mca plm slurm ");
    assert_has(line, " -H spark-1:1 ");
    assert_has(line, " -H spark-2:1 ");
    assert_has(line, " --mca btl_tcp_if_include 192.168.200.0/24 ");
    assert_not(line, "ssh");
    job.slurm = false; /* an allocation around us is not used */
    assert_has(line_of(&job), " --mca plm ^slurm --mca ras ^slurm ");
}

/* Ranks of one host need no ssh, which may not be there. */
static void alone(void **state)
{
    struct td_cluster c = cluster_of(1);
    struct td_mpi_job job = {
        .mpirun = "mpirun", .cluster = &c, .ranks = 2, .command = command};
    (void)state;
    const char *line = line_of(&job);
    assert_has(line, " --mca plm isolated ");
    assert_not(line, "ssh");
}

static void no_memory(void **state)
{
    struct td_cluster c = cluster_of(2);
    struct td_mpi_job job = {
        .mpirun = "mpirun", .cluster = &c, .ranks = 2, .command = command};
    (void)state;
    for (int n = 1;; n++) {
        struct td_argv a = {0};
        struct td_error err;
        td_error_init(&err);
        td_mem_fail_at(n);
        enum td_status s = td_mpi_line(&job, &a, &err);
        td_mem_fail_at(0);
        assert_true(s == TD_OK || (s == TD_E_NOMEM && err.code == TD_E_NOMEM));
        td_argv_release(&a);
        if (s == TD_OK)
            return;
        assert_true(n < 1000);
    }
}

static void versions(void **state)
{
    struct td_error err;
    (void)state;
    assert_int_equal(td_mpi_version("mpirun (Open MPI) 4.1.4\n\nReport bugs\n", NULL),
                     TD_OK);
    assert_int_equal(td_mpi_version("mpirun (Open MPI) 4.1.6rc1\n", NULL), TD_OK);
    td_error_init(&err);
    assert_int_equal(td_mpi_version("mpirun (Open MPI) 5.0.3\n", &err), TD_E_NO_MPI);
    assert_non_null(strstr(err.what, "Open MPI 5.0.3"));
    td_error_init(&err);
    assert_int_equal(td_mpi_version("mpirun (Open MPI) 4.10.1\n", &err), TD_E_NO_MPI);
    td_error_init(&err);
    assert_int_equal(td_mpi_version("HYDRA build details:\n  Version: 4.0.2\n", &err),
                     TD_E_NO_MPI);
    assert_non_null(strstr(err.why, "HYDRA"));
    td_error_init(&err);
    assert_int_equal(td_mpi_version("", &err), TD_E_NO_MPI);
}

static void finding(void **state)
{
    char folder[] = "/tmp/tandem-test-XXXXXX", path[128], list[256], out[64];
    struct td_error err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/mpirun", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fclose(f);
    (void)snprintf(list, sizeof(list), "/nowhere::.:%s:/bin", folder);
    td_error_init(&err); /* not executable */
    assert_int_equal(td_mpi_find(folder, out, sizeof(out), &err), TD_E_NO_MPI);
    assert_string_equal(out, "");
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(td_mpi_find(list, out, sizeof(out), &err), TD_OK);
    assert_string_equal(out, path);
    assert_int_equal(td_mpi_find(list, out, 8, NULL), TD_E_NO_MPI);
    assert_int_equal(td_mpi_find(NULL, out, sizeof(out), NULL), TD_E_NO_MPI);
    (void)unlink(path);
    (void)rmdir(folder);
}

static void probing(void **state)
{
    char folder[] = "/tmp/tandem-test-XXXXXX", path[128], out[128];
    char *before = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
    struct td_error err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/mpirun", folder);
    static const char *const scripts[] = {
        "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n",
        "#!/bin/sh\necho 'mpirun (Open MPI) 5.0.1'\n",
        "#!/bin/sh\nexit 1\n",
    };
    assert_int_equal(setenv("PATH", folder, 1), 0);
    for (size_t i = 0; i < TD_COUNT(scripts); i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(scripts[i], f);
        (void)fclose(f);
        assert_int_equal(chmod(path, 0700), 0);
        td_error_init(&err);
        assert_int_equal(td_mpi_probe(out, sizeof(out), &err),
                         i == 0 ? TD_OK : TD_E_NO_MPI);
        assert_string_equal(out, path);
    }
    if (before)
        assert_int_equal(setenv("PATH", before, 1), 0);
    free(before);
    (void)unlink(path);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host),  cmocka_unit_test(several_hosts),
        cmocka_unit_test(slurm),     cmocka_unit_test(alone),
        cmocka_unit_test(no_memory), cmocka_unit_test(versions),
        cmocka_unit_test(finding),   cmocka_unit_test(probing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
