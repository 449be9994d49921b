/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects what one host is. See facts.h. The parts that are long lie in files of their
 * own: net.c, rdma.c, holders.c.
 */
#define _GNU_SOURCE /* sched_getaffinity: which processors this process may use */
#include "fabric/fabric_int.h"

#include "base/cpu.h"
#include "base/mem.h"
#include "fabric/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

static const double resolve_seconds = 1.5;

/* Processes that hold less than this are not worth a line. */
static const int64_t holder_bytes = 256 * TD_MIB;

/* ---- small files -------------------------------------------------------------------- */

bool td_small_file(char *out, size_t size, const char *path, ...)
{
    char name[TD_MAX_PATH];
    va_list ap;
    va_start(ap, path);
    (void)vsnprintf(name, sizeof(name), path, ap);
    va_end(ap);
    *out = 0;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n < size - 1) {
        got = read(fd, out + n, size - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = 0;
    return got >= 0 && n > 0;
}

int64_t td_text_int(const char *text, int64_t absent)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    return end == text || errno ? absent : (int64_t)v;
}

/* ---- the program -------------------------------------------------------------------- */

/* The library says its version without being started. */
static void read_mpi(struct td_facts *f)
{
    enum { MPI_TEXT = 8192 }; /* Open MPI's bound is 256, MPICH's 8192 */
    typedef int (*version_fn)(char *text, int *n);
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.80", "libmpi.so"};
    char text[MPI_TEXT] = "";
    int n = 0;
    void *lib = NULL;
    for (size_t i = 0; i < TD_COUNT(names) && !lib; i++)
        lib = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return;
    version_fn version;
    void *symbol = dlsym(lib, "MPI_Get_library_version");
    memcpy(&version, &symbol, sizeof(version));
    if (version && version(text, &n) == 0)
        (void)snprintf(f->mpi, sizeof(f->mpi), "%.*s", (int)strcspn(text, ",\n"), text);
    (void)dlclose(lib);
}

/* Where a shell would find a program, "" when it would not. */
static void find_in_path(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");
    char full[TD_MAX_PATH];
    *out = 0;
    for (const char *p = path ? path : "/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        int len = snprintf(full, sizeof(full), "%.*s/%s", (int)n, p, name);
        if (n && len > 0 && (size_t)len < TD_MIN(sizeof(full), size) &&
            access(full, X_OK) == 0) {
            td_text_copy(out, size, full);
            return;
        }
        p += n + (p[n] == ':');
    }
}

static void read_program(struct td_facts *f)
{
    struct utsname u;
    ssize_t n = readlink("/proc/self/exe", f->program, sizeof(f->program) - 1);
    f->program[n > 0 ? n : 0] = 0;
    if (uname(&u) == 0) {
        td_text_copy(f->host, sizeof(f->host), u.nodename);
        td_text_copy(f->arch, sizeof(f->arch), u.machine);
        td_text_copy(f->kernel, sizeof(f->kernel), u.release);
    }
    read_mpi(f);
    find_in_path("orted", f->orted, sizeof(f->orted));
}

void td_facts_read_name(struct td_facts *f)
{
    char list[TD_FACT_OWN][TD_FACT_ADDR];
    int n = td_resolve(f->host, resolve_seconds, list, TD_FACT_OWN, NULL, 0);
    for (int i = 0; i < n; i++)
        td_text_copy(f->own[f->n_own++].text, TD_FACT_ADDR, list[i]);
}

/* ---- processor, memory, limits ------------------------------------------------------ */

static void read_cpu(struct td_facts *f)
{
    cpu_set_t set;
    (void)snprintf(f->cpu, sizeof(f->cpu), "%s", td_cpu_name());
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        f->cores = CPU_COUNT(&set);
    else
        f->cores = sysconf(_SC_NPROCESSORS_ONLN);
}

static int64_t limit(int which)
{
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)which, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return -1;
    return (int64_t)TD_MIN(r.rlim_cur, (rlim_t)INT64_MAX);
}

static void read_space(const char *path, int64_t *total, int64_t *left)
{
    struct statvfs s;
    if (statvfs(path, &s) != 0)
        return;
    *total = (int64_t)(s.f_blocks * s.f_frsize);
    *left = (int64_t)(s.f_bavail * s.f_frsize);
}

void td_facts_read_disk(const char *path, struct td_facts *f)
{
    f->disk = (struct td_disk){0};
    (void)snprintf(f->disk.path, sizeof(f->disk.path), "%s", path);
    read_space(path, &f->disk.total, &f->disk.free);
}

/* ---- NVML --------------------------------------------------------------------------- */

static void symbol(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof(p));
}

static void read_gpus(const char *root, struct td_facts *f)
{
    struct td_nvml n = {0};
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!lib)
        return;
    symbol(lib, "nvmlInit_v2", &n.init);
    symbol(lib, "nvmlShutdown", &n.shutdown);
    symbol(lib, "nvmlSystemGetDriverVersion", &n.driver);
    symbol(lib, "nvmlDeviceGetCount_v2", &n.count);
    symbol(lib, "nvmlDeviceGetHandleByIndex_v2", &n.handle);
    symbol(lib, "nvmlDeviceGetName", &n.name);
    symbol(lib, "nvmlDeviceGetUUID", &n.uuid);
    symbol(lib, "nvmlDeviceGetMemoryInfo", &n.memory);
    symbol(lib, "nvmlDeviceGetCudaComputeCapability", &n.capability);
    symbol(lib, "nvmlDeviceGetComputeRunningProcesses_v3", &n.processes);
    if (!n.processes)
        symbol(lib, "nvmlDeviceGetComputeRunningProcesses_v2", &n.processes);
    td_facts_read_gpus(root, &n, f);
    (void)dlclose(lib);
}

/* ---- the whole ---------------------------------------------------------------------- */

void td_facts_read(const char *root, struct td_facts *f)
{
    const char *home = getenv("HOME");
    read_program(f);
    read_cpu(f);
    (void)td_sysmem_read(root, &f->memory, NULL);
    td_oom_counts_read(root, &f->kills);
    f->memlock = limit(RLIMIT_MEMLOCK);
    f->nofile = limit(RLIMIT_NOFILE);
    read_space("/dev/shm", &f->shm_total, &f->shm_free);
    td_facts_read_disk(home && *home ? home : "/", f);
    td_facts_read_net(root, f);
    td_facts_read_rdma(root, f);
    td_facts_read_holders(root, holder_bytes, f);
    read_gpus(root, f);
}

void td_facts_release(struct td_facts *f)
{
    td_free(f->files);
    *f = (struct td_facts){0};
}
