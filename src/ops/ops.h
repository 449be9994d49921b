/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operation table: everything a forward pass does, as coarse operations on device
 * memory. A shelf (ref, x86, arm, cuda) implements the table; the model room only calls
 * it and never looks behind a device pointer.
 *
 * Contracts that every shelf keeps
 *
 *   No decision on the host. A forward is a fixed sequence of calls for given row
 *   counts. Routing, lengths, positions and block numbers are device data (struct
 *   td_batch), so a decode step can be recorded once and replayed.
 *
 *   A row stands alone. The bits of a row's result depend neither on the number of rows
 *   nor on the other rows, nor on how a prompt was cut into pieces (cuts lie on
 *   multiples of TD_CHUNK), nor on the number of threads. Every output has one order of
 *   summation.
 *
 *   Order. Calls on one device take effect in the order they were made. get() and sync()
 *   wait for them; nothing else does.
 *
 *   No allocation in the step. alloc() and reserve() are for the start; operations use
 *   what reserve() set aside.
 *
 *   Errors. Operations have none: shapes were checked when the model was made. A device
 *   that is lost reports it from the next sync().
 *
 * Numbers: activations are f32 between operations. In TD_NUM_F32 mode all products are
 * f32 and the KV cache is f32. In TD_NUM_BF16 mode the inputs of linear() and experts()
 * are rounded to bf16 (nearest even) before the products unless a term says exact, the
 * KV cache is bf16, sums stay f32.
 *
 * Shapes are row-major; [rows][n] with a stride s means row r starts at r * s elements.
 */
#ifndef TD_OPS_OPS_H
#define TD_OPS_OPS_H

#include "base/dtype.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TD_CHUNK = 64,        /* prompt pieces begin at multiples of this position */
    TD_KV_BLOCK = 64,     /* tokens in a block of the KV cache */
    TD_SCALE_BLOCK = 128, /* rows and columns that share an FP8 scale */
    TD_LINEAR_MAX = 6,    /* products that one linear() call may share an input for */
    TD_JOIN_ID = 128,     /* bytes that ranks share in order to join their devices */
    TD_JOIN_PLACE = 64,
    TD_CANDIDATES = 64, /* ids that candidates() keeps of a row of logits */
    TD_OPS_VERSION = 14 /* rises with every change of this file that a library built
                             before it would not understand */
};

enum td_numerics { TD_NUM_F32, TD_NUM_BF16 };

/* How a matrix is held. F16 checkpoints are widened to f32, which is exact. */
enum td_mat_type { TD_MAT_F8, TD_MAT_BF16, TD_MAT_F32 };

/* A weight matrix W[n][k] in a shelf's own layout: y = W x. The model decides n, k and
 * type and gives the memory; pack() fills it. */
struct td_matrix {
    enum td_mat_type type;
    int64_t n, k;
    void *data;   /* device, matrix_bytes() bytes */
    float *scale; /* device, [ceil(n/128)][ceil(k/128)], only for TD_MAT_F8 */
};

/* The rows of one forward. Counts are known to the host; arrays are device memory.
 *
 * Sequences come in two groups: first n_decode ones with a single, generated token each
 * (rows 0 .. n_decode), then n_prefill pieces of prompts. A piece begins at a position
 * that is a multiple of TD_CHUNK. start 0 means a new sequence: whatever its slot holds
 * counts as zero. A row whose seq is negative is padding: it may compute anything and
 * writes to no cache or state. */
struct td_batch {
    int32_t rows, n_decode, n_prefill;
    int32_t max_blocks;    /* row length of `blocks` */
    const int32_t *token;  /* [rows] */
    const int32_t *pos;    /* [rows] position of the row in its sequence */
    const int32_t *seq;    /* [rows] index of its sequence in this batch */
    const int32_t *row0;   /* [n_seqs + 1] first row of each sequence */
    const int32_t *slot;   /* [n_seqs] state slot */
    const int32_t *blocks; /* [n_seqs][max_blocks] KV blocks, in order of position */
};

/* The KV cache of one attention layer: k and v are [block][kv head][TD_KV_BLOCK][dim],
 * elements f32 or bf16 by the device's numerics. */
struct td_kv {
    void *k, *v;
};

/* x[rows][h] = table row of each token. A rank that holds the rows of tokens first ..
 * first + table->n only gives zeros for the others. */
struct td_embed_args {
    const struct td_matrix *table; /* [n][h] */
    int64_t first;
    const int32_t *token; /* device [rows] */
    float *x;
    int32_t rows;
};

