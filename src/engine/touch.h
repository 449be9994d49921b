/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Touching the caches beside the load: a system gives memory when it is written for the
 * first time, zeroed, and a virtual machine may have to ask its host for it. Caches are
 * often larger than the weights, and reading mostly waits for the disk.
 *
 *     td_touch_start(&t, dev, &cache, &beat);
 *     td_model_load(...)
 *     td_touch_end(&t, ok);
 */
#ifndef TD_ENGINE_TOUCH_H
#define TD_ENGINE_TOUCH_H

#include "model/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { TD_TOUCH_MAX = 16 };

struct td_touch {
    struct td_cache *cache; /* NULL: there is nothing to touch */
    atomic_ullong *beat;
    _Atomic int64_t next; /* piece that nobody has taken yet */
    int64_t bytes;        /* of all pieces */
    int n;                /* threads */
    pthread_t threads[TD_TOUCH_MAX];
    double start;
    _Atomic double seconds; /* until the last piece was touched */
};

/* Begins, in as many threads as the device has, at most TD_TOUCH_MAX. A device with a
 * memory of its own has touched what it gave out. `beat` may be NULL; it rises with every
 * piece. `t`, `cache` and `beat` stay where they are until td_touch_end(). */
void td_touch_start(struct td_touch *t, const struct td_dev *dev,
                    struct td_cache *cache, atomic_ullong *beat);

/* Touches what is left, waits, and emits the event "touched" with bytes and seconds. If the
 * caches are not `needed`, because the load failed, it leaves the rest and only waits. */
void td_touch_end(struct td_touch *t, bool needed);

#endif
