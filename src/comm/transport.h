/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comm/mpi.c needs of MPI: messages between two ranks, started and then asked for.
 * libtandem-mpi.so implements it and holds nothing else, so that the program runs where
 * there is no MPI. Everything above (collectives, deadlines, errors) is the program's.
 *
 * Functions return 1 (done), 0 (not yet) or a negative number (failed: why() tells). With
 * each peer at most one send and one receive is under way; messages between two ranks
 * keep their order.
 */
#ifndef TD_COMM_TRANSPORT_H
#define TD_COMM_TRANSPORT_H

#include <stddef.h>

enum { TD_TRANSPORT_VERSION = 2, TD_TRANSPORT_TEXT = 256 };

struct td_transport {
    int rank, ranks, local_rank, local_ranks;
    char library[TD_TRANSPORT_TEXT]; /* its name and version */
    int (*send)(int peer, const void *p, size_t bytes);
    int (*receive)(int peer, void *p, size_t bytes);
    int (*sent)(int peer);
    int (*received)(int peer);
    /* Connections made so far end when the other host answers nothing for so many
     * seconds; MPI itself would wait for a quarter of an hour, or for ever. */
    void (*guard)(int seconds);
    int (*whole)(void); /* negative: one of these has ended */
    const char *(*why)(void);
    void (*close)(void); /* waits for the others to call it as well */
};

/* Of the library. Negative: `why` tells. */
typedef int (*td_transport_version_fn)(void);
typedef int (*td_transport_open_fn)(struct td_transport *out, char *why, size_t size);

#endif
