/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an error number of the CUDA runtime, and what the driver noted, to a cause. See
 * fault.h.
 */
#include "ops/cuda/fault.h"

#include "base/buf.h"
#include "base/compiler.h"

#include <stdio.h>

enum { XID_WAIT_MS = 300, HOLDERS_MAX = 512 };

/* ---- before anything was computed ---- */

static enum td_status no_driver(struct td_error *err)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        td_error_set(err, TD_E_NO_DEVICE, "there is no NVIDIA driver");
        td_error_why(err, "libcuda.so.1 cannot be loaded");
        td_error_fix(err, "install the driver, or give the container its GPUs "
                          "(docker: --gpus all, Apptainer: --nv)");
        return TD_E_NO_DEVICE;
    }
    td_error_set(err, TD_E_DRIVER, "the NVIDIA driver is too old");
    td_error_why(err, "it supports CUDA %d.%d, this build needs %d.%d", driver / 1000,
                 driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    td_error_fix(err, "update the driver, or build with the CUDA toolkit of that "
                      "version: make cuda");
    return TD_E_DRIVER;
}

static enum td_status no_image(int device, const char *name, struct td_error *err)
{
    int major = 0, minor = 0;
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    td_error_set(err, TD_E_DEVICE, "libtandem-cuda.so holds no code for %s", name);
    td_error_why(err, "the GPU has compute capability %d.%d", major, minor);
    td_error_fix(err, "build for it: make cuda CUDA_ARCHS=%d%d", major, minor);
    return TD_E_DEVICE;
}

/* Errors with one meaning. */
static const struct known {
    cudaError_t e;
    enum td_status code;
    const char *what, *why, *fix;
} knowns[] = {
    {cudaErrorNoDevice, TD_E_NO_DEVICE, "there is no NVIDIA GPU",
     "the driver shows none to this process",
     "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or give the container its GPUs"},
    {cudaErrorStubLibrary, TD_E_DRIVER, "libcuda.so.1 is not the driver's",
     "the toolkit's stub for linking was loaded in its place",
     "take the toolkit's folder \"stubs\" out of LD_LIBRARY_PATH"},
    {cudaErrorInitializationError, TD_E_DRIVER, "the NVIDIA driver does not start",
     "its kernel module is not loaded, or this process may not open /dev/nvidia*",
     "run nvidia-smi as this user, on this host"},
    {cudaErrorSystemNotReady, TD_E_DRIVER, "the GPUs of this machine are not ready",
     "they are joined by NVSwitch, and the service that sets that up is not running",
     "start nvidia-fabricmanager, of the driver's version"},
    {cudaErrorSystemDriverMismatch, TD_E_DRIVER,
     "the NVIDIA driver and its libraries are of different versions",
     "the driver was updated while its kernel module stayed loaded, or a container "
     "brings libraries of its own",
     "restart the machine or the container"},
    {cudaErrorCompatNotSupportedOnDevice, TD_E_DRIVER,
     "the NVIDIA driver is too old for the CUDA that was loaded",
     "a package for forward compatibility is in the way, and this GPU does not allow "
     "it",
     "update the driver, or take the folder \"compat\" out of LD_LIBRARY_PATH"},
    {cudaErrorDevicesUnavailable, TD_E_DEVICE, "the GPU is not free",
     "another process has it for itself (exclusive mode), or it is being reset",
     "look at nvidia-smi; end the other process or choose another GPU"},
};

/* ---- while it worked ---- */

/* What the driver's notes mean, for those that have a meaning to a user. */
static const struct noted {
    int xid;
    const char *why, *fix;
} notes[] = {
    {48, "an error in its memory could not be corrected (Xid 48)",
     "look at nvidia-smi -q -d ECC; a GPU that shows it again has to be replaced"},
    {63, "a part of its memory was taken out of use (Xid 63)",
     "restart the machine, so that the spare memory is used"},
    {64, "a part of its memory failed and could not be taken out of use (Xid 64)",
     "the GPU has to be replaced"},
    {74, "a link between GPUs failed (Xid 74)", "look at nvidia-smi nvlink -s"},
    {79, "it has fallen off the bus (Xid 79)",
     "look at power, temperature and seat of the card, and restart the machine"},
    {94, "an error in its memory hit this process (Xid 94)",
     "start again; restart the machine soon"},
    {95, "an error in its memory spread (Xid 95)",
     "restart the machine; a GPU that shows it again has to be replaced"},
    {119, "its own processor does not answer (Xid 119)",
     "restart the machine, with a newer driver if there is one"},
    {120, "its own processor failed (Xid 120)",
     "restart the machine, with a newer driver if there is one"},
};