/* s = x + add (x alone without add), y = s / rms(s) * w, and s is stored in `sum` when
 * given (which may be x itself). With `index`, row i of y and sum is made from row
 * index[i] of x and add.
 * w already holds 1 + weight where the model's norm is zero-centered. */
struct td_norm_args {
    const float *x;       /* [rows][h] */
    const float *add;     /* [rows][h] or NULL */
    float *sum;           /* [rows][h] or NULL */
    const float *w;       /* [h] */
    float *y;             /* [rows][y_stride] */
    const int32_t *index; /* device [rows], or NULL */
    int64_t h, y_stride;
    float eps;
    int32_t rows;
};

/* y_i[rows][n_i] = x W_i^T for several matrices that read the same input. `norm` and
 * `adds` are for as many rows as the shelf `fuses`. */
struct td_linear_args {
    const float *x; /* [rows][x_stride], the first k of each row are used */
    const struct td_norm_args *norm; /* not NULL: done first, its y being x */
    int64_t x_stride;
    int32_t rows, count;
    struct td_linear_term {
        const struct td_matrix *w; /* [n][k], the same k for all terms */
        float *y;                  /* [rows][y_stride] */
        int64_t y_stride;
        bool exact; /* inputs are not rounded in bf16 mode (router, gates) */
        bool adds;  /* y += instead */
    } term[TD_LINEAR_MAX];
};

/* Gated attention's way in. Normalizes each query and key head (RMS over head_dim, w
 * holds 1 + weight), rotates the first `rotary` dims of both by the row's position (dim
 * i pairs with i + rotary / 2), and stores keys and values in the cache.
 * qg is [rows][n_heads][2 * head_dim]: query, then gate; the query halves change. */
struct td_qkv_args {
    const struct td_batch *batch;
    float *qg;
    const float *k, *v;           /* [rows][n_kv * head_dim] */
    const float *q_norm, *k_norm; /* [head_dim] */
    const float *inv_freq;        /* [rotary / 2] */
    struct td_kv kv;
    int32_t n_heads, n_kv, head_dim, rotary;
    float eps;
};

/* y = sigmoid(gate) * softmax(q k^T * scale, causal) v, heads in contiguous groups per
 * kv head. y is [rows][n_heads * head_dim]. Keys of this batch are already stored, or are
 * by `qkv`, of the same batch, qg, cache and heads, which a shelf that `fuses` anything
 * takes along, for any number of rows; what qkv() leaves in qg need not be written then. */
struct td_attention_args {
    const struct td_batch *batch;
    const struct td_qkv_args *qkv; /* not NULL: comes first */
    const float *qg;
    struct td_kv kv;
    float *y;
    int32_t n_heads, n_kv, head_dim;
    float scale;
    const struct td_matrix *to_product; /* see struct td_gated_norm_args */
};

/* Causal depthwise convolution over `width` tokens and SiLU. The state keeps the last
 * width - 1 inputs of a sequence, oldest first: [slot][width - 1][channels].
 * w is [channels][width], the last column multiplies the current token. */
struct td_conv_args {
    const struct td_batch *batch;
    const float *u; /* [rows][channels] */
    const float *w;
    float *state, *y;
    int32_t channels, width;
};

/* Gated delta rule (spec: L2 norm of q and k with 1e-6 inside the root, q scaled by
 * dk^-1/2; g = a_neg * softplus(a + dt_bias); beta = sigmoid(b); decay, predict, correct,
 * read). Decode rows use the recurrence, prompt pieces the chunked form over TD_CHUNK
 * tokens. c holds q, k [n_k][dk] and v [n_v][dv] side by side.
 * Value head j uses key head j / (n_v / n_k). State: [slot][n_v][dk][dv]. */
struct td_delta_args {
    const struct td_batch *batch;
    const float *c;               /* [rows][2 * n_k * dk + n_v * dv] */
    const float *a, *b;           /* [rows][n_v] */
    const float *a_neg, *dt_bias; /* [n_v], a_neg = -exp(A_log) */
    float *state;
    float *y; /* [rows][n_v * dv] */
    int32_t n_k, n_v, dk, dv;
};

/* Per head of `dim`: y = x / rms(x) * w * silu(z), in place.
 * to_product, if not NULL: nobody reads the result but the linear() that follows, of
 * rounded terms with weights of that one's type, which is not F32. A shelf may leave it in
 * a form of its own. */
