/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVIDIA's management library tells: who holds a GPU's memory, and what the driver
 * noted when it failed. Private to ops/cuda. Everything here is best effort: without the
 * library, or without the right to ask, answers are empty.
 */
#ifndef TD_OPS_CUDA_NVML_H
#define TD_OPS_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>

/* Records as nvml.h declares them. */
struct td_nvml_process {
    unsigned int pid;
    unsigned long long used; /* bytes, all ones: not known */
    unsigned int instance, compute_instance;
};
struct td_nvml_event {
    void *device;
    unsigned long long type, data; /* data: the number of an Xid */
    unsigned int instance, compute_instance;
};

/* The functions that are used; the names are those of the library. 0 is success. */
struct td_nvml {
    int (*init)(void);
    int (*by_bus)(const char *bus, void **device);
    int (*processes)(void *device, unsigned *count, struct td_nvml_process *out);
    int (*event_set)(void **set);
    int (*register_events)(void *device, unsigned long long types, void *set);
    int (*event_wait)(void *set, struct td_nvml_event *out, unsigned milliseconds);
};

/* One GPU, watched. */
struct td_nvml_watch {
    const struct td_nvml *nvml; /* NULL: nothing can be asked */
    void *device, *set;         /* set: NULL when events are not told */
};

/* The library of this machine; NULL without it. */
const struct td_nvml *td_nvml_load(void);

/* Begins to watch the GPU with this PCI address. */
void td_nvml_watch_open(struct td_nvml_watch *w, const struct td_nvml *nvml,
                        const char *bus);

/* The last Xid that the driver noted since the last call; waits for one as long as this.
 * 0: none. */
int td_nvml_watch_xid(const struct td_nvml_watch *w, unsigned milliseconds);

/* Who else holds memory, the largest first, as part of a sentence: "61.2 GiB are held by
 * python3 (pid 4711, container 0123456789ab)". "" when nobody is known to. proc: "/proc",
 * tests give recorded trees. */
void td_nvml_holders(const struct td_nvml_watch *w, const char *proc, char *out,
                     size_t size);

/* The short id of the container in the text of a /proc/PID/cgroup; false: none. */
bool td_nvml_container(const char *text, char out[13]);

#endif
