/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over ranks. See join.h.
 *
 * Of NCCL only the gather is used, and the terms are added by a kernel of ours: NCCL's own
 * sums run in an order that depends on an element's place and on the number of elements,
 * so a row's bits would depend on its neighbours. For the short messages of a step both
 * cost the same.
 *
 * NCCL is loaded when it is first asked for; its few functions are declared here as its
 * manual gives them.
 */
#define _POSIX_C_SOURCE 200809L
#include "ops/cuda/join.h"

#include "base/clock.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    NCCL_FLOAT32 = 7,
    NCCL_SUCCESS = 0,
    NCCL_IN_PROGRESS = 7,
    LONGEST_PIECE = 1 << 22, /* elements gathered at a time */
    NAP_NS = 20000
};

struct nccl_id {
    char bytes[TD_JOIN_ID];
};

static struct nccl {
    int (*get_id)(struct nccl_id *id);
    int (*init)(void **comm, int ranks, struct nccl_id id, int rank);
    int (*gather)(const void *from, void *to, size_t n, int type, void *comm,
                  cudaStream_t stream);
    int (*state)(void *comm, int *result);
    int (*abort)(void *comm);
    const char *(*text)(int result);
} nccl;

static bool symbol(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof(p)); /* POSIX allows it, ISO C has no cast for it */
    return p != NULL;
}

bool td_cuda_join_can(void)
{
    if (nccl.gather)
        return true;
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return false;
    return symbol(lib, "ncclGetUniqueId", &nccl.get_id) &&
           symbol(lib, "ncclCommInitRank", &nccl.init) &&
           symbol(lib, "ncclCommGetAsyncError", &nccl.state) &&
           symbol(lib, "ncclCommAbort", &nccl.abort) &&
           symbol(lib, "ncclGetErrorString", &nccl.text) &&
           symbol(lib, "ncclAllGather", &nccl.gather);
}

static enum td_status nccl_failed(int result, const char *doing, struct td_error *err)
{
    td_error_set(err, TD_E_DEVICE, "NCCL failed in %s", doing);
    td_error_why(err, "%s", nccl.text(result));
    td_error_fix(err, "NCCL_DEBUG=WARN tells more; TANDEM_CUDA_JOIN=host does without "
                      "NCCL");
    return TD_E_DEVICE;
}

static enum td_status too_late(const struct td_cuda_join *j, const char *doing,
                               struct td_error *err)
{
    td_error_set(err, TD_E_TIMEOUT, "the GPUs of other ranks did not come to %s",
                 doing);
    td_error_why(err, "rank %d of %d waited for %.0f s", j->how.rank, j->how.ranks,
                 j->how.deadline);
    td_error_fix(err, "look at the logs of the other ranks");
    return TD_E_TIMEOUT;
}

enum td_status td_cuda_join_id(unsigned char id[TD_JOIN_ID], struct td_error *err)
{
    struct nccl_id made;
    int result = nccl.get_id(&made);
    if (result != NCCL_SUCCESS)
        return nccl_failed(result, "making an id", err);
    memcpy(id, made.bytes, TD_JOIN_ID);
    return TD_OK;
}

/* ---- meeting ---- */

/* Meeting has no deadline of its own: it is done by a thread that may be left behind,
 * with its memory. */
struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int ranks, rank, device, result;
    struct nccl_id id;
    void *comm;
    bool over;
};

static void *meet(void *self)
{
    struct meeting *m = self;
    void *comm = NULL;
    int result = (int)cudaSetDevice(m->device);
    if (result == cudaSuccess)
        result = nccl.init(&comm, m->ranks, m->id, m->rank);
    (void)pthread_mutex_lock(&m->lock);
    m->comm = comm;
    m->result = result;
    m->over = true;
    (void)pthread_cond_signal(&m->done);
    (void)pthread_mutex_unlock(&m->lock);
    return NULL;
}

static struct timespec after(double seconds)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    return t;
}

/* Waits for the thread; false when it is left behind. */
static bool wait_for(struct meeting *m, pthread_t thread, double deadline)
{
    struct timespec until = after(deadline);
    int late = 0;
    (void)pthread_mutex_lock(&m->lock);
    while (!m->over && late == 0)
        late = pthread_cond_timedwait(&m->done, &m->lock, &until);
    bool over = m->over;
    (void)pthread_mutex_unlock(&m->lock);
    if (over)
        (void)pthread_join(thread, NULL);
    else
        (void)pthread_detach(thread);
    return over;
}

