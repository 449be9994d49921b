/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes under MPI: collectives made of messages between pairs of ranks.
 *
 * MPI's own collectives say neither whom they wait for nor add up in an order that one
 * could rely on, and they cannot be left. Here every wait is a loop that asks for all
 * messages under way, so that the rank that is missing is known and a deadline can pass.
 *
 *     all-reduce   short vectors: everybody sends all of it to everybody, one trip.
 *                  Long ones: rank r adds up the r-th part, then all fetch the sums.
 *                  Both add in the order of the ranks.
 *     others       between rank 0 and each of the others
 *
 * A wait spins at first (messages of a step take microseconds), then lets others have
 * the processor, and sleeps between looks once it lasts for milliseconds.
 */
#define _POSIX_C_SOURCE 200809L
#include "comm/comm.h"

#include "base/clock.h"
#include "base/library.h"
#include "base/limits.h"
#include "base/mem.h"
#include "comm/transport.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SHORT_BYTES =
        48 << 10, /* of a vector, times the other ranks: one trip up to here */
    PIECE = 2048, /* floats that are added up at a time */
    SPINS = 64,   /* looks before the clock is asked */
    ROUNDS = 512, /* looks between those at the connections, a few tens of ms */
};

#define SPIN_SECONDS  50e-6 /* then others may have the processor */
#define YIELD_SECONDS 5e-3  /* then it sleeps between looks */
#define NAP_NS        50000

/* A host that answers no packet for so long is gone, whatever it was doing; longer than a
 * step may stand still. */
enum { GONE_SECONDS = 5 };

/* A connection ends as well when the other process does. Then mpirun knows why, and ends
 * this one: it has so long. */
#define LAST_SECONDS 2.0

static const char *const library = "libtandem-mpi.so";

struct mpi_comm {
    struct td_comm comm; /* first */
    struct td_transport t;
    char (*hosts)[TD_ERROR_HOST_MAX];
    bool sending[TD_MAX_RANKS], receiving[TD_MAX_RANKS];
    bool failed;
    double ended; /* when a connection was seen to have ended; 0: none has */
    float *parts; /* [ranks][capacity] what the others sent */
    size_t capacity;
};

/* ---- waiting ----------------------------------------------------------------------- */

static enum td_status broken(struct mpi_comm *m, int peer, struct td_error *err)
{
    m->failed = true;
    td_error_set(err, TD_E_PEER, "no messages to or from rank %d on %s", peer,
                 td_comm_host(&m->comm, peer));
    td_error_why(err, "MPI says: %s", m->t.why());
    return TD_E_PEER;
}

static enum td_status too_late(struct mpi_comm *m, int peer, struct td_error *err)
{
    m->failed = true;
    td_error_set(err, TD_E_TIMEOUT, "waited %.1f s for rank %d on %s", m->comm.deadline,
                 peer, td_comm_host(&m->comm, peer));
    td_error_why(err, "that process, its host or the network between hangs or is much "
                      "slower than this one");
    return TD_E_TIMEOUT;
}

static enum td_status send_to(struct mpi_comm *m, int peer, const void *p, size_t bytes,
                              struct td_error *err)
{
    if (m->failed || m->t.send(peer, p, bytes) < 0)
        return broken(m, peer, err);
    m->sending[peer] = true;
    return TD_OK;
}

static enum td_status receive_from(struct mpi_comm *m, int peer, void *p, size_t bytes,
                                   struct td_error *err)
{
    if (m->failed || m->t.receive(peer, p, bytes) < 0)
        return broken(m, peer, err);
    m->receiving[peer] = true;
    return TD_OK;
}

/* Asks for one message; *missing becomes its peer if it is still under way. */
static int look(bool *under_way, int (*done)(int), int peer, int *missing)
{
    int k = *under_way ? done(peer) : 1;
    if (k > 0)
        *under_way = false;
    else
        *missing = peer;
    return k;
}

static void pause_for(double waited)
{
    if (waited > YIELD_SECONDS)
        (void)nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    else if (waited > SPIN_SECONDS)
        (void)sched_yield();
}