static bool stopped_working(cudaError_t e)
{
    return e == cudaErrorECCUncorrectable || e == cudaErrorNvlinkUncorrectable ||
           e == cudaErrorHardwareStackError || e == cudaErrorLaunchFailure ||
           e == cudaErrorIllegalAddress || e == cudaErrorUnknown ||
           e == cudaErrorLaunchTimeout;
}

static enum td_status lost(cudaError_t e, int xid, const char *name, const char *doing,
                           struct td_error *err)
{
    td_error_set(err, TD_E_GPU_LOST, "%s stopped working in %s", name, doing);
    td_error_fix(err, "look for Xid lines of the driver in dmesg, then start tandem "
                      "again");
    for (size_t i = 0; i < TD_COUNT(notes); i++)
        if (notes[i].xid == xid) {
            td_error_why(err, "%s", notes[i].why);
            td_error_fix(err, "%s", notes[i].fix);
            return TD_E_GPU_LOST;
        }
    if (e == cudaErrorECCUncorrectable) {
        td_error_why(err, "%s", notes[0].why);
        td_error_fix(err, "%s", notes[0].fix);
    } else if (xid) {
        td_error_why(err, "%s (%s), and the driver noted Xid %d", cudaGetErrorString(e),
                     cudaGetErrorName(e), xid);
    } else {
        td_error_why(err, "%s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
    }
    return TD_E_GPU_LOST;
}

enum td_status td_cuda_fault(cudaError_t e, const struct td_nvml_watch *watch,
                             int device, const char *name, const char *doing,
                             struct td_error *err)
{
    if (e == cudaErrorInsufficientDriver)
        return no_driver(err);
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
        e == cudaErrorUnsupportedPtxVersion)
        return no_image(device, name, err);
    if (e == cudaErrorMemoryAllocation)
        return td_cuda_no_memory(watch, name, 0, 0, doing, err);
    for (size_t i = 0; i < TD_COUNT(knowns); i++)
        if (knowns[i].e == e) {
            td_error_set(err, knowns[i].code, "%s", knowns[i].what);
            td_error_why(err, "%s", knowns[i].why);
            td_error_fix(err, "%s", knowns[i].fix);
            return knowns[i].code;
        }
    int xid = td_nvml_watch_xid(watch, XID_WAIT_MS);
    if (xid || stopped_working(e))
        return lost(e, xid, name, doing, err);
    td_error_set(err, TD_E_DEVICE, "%s failed in %s", name, doing);
    td_error_why(err, "%s (%s)", cudaGetErrorString(e), cudaGetErrorName(e));
    td_error_fix(err,
                 "look for Xid lines of the driver in dmesg, then start tandem again");
    return TD_E_DEVICE;
}

enum td_status td_cuda_no_memory(const struct td_nvml_watch *watch, const char *name,
                                 size_t bytes, size_t own, const char *label,
                                 struct td_error *err)
{
    char holders[HOLDERS_MAX];
    size_t left = 0, total = 0;
    (void)cudaMemGetInfo(&left, &total);
    td_nvml_holders(watch, "/proc", holders, sizeof(holders));
    enum td_status s = holders[0] ? TD_E_MEMORY_TAKEN : TD_E_NOMEM;
    if (bytes)
        td_error_set(err, s, "%s gave no %s for %s", name,
                     td_size_text((int64_t)bytes, 1).text, label);
    else
        td_error_set(err, s, "%s has no memory for %s", name, label);
    td_error_why(err, "%s of its %s are free, %s are tandem's%s%s",
                 td_size_text((int64_t)left, 1).text,
                 td_size_text((int64_t)total, 1).text,
                 td_size_text((int64_t)own, 1).text, holders[0] ? "; " : "", holders);
    td_error_fix(
        err, holders[0] ? "end what holds it, or give tandem less with --memory"
                        : "nvidia-smi shows who holds the rest; end it, or give tandem "
                          "less with --memory");
    return s;
}