static enum td_status meet_all(struct td_cuda_join *j, int device, struct td_error *err)
{
    struct meeting *m = td_calloc(1, sizeof(*m));
    pthread_t thread;
    if (!m)
        return td_error_set(err, TD_E_NOMEM, "no memory to meet the other ranks");
    m->ranks = j->how.ranks;
    m->rank = j->how.rank;
    m->device = device;
    memcpy(m->id.bytes, j->how.id, TD_JOIN_ID);
    if (pthread_mutex_init(&m->lock, NULL) != 0 ||
        pthread_cond_init(&m->done, NULL) != 0 ||
        pthread_create(&thread, NULL, meet, m) != 0) {
        td_free(m);
        return td_error_set(err, TD_E_NOMEM, "no thread to meet the other ranks");
    }
    if (!wait_for(m, thread, j->how.deadline))
        return too_late(j, "a meeting", err);
    j->nccl = m->comm;
    int result = m->result;
    td_free(m);
    return result == NCCL_SUCCESS ? TD_OK : nccl_failed(result, "joining", err);
}

enum td_status td_cuda_join_open(struct td_cuda_join *j, const struct td_join *how,
                                 int device, struct td_error *err)
{
    j->how = *how;
    td_error_init(&j->failure);
    return how->direct ? meet_all(j, device, err) : TD_OK;
}

void td_cuda_join_close(struct td_cuda_join *j)
{
    if (j->nccl) /* its other end, ncclCommDestroy(), waits for the other ranks */
        (void)nccl.abort(j->nccl);
    (void)cudaFreeHost(j->host);
    *j = (struct td_cuda_join){0};
}

/* ---- summing ---- */

size_t td_cuda_join_piece(const struct td_cuda_join *j, const struct td_reserve *r)
{
    size_t most = (size_t)r->max_rows * (size_t)r->hidden;
    return j->nccl ? TD_MIN(most, (size_t)LONGEST_PIECE) : 0;
}

static void sum_direct(struct td_cuda_join *j, cudaStream_t stream, float *x, size_t n)
{
    for (size_t at = 0; at < n && j->failure.code == TD_OK; at += j->piece) {
        size_t part = TD_MIN(n - at, j->piece);
        int result =
            nccl.gather(x + at, j->gathered, part, NCCL_FLOAT32, j->nccl, stream);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            (void)nccl_failed(result, "a sum over the ranks", &j->failure);
        else
            td_cuda_sum_ranks(stream, j->gathered, j->how.ranks, x + at, (int64_t)part);
    }
}

/* Pinned memory for n elements. */
static bool have_host(struct td_cuda_join *j, size_t n)
{
    if (n <= j->host_n)
        return true;
    (void)cudaFreeHost(j->host);
    j->host_n = 0;
    j->host = NULL;
    if (cudaHostAlloc((void **)&j->host, n * sizeof(float), cudaHostAllocPortable) !=
        cudaSuccess) {
        td_error_set(&j->failure, TD_E_NOMEM,
                     "no pinned memory for a sum of %zu elements over the ranks", n);
        return false;
    }
    j->host_n = n;
    return true;
}

static void sum_on_host(struct td_cuda_join *j, cudaStream_t stream, float *x, size_t n)
{
    size_t bytes = n * sizeof(float);
    if (j->failure.code != TD_OK || !have_host(j, n))
        return;
    cudaError_t e = cudaMemcpyAsync(j->host, x, bytes, cudaMemcpyDeviceToHost, stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(stream);
    if (e == cudaSuccess && j->how.sum(j->how.self, j->host, n, &j->failure) != TD_OK)
        return;
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(x, j->host, bytes, cudaMemcpyHostToDevice, stream);
    if (e != cudaSuccess)
        td_error_set(&j->failure, TD_E_DEVICE, "copying for a sum over the ranks: %s",
                     cudaGetErrorString(e));
}

void td_cuda_join_sum(struct td_cuda_join *j, cudaStream_t stream, float *x, size_t n)
{
    if (j->nccl)
        sum_direct(j, stream, x, n);
    else
        sum_on_host(j, stream, x, n);
}

cudaError_t td_cuda_join_wait(struct td_cuda_join *j, cudaStream_t stream)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    double until = td_clock_now() + j->how.deadline;
    int result = NCCL_SUCCESS;
    if (!j->nccl)
        return cudaStreamSynchronize(stream);
    for (int64_t i = 0;; i++) {
        cudaError_t e = cudaStreamQuery(stream);
        if (e != cudaErrorNotReady)
            return e;
        if (i < 4096)
            continue; /* a step takes less than naps are exact to */
        if (nccl.state(j->nccl, &result) == NCCL_SUCCESS && result != NCCL_SUCCESS &&
            result != NCCL_IN_PROGRESS)
            (void)nccl_failed(result, "a sum over the ranks", &j->failure);
        else if (td_clock_now() > until)
            (void)too_late(j, "a sum", &j->failure);
        if (j->failure.code != TD_OK) {
            (void)nccl.abort(j->nccl); /* ends what is on the stream */
            j->nccl = NULL;
            return cudaStreamSynchronize(stream);
        }
        (void)nanosleep(&nap, NULL);
    }
}