/* Has a connection ended, and nobody ended this process for it? */
static bool is_cut_off(struct mpi_comm *m)
{
    if (m->ended == 0 && m->t.whole() < 0)
        m->ended = td_clock_now();
    return m->ended > 0 && td_clock_now() - m->ended > LAST_SECONDS;
}

/* Waits for all messages that were started. */
static enum td_status finish(struct mpi_comm *m, struct td_error *err)
{
    double start = td_clock_now(), waited = 0;
    for (long looks = 1;; looks++) {
        int missing = -1;
        for (int r = 0; r < m->comm.ranks; r++)
            if (look(&m->sending[r], m->t.sent, r, &missing) < 0 ||
                look(&m->receiving[r], m->t.received, r, &missing) < 0)
                return broken(m, r, err);
        if (missing < 0)
            break;
        if (looks < SPINS)
            continue;
        waited = td_clock_now() - start;
        if (waited > m->comm.deadline)
            return too_late(m, missing, err);
        if (waited > YIELD_SECONDS) { /* waiting for another is no stand-still */
            (void)atomic_fetch_add(&m->comm.progress, 1);
            if (looks % ROUNDS == 0 && is_cut_off(m))
                return broken(m, missing, err);
        }
        pause_for(waited);
    }
    m->comm.counts.waited += td_clock_now() - start;
    return TD_OK;
}

/* ---- sums -------------------------------------------------------------------------- */

static float *part_of(const struct mpi_comm *m, int rank)
{
    return m->parts + (size_t)rank * m->capacity;
}

static enum td_status make_room(struct mpi_comm *m, size_t n, struct td_error *err)
{
    if (n <= m->capacity)
        return TD_OK;
    float *bigger = td_realloc(m->parts, n * (size_t)m->comm.ranks, sizeof(*bigger));
    if (!bigger)
        return td_error_set(err, TD_E_NOMEM, "no memory to add up %zu values", n);
    m->parts = bigger;
    m->capacity = n;
    return TD_OK;
}

/* own[n] += the parts of the others, in the order of the ranks. */
static void add_up(const struct mpi_comm *m, float *own, size_t n)
{
    float sum[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t k = TD_MIN(n - at, (size_t)PIECE);
        for (int r = 0; r < m->comm.ranks; r++) {
            const float *p = (r == m->comm.rank ? own : part_of(m, r)) + at;
            if (r == 0)
                memcpy(sum, p, k * sizeof(*sum));
            else
                for (size_t i = 0; i < k; i++)
                    sum[i] += p[i];
        }
        memcpy(own + at, sum, k * sizeof(*sum));
    }
}

/* Everybody sends everything to everybody. The sum replaces x only when x was sent. */
static enum td_status reduce_short(struct mpi_comm *m, float *x, size_t n,
                                   struct td_error *err)
{
    enum td_status s = make_room(m, n, err);
    for (int r = 0; r < m->comm.ranks && s == TD_OK; r++) {
        if (r == m->comm.rank)
            continue;
        s = receive_from(m, r, part_of(m, r), n * sizeof(*x), err);
        if (s == TD_OK)
            s = send_to(m, r, x, n * sizeof(*x), err);
    }
    if (s == TD_OK)
        s = finish(m, err);
    if (s == TD_OK)
        add_up(m, x, n);
    return s;
}

/* The first element of the part that a rank adds up. */
static size_t first_of(const struct mpi_comm *m, int rank, size_t n)
{
    return n / (size_t)m->comm.ranks * (size_t)rank +
           TD_MIN((size_t)rank, n % (size_t)m->comm.ranks);
}