struct td_gated_norm_args {
    float *x;       /* [rows][heads * dim] */
    const float *z; /* [rows][heads * dim] */
    const float *w; /* [dim] */
    float eps;
    int32_t rows, heads, dim;
    const struct td_matrix *to_product;
};

/* Gated DeltaNet up to its last product, operations in this order: linear() of `in`; both
 * gates' products with the same input, exact, to a and b; conv(); delta(), which reads a,
 * b and what conv() gave; gated_norm() of what delta() gave. What one of them leaves to
 * the next (a, b, conv.y) need not be written. */
struct td_gdn_args {
    struct td_linear_args in;
    const float *x; /* [rows][k of the gates] */
    const struct td_matrix *gate_a, *gate_b;
    float *a, *b; /* those of delta */
    struct td_conv_args conv;
    struct td_delta_args delta;
    struct td_gated_norm_args norm;
};

/* gate = silu(gate) * up, [rows][n]. */
struct td_swiglu_args {
    float *gate;
    const float *up;
    int32_t rows;
    int64_t n;
};

/* Softmax over all experts, the k largest (lowest index first among equals, in order of
 * falling probability), their weights divided by their sum. */
struct td_route_args {
    const float *logits; /* [rows][experts] */
    int32_t *id;         /* [rows][k] */
    float *weight;       /* [rows][k] */
    int32_t rows, experts, k;
};

/* y = sum over the chosen experts of weight * down(silu(gate x) * up x), added up in
 * the order of the choice, then (when shared_down is given)
 * + sigmoid(shared_gate) * shared expert.
 * gate, up and down are host arrays of `experts` matrices that were carved at equal
 * distances from one allocation. `logits` and `adds` are for as many rows as the
 * shelf `fuses`. */
struct td_experts_args {
    const float *x; /* [rows][h] */
    int32_t *id;    /* [rows][k] */
    float *weight;  /* [rows][k] */
    const float
        *logits; /* not NULL: route() of them comes first, and what it gives need
                            not be written */
    const struct td_matrix *gate, *up, *down; /* [size][h], [h][size] */
    const struct td_matrix *shared_gate_proj, *shared_up, *shared_down;
    const float *shared_gate; /* [rows] logits of the shared expert's gate */
    float *y;                 /* [rows][h] */
    int32_t rows, experts, k;
    bool adds; /* y += instead */
};

/* Numbers for rows row .. row + n of a matrix, spread evenly over -range .. range, made
 * from `seed` and their place in a whole of `cols` columns, where the first of the rows
 * is from_row and the first column from_col: the same bits on every shelf, and in
 * whatever parts a whole is made. FP8 codes spread over all of the format; blocks whose
 * first row and column divide by TD_SCALE_BLOCK get scales, 0.5 to 1.5 times as large
 * as range needs. */
struct td_fill_args {
    const struct td_matrix *m;
    int64_t row, n;
    int64_t from_row, from_col, cols;
    float range;
    uint64_t seed;
};

/* What a sampler needs to know of a row of logits, nearly always. */
struct td_candidates {
    float max; /* the largest logit; -INFINITY for a row of none */
    float sum; /* of exp(logit - max) over the row; NAN when a logit is not finite, and
                  nothing else of the row counts then */
    int32_t id[TD_CANDIDATES];
    float logit[TD_CANDIDATES];
};

/* The TD_CANDIDATES best ids of each row in the order of the sampler: larger logits
 * first, of equal ones the lower id. Column c of a row is id first + c; the first n
 * columns count, and if they are fewer than TD_CANDIDATES, the rest of the list is id -1
 * and logit -INFINITY. */
struct td_candidates_args {
    const float *logits; /* [rows][stride] */
    int64_t stride, n, first;
    struct td_candidates *out; /* device [rows] */
    int32_t rows;
};

/* The largest of everything that operations will be asked for; reserve() sizes the
 * shelf's work memory from it. */
struct td_reserve {
    int32_t max_rows; /* rows of a forward */
    int32_t max_seqs; /* sequences of a forward */
    int32_t max_len;  /* tokens of a sequence */
    int32_t max_out;  /* rows with logits of a forward */
    int64_t vocab;    /* longest row of logits */
    int64_t max_k;    /* longest input row of a linear() */
    int64_t hidden;
    int32_t n_heads, n_kv, head_dim;
    int32_t n_k, n_v, dk, dv;
    int32_t experts, experts_k;
    int64_t expert_size, shared_size;
    int32_t layers;
    int32_t steps; /* that begin() may come to know */
};

