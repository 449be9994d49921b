/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of a GPU that hardware does not show on demand, with a runtime and a management
 * library that only pretend: each gives one cause with a remedy.
 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt.h"

#include "ops/cuda/fault.c"
#include "ops/cuda/nvml.c"

static int driver_version, xid;
static unsigned n_processes;
static struct td_nvml_process processes[4];

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    (void)device;
    *value = attr == cudaDevAttrComputeCapabilityMajor ? 8 : 6;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    *left = (size_t)3 << 30;
    *total = (size_t)80 << 30;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                        : "some error";
}

const char *cudaGetErrorName(cudaError_t e)
{
    return e == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}

static int fake_by_bus(const char *bus, void **device)
{
    *device = &xid;
    return strcmp(bus, "0000:01:00.0") == 0 ? 0 : 6;
}

static int fake_processes(void *device, unsigned *count, struct td_nvml_process *out)
{
    assert_ptr_equal(device, &xid);
    assert_true(*count >= n_processes);
    memcpy(out, processes, n_processes * sizeof(*out));
    *count = n_processes;
    return 0;
}

static int fake_event_set(void **set)
{
    *set = &n_processes;
    return 0;
}

static int fake_register(void *device, unsigned long long types, void *set)
{
    assert_ptr_equal(device, &xid);
    assert_ptr_equal(set, &n_processes);
    return types == 8 ? 0 : 1;
}

static int fake_wait(void *set, struct td_nvml_event *out, unsigned milliseconds)
{
    (void)milliseconds;
    assert_ptr_equal(set, &n_processes);
    if (!xid)
        return 10; /* time is over */
    *out = (struct td_nvml_event){.type = 8, .data = (unsigned long long)xid};
    xid = 0;
    return 0;
}

static const struct td_nvml fake = {.by_bus = fake_by_bus,
                                    .processes = fake_processes,
                                    .event_set = fake_event_set,
                                    .register_events = fake_register,
                                    .event_wait = fake_wait};

static struct td_nvml_watch watch;

static int setup(void **state)
{
    (void)state;
    driver_version = xid = 0;
    n_processes = 0;
    td_nvml_watch_open(&watch, &fake, "0000:01:00.0");
    assert_ptr_equal(watch.nvml, &fake);
    return 0;
}

/* The failure e has this code and says these words; its remedy as well. */
static void expect(cudaError_t e, enum td_status code, const char *what,
                   const char *why, const char *fix)
{
    struct td_error err;
    td_error_init(&err);
    assert_int_equal(td_cuda_fault(e, &watch, 0, "cuda:0 NVIDIA X1", "a step", &err),
                     code);
    assert_int_equal(err.code, code);
    if (!strstr(err.what, what) || !strstr(err.why, why) || !strstr(err.fix, fix))
        fail_msg("error %d gives: %s; %s; %s", (int)e, err.what, err.why, err.fix);
}

static void test_driver(void **state)
{
    (void)state;
    expect(cudaErrorInsufficientDriver, TD_E_NO_DEVICE, "no NVIDIA driver",
           "libcuda.so.1", "--gpus all");
    driver_version = 12040;
    expect(cudaErrorInsufficientDriver, TD_E_DRIVER, "too old",
           "CUDA 12.4, this build needs 13.0", "update the driver");
    expect(cudaErrorNoDevice, TD_E_NO_DEVICE, "no NVIDIA GPU", "to this process",
           "CUDA_VISIBLE_DEVICES");
    expect(cudaErrorStubLibrary, TD_E_DRIVER, "not the driver's", "stub",
           "LD_LIBRARY_PATH");
    expect(cudaErrorSystemNotReady, TD_E_DRIVER, "not ready", "NVSwitch",
           "nvidia-fabricmanager");
    expect(cudaErrorSystemDriverMismatch, TD_E_DRIVER, "different versions", "updated",
           "restart");
    expect(cudaErrorCompatNotSupportedOnDevice, TD_E_DRIVER, "too old", "compatibility",
           "compat");
    expect(cudaErrorInitializationError, TD_E_DRIVER, "does not start", "/dev/nvidia",
           "nvidia-smi");
    expect(cudaErrorDevicesUnavailable, TD_E_DEVICE, "not free", "exclusive",
           "another GPU");
}

static void test_no_image(void **state)
{
    static const cudaError_t all[] = {cudaErrorNoKernelImageForDevice,
                                      cudaErrorInvalidDeviceFunction,
                                      cudaErrorUnsupportedPtxVersion};
    (void)state;
    for (size_t i = 0; i < TD_COUNT(all); i++)
        expect(all[i], TD_E_DEVICE, "no code for cuda:0 NVIDIA X1", "8.6",
               "CUDA_ARCHS=86");
}

static void test_lost(void **state)
{
    (void)state;
    xid = 79;
    expect(cudaErrorUnknown, TD_E_GPU_LOST,
           "cuda:0 NVIDIA X1 stopped working in a step", "fallen off the bus (Xid 79)",
           "restart the machine");
    xid = 95;
    expect((cudaError_t)1, TD_E_GPU_LOST, "stopped working", "Xid 95", "replaced");
    expect(cudaErrorECCUncorrectable, TD_E_GPU_LOST, "stopped working",
           "could not be corrected", "ECC");
    xid = 13; /* nothing that a user could know */
    expect(
        cudaErrorIllegalAddress, TD_E_GPU_LOST, "stopped working",
        "an illegal memory access was encountered (cudaErrorIllegalAddress), and the "
        "driver noted Xid 13",
        "dmesg");
    expect(cudaErrorIllegalAddress, TD_E_GPU_LOST, "stopped working",
           "illegal memory access", "dmesg");
    expect((cudaError_t)1, TD_E_DEVICE, "failed in a step", "some error", "dmesg");
}

