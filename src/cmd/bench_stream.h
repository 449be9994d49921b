/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event stream of an answer, as `tandem bench --url` reads it: text arrives in pieces
 * of any size, is cut into lines, and what counts is kept: when text came, how the answer
 * ended, what the server says it counted. The server is not ours and may send anything.
 */
#ifndef TD_CMD_BENCH_STREAM_H
#define TD_CMD_BENCH_STREAM_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Numbers that were measured, in the order of arrival. */
struct td_samples {
    double *p;
    size_t n, cap;
};

bool td_samples_add(struct td_samples *s, double value);
void td_samples_release(struct td_samples *s);

struct td_bench_stream {
    struct td_buf rest;      /* the beginning of a line */
    double first, last;      /* monotonic seconds of text; first 0: none came */
    int pieces;              /* events with text */
    int tokens, prompt;      /* as the server counts, -1: it did not say */
    bool complete;           /* a choice gave the reason of its end */
    char error[256];         /* what the stream said of a failure */
    struct td_samples *gaps; /* seconds between pieces; borrowed, may be NULL */
};

/* For many streams, one after the other; begin() forgets all of the one before. */
void td_bench_stream_init(struct td_bench_stream *s);
void td_bench_stream_release(struct td_bench_stream *s);
void td_bench_stream_begin(struct td_bench_stream *s, struct td_samples *gaps);

/* Reads what has arrived. False: a line is longer than any server's event, or there is no
 * memory for it. */
bool td_bench_stream_add(struct td_bench_stream *s, const char *p, size_t n);

/* Keeps what an error object (or its text) says. */
void td_bench_stream_error(struct td_bench_stream *s, const json_t *error);

#endif