/* How the devices of several ranks sum up. */
struct td_join {
    int rank, ranks;
    bool direct;                  /* among themselves; false: by way of sum() */
    unsigned char id[TD_JOIN_ID]; /* the same on all ranks; only for direct */
    double deadline;              /* seconds that other ranks are waited for */
    /* x[n] in host memory becomes the sum over all ranks, terms in their order. */
    enum td_status (*sum)(void *self, float *x, size_t n, struct td_error *err);
    void *self;
};

struct td_dev;
struct td_limits;

struct td_ops {
    const char *name; /* the level: "ref", "avx2", ... */

    /* Zeroed device memory aligned to 64 bytes, taken from the device's budget; a label
     * for reports. TD_E_MEMORY_PLAN or TD_E_NOMEM. Freed by close(). */
    enum td_status (*alloc)(struct td_dev *dev, size_t bytes, const char *label,
                            void **out, struct td_error *err);
    enum td_status (*reserve)(struct td_dev *dev, const struct td_reserve *r,
                              struct td_error *err);
    /* Bytes that reserve() would take from the budget: work memory, and what the driver
     * will need for recorded steps. */
    size_t (*reserve_bytes)(const struct td_dev *dev, const struct td_reserve *r);
    void (*close)(struct td_dev *dev);

    /* Host to device, device to device, device to host (waits), zeros. */
    void (*put)(struct td_dev *dev, void *dst, const void *src, size_t bytes);
    void (*copy)(struct td_dev *dev, void *dst, const void *src, size_t bytes);
    void (*get)(struct td_dev *dev, void *dst, const void *src, size_t bytes);
    void (*zero)(struct td_dev *dev, void *dst, size_t bytes);
    enum td_status (*sync)(struct td_dev *dev, struct td_error *err);

    /* Brackets of a step that may be recorded. Between two begin() with the same key the
     * arguments of all calls up to end() are equal; what device memory holds may differ,
     * and the calls are operations alone. begin() returns false when the shelf knows the
     * step: the calls are left out, and end() replays them. end() returns false when the
     * step could not be recorded, for lack of memory say: nothing was computed, and it has
     * to be made again, brackets and all; it will not be recorded then. NULL: nothing is
     * recorded, all calls are made. */
    bool (*begin)(struct td_dev *dev, uint64_t key);
    bool (*end)(struct td_dev *dev);

    /* Bytes of a matrix's data in this shelf's layout (a multiple of 64). */
    size_t (*matrix_bytes)(const struct td_dev *dev, enum td_mat_type type, int64_t n,
                           int64_t k);

    /* Fills rows row .. row + n of a matrix from contiguous checkpoint rows of k
     * elements. src is host memory. Thread-safe for disjoint rows. */
    void (*pack)(struct td_dev *dev, const struct td_matrix *m, int64_t row, int64_t n,
                 const void *src, enum td_dtype type);

    /* Where such rows may be written instead, on this host, exactly as they are in the
     * checkpoint; NULL when only pack() can bring them there. The entry may be NULL. The
     * caller writes them next, with the thread that asked. */
    void *(*place)(struct td_dev *dev, const struct td_matrix *m, int64_t row,
                   enum td_dtype type);

    /* Host memory that weights pass through on their way to the device, or NULL where
     * pack() is done when it returns. stage() takes n areas of `bytes` side by side, page
     * aligned; until stage_end(), which waits for all, pack() and its like copy from them
     * behind the caller's back, and an area may be written again behind stage_wait() of
     * it. False: not possible here, all is as without. Threads may wait for different
     * areas at a time. */
    bool (*stage)(struct td_dev *dev, void *areas, int n, size_t bytes);
    void (*stage_wait)(struct td_dev *dev, int area);
    void (*stage_end)(struct td_dev *dev);

    /* Fills rows from a hash; for models without files. */
    void (*fill)(struct td_dev *dev, const struct td_fill_args *args);

