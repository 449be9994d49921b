/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands in front of a log line: collectors, launchers, engines and runtimes each put
 * their own prefix there, up to six deep. td_line_parse() takes them off one by one and
 * keeps what they say.
 */
#ifndef TD_EXPLAIN_PREFIX_H
#define TD_EXPLAIN_PREFIX_H

#include <stddef.h>

enum {
    TD_LINE_MAX = 16384, /* bytes of a line that are looked at, the rest is ignored */
    TD_LINE_HOST_MAX = 64,
    TD_LINE_ROLE_MAX = 48
};

struct td_line {
    const char *text; /* the message itself, inside the caller's buffer */
    size_t len;
    double time; /* seconds since 1 January of some year, -1: not told */
    char host[TD_LINE_HOST_MAX]; /* name or address, "" when not told */
    char role[TD_LINE_ROLE_MAX]; /* "EngineCore_DP0", "raylet", compose service, "" */
    long pid;                    /* -1: not told */
    int rank;                    /* -1: not told */
    char level;                  /* D I W E C, 0: not told */
};

/* Copies a raw line without escape sequences (ESC[..m and syslog's #033[..m), control
 * bytes, docker's JSON wrapping and Ray's "[repeated Nx across cluster]" into out (at
 * most size - 1 bytes and a final zero); returns the bytes written. */
size_t td_line_clean(const char *raw, size_t n, char *out, size_t size);

/* Takes the prefixes off a cleaned line. line->text points into `text`. */
void td_line_parse(const char *text, size_t n, struct td_line *line);

#endif
