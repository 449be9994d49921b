/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What front and engine say to each other over their local socket.
 *
 * A frame is a header of eight bytes, {u32 bytes of the body, u16 type, u16 version},
 * and a body of little-endian values. Both sides check the version of the first frame,
 * HELLO; a body that is longer than TD_MAX_FRAME, cut short, or has bytes left over is
 * an error, and the connection is closed.
 *
 *     front -> engine   HELLO, SUBMIT, CANCEL
 *     engine -> front   HELLO, STATS, TOKENS, PROMPT_LOGPROBS, DONE
 *
 * The engine ends when the front closes the connection; requests are the front's, which
 * closes it when it has what it waits for.
 *
 * Events (base/log.h) do not travel here: every rank writes them to its standard output,
 * from its first moment on.
 *
 * td_wire_put_x() appends a frame to a buffer. td_wire_next() finds the next whole frame
 * in received bytes; td_wire_get_x() reads its body, with lists copied to an arena.
 */
#ifndef TD_ENGINE_WIRE_H
#define TD_ENGINE_WIRE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "sample/sample.h"

#include <stdbool.h>
#include <stdint.h>

enum { TD_WIRE_VERSION = 2, TD_WIRE_TEXT_MAX = 128 };

enum td_wire_type {
    TD_WIRE_HELLO = 1,
    TD_WIRE_SUBMIT,
    TD_WIRE_CANCEL,
    TD_WIRE_STATS,
    TD_WIRE_TOKENS,
    TD_WIRE_PROMPT_LOGPROBS,
    TD_WIRE_DONE
};

/* The first frame of each side. The front fills version and build only. */
struct td_wire_hello {
    int32_t version;
    char build[TD_WIRE_TEXT_MAX];
    int32_t ranks, max_len, max_seqs, max_rows, vocab, kv_blocks, kv_block_tokens;
    int64_t memory; /* bytes on the device of one rank */
    char level[TD_WIRE_TEXT_MAX];
};

/* A request. `generated` is not empty when it is resumed: prompt and generated ids are
 * prefilled, and the answer goes on behind them. */
struct td_wire_submit {
    uint64_t id; /* chosen by the front, never used twice on a connection */
    const int32_t *prompt, *generated;
    int32_t n_prompt, n_generated;
    int32_t max_tokens; /* to generate in all, those of `generated` included; >= 1 */
    int32_t prompt_logprobs;  /* alternatives for each prompt position, -1: none */
    const int32_t *snapshots; /* rising positions where a message ends, hints */
    int32_t n_snapshots;
    struct td_sampling sampling;
};

struct td_wire_stats {
    int32_t running, waiting;
    int32_t kv_used, kv_total; /* blocks; cached ones that nobody uses are not `used` */
    int32_t slots_used, slots_total;
    int64_t prefix_queries, prefix_hits; /* prompt tokens looked up and found, in all */
    int64_t prompt_tokens, generated_tokens, preemptions, steps; /* in all */
    double step_seconds;                                         /* in all */
    double sum_seconds,
        wait_seconds; /* of these: adding up over ranks; of that: waiting
                                         for other ranks */
};

/* One token of a request. Log probabilities are set when the request asked for them. */
struct td_wire_token {
    uint64_t request;
    int32_t id, rank, n_top;
    float logprob;
    const struct td_logprob *top; /* [n_top] */
};

/* What the model thought of a prompt position: the token there, given those before. */
struct td_wire_prompt_logprobs {
    uint64_t request;
    int32_t first, n; /* positions first .. first + n; position 0 has none */
    const struct td_wire_token *entries;
};

enum td_done_reason {
    TD_DONE_STOP,      /* stop_id came */
    TD_DONE_LENGTH,    /* max_tokens, or the context ended */
    TD_DONE_CANCELLED, /* on request */
    TD_DONE_REFUSED,   /* could never run: error says why */
    TD_DONE_FAILED     /* the engine failed on it: error says why */
};

struct td_wire_done {
    uint64_t request;
    enum td_done_reason reason;
    int32_t stop_id;
    int32_t cached; /* prompt tokens that came from the prefix cache */
    struct td_error error;
};

struct td_frame {
    enum td_wire_type type;
    const char *body; /* borrowed from the received bytes */
    size_t n;
};

/* Looks for a whole frame at the start of n received bytes. TD_OK with *used > 0: there
 * is one, of that many bytes; with *used 0: more bytes are needed. TD_E_PEER: the bytes
 * are no frame of this version. */
enum td_status td_wire_next(const char *bytes, size_t n, struct td_frame *out,
                            size_t *used, struct td_error *err);

/* Append a frame; they return the buffer's status. */
enum td_status td_wire_put_hello(struct td_buf *b, const struct td_wire_hello *m);
enum td_status td_wire_put_submit(struct td_buf *b, const struct td_wire_submit *m);
enum td_status td_wire_put_cancel(struct td_buf *b, uint64_t request);
enum td_status td_wire_put_stats(struct td_buf *b, const struct td_wire_stats *m);
enum td_status td_wire_put_tokens(struct td_buf *b, const struct td_wire_token *tokens,
                                  int32_t n);
enum td_status td_wire_put_prompt_logprobs(struct td_buf *b,
                                           const struct td_wire_prompt_logprobs *m);
enum td_status td_wire_put_done(struct td_buf *b, const struct td_wire_done *m);

/* Read a frame's body. TD_E_PEER for a body that does not add up, TD_E_NOMEM. Lists live
 * in the arena. */
enum td_status td_wire_get_hello(const struct td_frame *f, struct td_wire_hello *out,
                                 struct td_error *err);
enum td_status td_wire_get_submit(const struct td_frame *f, struct td_arena *a,
                                  struct td_wire_submit *out, struct td_error *err);
enum td_status td_wire_get_cancel(const struct td_frame *f, uint64_t *out,
                                  struct td_error *err);
enum td_status td_wire_get_stats(const struct td_frame *f, struct td_wire_stats *out,
                                 struct td_error *err);
enum td_status td_wire_get_tokens(const struct td_frame *f, struct td_arena *a,
                                  struct td_wire_token **out, int32_t *n,
                                  struct td_error *err);
enum td_status td_wire_get_prompt_logprobs(const struct td_frame *f, struct td_arena *a,
                                           struct td_wire_prompt_logprobs *out,
                                           struct td_error *err);
enum td_status td_wire_get_done(const struct td_frame *f, struct td_wire_done *out,
                                struct td_error *err);

#endif