    void (*embed)(struct td_dev *dev, const struct td_embed_args *args);
    void (*norm)(struct td_dev *dev, const struct td_norm_args *args);
    void (*linear)(struct td_dev *dev, const struct td_linear_args *args);
    void (*qkv)(struct td_dev *dev, const struct td_qkv_args *args);
    void (*attention)(struct td_dev *dev, const struct td_attention_args *args);
    void (*conv)(struct td_dev *dev, const struct td_conv_args *args);
    void (*delta)(struct td_dev *dev, const struct td_delta_args *args);
    void (*gated_norm)(struct td_dev *dev, const struct td_gated_norm_args *args);
    void (*swiglu)(struct td_dev *dev, const struct td_swiglu_args *args);
    void (*route)(struct td_dev *dev, const struct td_route_args *args);
    void (*experts)(struct td_dev *dev, const struct td_experts_args *args);
    /* Of a rank among several. NULL on processors: there the host sums up what lies in
     * its own memory.
     * join_place() names the device, as no other of its host is named, and says whether
     * it could be joined directly to devices that have another name or host. join_id()
     * makes an id, on one rank. join() meets the other ranks, before reserve(); after a
     * failure it may be called again, not directly. all_reduce() then makes x[n] the sum
     * over all ranks, terms in their order; failures come from the next sync(). */
    bool (*join_place)(struct td_dev *dev, char place[TD_JOIN_PLACE]);
    enum td_status (*join_id)(struct td_dev *dev, unsigned char id[TD_JOIN_ID],
                              struct td_error *err);
    enum td_status (*join)(struct td_dev *dev, const struct td_join *how,
                           struct td_error *err);
    void (*all_reduce)(struct td_dev *dev, float *x, size_t n);

    /* NULL on a shelf that has no better way than the operations they consist of. */
    void (*gdn)(struct td_dev *dev, const struct td_gdn_args *args);
    int32_t fuses; /* rows up to which linear() and experts() know what their arguments
                      name this for; 0: none */

    /* NULL on a shelf without it: whole rows are read then. */
    void (*candidates)(struct td_dev *dev, const struct td_candidates_args *args);

    /* For benchmarks: see td_limits_of(), which is what to call. NULL on processors. */
    void (*limits)(struct td_dev *dev, bool products, struct td_limits *out);
};

/* The common part of every shelf's device; shelves extend it. */
struct td_dev {
    struct td_ops ops;
    enum td_numerics numerics;
    int threads;
    bool host;           /* its memory is this process's own */
    size_t used, budget; /* bytes allocated, bytes allowed */
    bool shared;         /* its memory is the host's */
    const char *taken;   /* of a GPU: who else holds its memory, as part of a sentence;
                            NULL or "" when nobody is known to */
    int recorded;        /* steps that begin() knows */
    size_t recorded_bytes; /* what the driver took for them; reserve() sets it aside */
};

struct td_dev_params {
    enum td_numerics numerics;
    int threads;                 /* 0: one for each core of this rank's share */
    int local_rank, local_ranks; /* among the ranks of this host, which share its cores,
                                    and take its GPUs in turn, from `device` on; 0 of
                                    0: the only one */
    size_t budget;     /* bytes that alloc() may give out in all; of a GPU, 0: what is
                          free, and never more than that */
    const char *level; /* highest level allowed ("ref", "avx2", ...), NULL: the best */
    int device;        /* which GPU, from 0 */
    bool no_graphs;    /* begin() and end() are NULL */
};

/* Opens this host's processor as a device: the reference table first, then what the
 * best allowed level does better. TD_E_USAGE names the known levels when `level` is
 * not one or cannot run here. Close with dev->ops.close(dev). */
enum td_status td_cpu_open(const struct td_dev_params *params, struct td_dev **out,
                           struct td_error *err);

/* The number of the best level of this processor that is not above `highest` (NULL: of
 * all), -1 when there is none of that name; and its name. Levels rise. */
int td_cpu_level(const char *highest);
const char *td_cpu_level_name(int level);

/* Opens an NVIDIA GPU. Its code lies in libtandem-cuda.so, which is loaded when it is
 * first asked for. TD_E_NO_DEVICE when there is no library, driver or GPU; TD_E_DEVICE
 * when there is one that cannot be used, such as with too old a driver. Close with dev->ops.close(dev).
 *
 * Its alloc() reports TD_E_NOMEM with what is free; failures of operations come from the
 * next sync() as TD_E_DEVICE. */
enum td_status td_cuda_open(const struct td_dev_params *params, struct td_dev **out,
                            struct td_error *err);

/* Whether the library is there; opens no GPU. */
bool td_cuda_present(void);

/* Bytes of one KV element under these numerics. */
static inline size_t td_kv_element(enum td_numerics numerics)
{
    return numerics == TD_NUM_BF16 ? 2 : 4;
}

static inline int64_t td_scale_blocks(int64_t n)
{
    return (n + TD_SCALE_BLOCK - 1) / TD_SCALE_BLOCK;
}

#endif