static enum td_status reduce_long(struct mpi_comm *m, float *x, size_t n,
                                  struct td_error *err)
{
    int me = m->comm.rank, ranks = m->comm.ranks;
    size_t own = first_of(m, me, n), count = first_of(m, me + 1, n) - own;
    enum td_status s = make_room(m, n / (size_t)ranks + 1, err);
    for (int r = 0; r < ranks && s == TD_OK; r++) {
        size_t at = first_of(m, r, n), k = first_of(m, r + 1, n) - at;
        if (r == me)
            continue;
        s = receive_from(m, r, part_of(m, r), count * sizeof(*x), err);
        if (s == TD_OK)
            s = send_to(m, r, x + at, k * sizeof(*x), err);
    }
    if (s == TD_OK)
        s = finish(m, err);
    if (s != TD_OK)
        return s;
    add_up(m, x + own, count);
    for (int r = 0; r < ranks && s == TD_OK; r++) {
        size_t at = first_of(m, r, n), k = first_of(m, r + 1, n) - at;
        if (r == me)
            continue;
        s = receive_from(m, r, x + at, k * sizeof(*x), err);
        if (s == TD_OK)
            s = send_to(m, r, x + own, count * sizeof(*x), err);
    }
    return s == TD_OK ? finish(m, err) : s;
}

static enum td_status mpi_all_reduce(struct td_comm *c, float *x, size_t n,
                                     struct td_error *err)
{
    struct mpi_comm *m = (struct mpi_comm *)c;
    double start = td_clock_now();
    (void)atomic_fetch_add(&c->progress, 1);
    bool is_short = n * sizeof(*x) * (size_t)(c->ranks - 1) <= SHORT_BYTES;
    enum td_status s =
        is_short ? reduce_short(m, x, n, err) : reduce_long(m, x, n, err);
    c->counts.calls++;
    c->counts.bytes += (int64_t)(n * sizeof(*x));
    c->counts.seconds += td_clock_now() - start;
    return s;
}

/* ---- between rank 0 and the others ---------------------------------------------------- */

static enum td_status mpi_gather(struct td_comm *c, const void *in, size_t bytes,
                                 void *out, struct td_error *err)
{
    struct mpi_comm *m = (struct mpi_comm *)c;
    enum td_status s = TD_OK;
    double before = c->counts.waited;
    (void)atomic_fetch_add(&c->progress, 1);
    if (c->rank != 0)
        s = send_to(m, 0, in, bytes, err);
    else
        memcpy(out, in, bytes);
    for (int r = 1; r < c->ranks && s == TD_OK && c->rank == 0; r++)
        s = receive_from(m, r, (char *)out + (size_t)r * bytes, bytes, err);
    if (s == TD_OK)
        s = finish(m, err);
    c->counts.waited = before; /* of all-reduces only */
    return s;
}

static enum td_status mpi_broadcast(struct td_comm *c, void *p, size_t bytes,
                                    struct td_error *err)
{
    struct mpi_comm *m = (struct mpi_comm *)c;
    enum td_status s = TD_OK;
    double before = c->counts.waited;
    if (c->rank != 0)
        s = receive_from(m, 0, p, bytes, err);
    for (int r = 1; r < c->ranks && s == TD_OK && c->rank == 0; r++)
        s = send_to(m, r, p, bytes, err);
    if (s == TD_OK)
        s = finish(m, err);
    c->counts.waited = before;
    (void)atomic_fetch_add(&c->progress, 1);
    return s;
}

static enum td_status mpi_barrier(struct td_comm *c, struct td_error *err)
{
    char here = 0, all[TD_MAX_RANKS];
    enum td_status s = mpi_gather(c, &here, 1, all, err);
    return s == TD_OK ? mpi_broadcast(c, &here, 1, err) : s;
}

/* mpirun ends the other processes when this one has ended without a farewell. */
static void mpi_abort(struct td_comm *c)
{
    ((struct mpi_comm *)c)->failed = true;
}

/* After a failure the others would not come to the end that MPI waits for. */
static void mpi_free(struct td_comm *c)
{
    struct mpi_comm *m = (struct mpi_comm *)c;
    if (!m->failed)
        m->t.close();
    td_free(m->parts);
    td_free(m->hosts);
    td_free(m);
}

/* ---- opening --------------------------------------------------------------------------- */

