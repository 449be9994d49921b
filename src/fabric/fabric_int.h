/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this room share: small kernel files and the parts of
 * td_facts_read().
 */
#ifndef TD_FABRIC_FABRIC_INT_H
#define TD_FABRIC_FABRIC_INT_H

#include "fabric/facts.h"

/* Reads the file whose path is formatted into out (size bytes, cut, a final newline
 * removed). False, and an empty text, when it cannot be read. */
bool td_small_file(char *out, size_t size, const char *path, ...) TD_PRINTF(3, 4);

/* The whole number a text begins with, `absent` when it begins with none. */
int64_t td_text_int(const char *text, int64_t absent);

/* What libnvidia-ml offers, as far as it is used; entries may be NULL. The signatures are
 * those of nvml.h: 0 is success, handles are pointers. */
struct td_nvml_memory {
    unsigned long long total, free, used;
};

struct td_nvml_process { /* nvmlProcessInfo_v2_t, which _v3 also fills */
    unsigned int pid;
    unsigned long long used; /* all ones: not known */
    unsigned int instance, compute_instance;
};

struct td_nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *out, unsigned size);
    int (*count)(unsigned *out);
    int (*handle)(unsigned index, void **out);
    int (*name)(void *device, char *out, unsigned size);
    int (*uuid)(void *device, char *out, unsigned size);
    int (*memory)(void *device, struct td_nvml_memory *out);
    int (*capability)(void *device, int *major, int *minor);
    int (*processes)(void *device, unsigned *count, struct td_nvml_process *out);
};

#endif