/* /proc/PID with a command and a control group. */
static void add_process(const char *proc, unsigned pid, const char *command,
                        const char *group)
{
    const char *names[] = {"cmdline", "cgroup"}, *texts[] = {command, group};
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%u", proc, pid);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%u/%s", proc, pid, names[i]);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(texts[i], f) >= 0);
        assert_int_equal(fclose(f), 0);
    }
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_holders(void **state)
{
    struct ckpt c;
    char text[HOLDERS_MAX], command[300];
    (void)state;
    td_nvml_holders(&watch, "/proc", text, sizeof(text));
    assert_string_equal(text, "");
    ckpt_init(&c);
    add_process(c.dir, 4711, "python3", "0::/system.slice/docker-" ID ".scope\n");
    add_process(c.dir, 4712, "ollama\n", "0::/user.slice/session-1.scope\n");
    processes[0] = (struct td_nvml_process){.pid = 4712, .used = 1ULL << 30};
    processes[1] = (struct td_nvml_process){.pid = 4711, .used = 60ULL << 30};
    processes[2] = (struct td_nvml_process){.pid = 9, .used = 1ULL << 20};
    processes[3] = (struct td_nvml_process){.pid = (unsigned)getpid(), .used = 1};
    n_processes = 4;
    td_nvml_holders(&watch, c.dir, text, sizeof(text));
    assert_string_equal(
        text,
        "60.0 GiB are held by python3 (pid 4711, container 0123456789ab), 1.0 GiB "
        "are held by ollama (pid 4712), 1.0 MiB are held by a process that cannot "
        "be seen from here (pid 9)");
    td_nvml_holders(&watch, c.dir, text, 20); /* cut, and ended */
    assert_int_equal(strlen(text), 19);
    processes[1].used = ~0ULL; /* not told to this user */
    n_processes = 2;
    td_nvml_holders(&watch, c.dir, text, sizeof(text));
    assert_string_equal(text, "1.0 GiB are held by ollama (pid 4712)");
    (void)snprintf(command, sizeof(command), "rm -r '%s'", c.dir);
    assert_int_equal(system(command), 0);
}

static void test_no_memory(void **state)
{
    struct td_error err;
    (void)state;
    td_error_init(&err);
    assert_int_equal(td_cuda_no_memory(&watch, "cuda:0", (size_t)9 << 30,
                                       (size_t)1 << 30, "weights", &err),
                     TD_E_NOMEM);
    assert_string_equal(err.what, "cuda:0 gave no 9.0 GiB for weights");
    assert_string_equal(err.why,
                        "3.0 GiB of its 80.0 GiB are free, 1.0 GiB are tandem's");
    processes[0] = (struct td_nvml_process){.pid = 1, .used = 70ULL << 30};
    n_processes = 1;
    td_error_init(&err);
    assert_int_equal(
        td_cuda_fault(cudaErrorMemoryAllocation, &watch, 0, "cuda:0", "a graph", &err),
        TD_E_MEMORY_TAKEN);
    assert_non_null(strstr(err.why, "70.0 GiB are held by "));
    assert_non_null(strstr(err.why, "(pid 1"));
    assert_non_null(strstr(err.fix, "--memory"));
}

static void test_container(void **state)
{
    static const struct {
        const char *text, *id;
    } cases[] = {
        {"0::/system.slice/docker-" ID ".scope", "0123456789ab"},
        {"12:devices:/docker/" ID "\n11:cpu:/docker/" ID, "0123456789ab"},
        {"0::/kubepods.slice/cri-containerd-" ID ".scope", "0123456789ab"},
        {"0::/user.slice/user-0.slice/session-1.scope", NULL},
        {"0::/x-" ID "0", NULL},
        {"", NULL},
    };
    char id[13];
    (void)state;
    for (size_t i = 0; i < TD_COUNT(cases); i++) {
        assert_int_equal(td_nvml_container(cases[i].text, id), cases[i].id != NULL);
        if (cases[i].id)
            assert_string_equal(id, cases[i].id);
    }
}

static void test_nothing_to_ask(void **state)
{
    char text[64];
    (void)state;
    td_nvml_watch_open(&watch, NULL, "0000:01:00.0");
    td_nvml_holders(&watch, "/proc", text, sizeof(text));
    assert_string_equal(text, "");
    assert_int_equal(td_nvml_watch_xid(&watch, 1), 0);
    td_nvml_watch_open(&watch, &fake, "0000:99:00.0");
    assert_null(watch.nvml);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_driver, setup),
        cmocka_unit_test_setup(test_no_image, setup),
        cmocka_unit_test_setup(test_lost, setup),
        cmocka_unit_test_setup(test_holders, setup),
        cmocka_unit_test_setup(test_no_memory, setup),
        cmocka_unit_test_setup(test_container, setup),
        cmocka_unit_test_setup(test_nothing_to_ask, setup),
    };
    return cmocka_run_group_tests_name("ops_cuda_fault", tests, NULL, NULL);
}