static enum td_status open_transport(struct td_transport *out, struct td_error *err)
{
    char why[TD_ERROR_WHY_MAX];
    void *lib = td_library_open(library, true, why, sizeof(why));
    if (!lib) {
        td_error_set(err, TD_E_NOT_FOUND, "%s cannot be loaded", library);
        td_error_why(err, "%s", why);
        td_error_fix(err, "install Open MPI on this host, or build tandem where its "
                          "headers are (libopenmpi-dev)");
        return TD_E_NOT_FOUND;
    }
    td_transport_version_fn version;
    td_transport_open_fn open;
    *(void **)(&version) = td_library_symbol(lib, "td_transport_version");
    *(void **)(&open) = td_library_symbol(lib, "td_transport_open");
    if (!version || !open || version() != TD_TRANSPORT_VERSION) {
        td_error_set(err, TD_E_PEER, "%s is of another build", library);
        td_error_why(err, "the program and its libraries are replaced together");
        td_error_fix(err, "build or install both anew: make install");
        return TD_E_PEER;
    }
    if (open(out, why, sizeof(why)) < 0) {
        td_error_set(err, TD_E_PEER, "MPI does not start");
        td_error_why(err, "%s", why);
        return TD_E_PEER;
    }
    return TD_OK;
}

static enum td_status check_world(const struct td_transport *t, int ranks,
                                  struct td_error *err)
{
    if (t->ranks == ranks && ranks <= TD_MAX_RANKS)
        return TD_OK;
    td_error_set(err, TD_E_PEER, "MPI has started %d ranks, %d are expected", t->ranks,
                 ranks);
    td_error_why(err,
                 t->ranks == 1
                     ? "the program was started without mpirun, or with one that "
                       "does not belong to %s"
                     : "--world and the number of ranks of mpirun differ; this is "
                       "%s",
                 t->library);
    td_error_fix(err, "let `tandem --tp N` start the ranks, or use mpirun of the Open "
                      "MPI that tandem was built with");
    return TD_E_PEER;
}

/* Tells all ranks the names of all hosts. */
static enum td_status name_hosts(struct mpi_comm *m, struct td_error *err)
{
    char own[TD_ERROR_HOST_MAX] = "";
    size_t ranks = (size_t)m->comm.ranks;
    m->hosts = td_calloc(ranks, sizeof(*m->hosts));
    if (!m->hosts)
        return td_error_set(err, TD_E_NOMEM, "no memory for %zu ranks", ranks);
    (void)gethostname(own, sizeof(own) - 1);
    enum td_status s = mpi_gather(&m->comm, own, sizeof(own), m->hosts, err);
    if (s == TD_OK)
        s = mpi_broadcast(&m->comm, m->hosts, ranks * sizeof(*m->hosts), err);
    for (size_t r = 0; r < ranks; r++)
        m->hosts[r][TD_ERROR_HOST_MAX - 1] = '\0';
    m->t.guard(GONE_SECONDS); /* rank 0 and this one have spoken to each other */
    m->comm.hosts = (const char(*)[TD_ERROR_HOST_MAX])m->hosts;
    return s;
}

enum td_status td_comm_mpi(int ranks, double deadline, struct td_comm **out,
                           struct td_error *err)
{
    static const struct td_comm_ops ops = {
        .name = "mpi",
        .all_reduce = mpi_all_reduce,
        .gather = mpi_gather,
        .broadcast = mpi_broadcast,
        .barrier = mpi_barrier,
        .abort = mpi_abort,
        .free = mpi_free,
    };
    struct mpi_comm *m = td_calloc(1, sizeof(*m));
    if (!m)
        return td_error_set(err, TD_E_NOMEM, "no memory for %d ranks", ranks);
    enum td_status s = open_transport(&m->t, err);
    if (s != TD_OK) {
        td_free(m);
        return s;
    }
    m->comm.ops = &ops;
    m->comm.rank = m->t.rank;
    m->comm.ranks = m->t.ranks;
    m->comm.local_rank = m->t.local_rank;
    m->comm.local_ranks = m->t.local_ranks;
    m->comm.deadline = deadline;
    s = check_world(&m->t, ranks, err);
    if (s == TD_OK)
        s = name_hosts(m, err);
    if (s != TD_OK) {
        mpi_free(&m->comm);
        return s;
    }
    *out = &m->comm;
    return TD_OK;
}
