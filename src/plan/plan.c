/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank takes and whether it fits. See plan.h.
 */
#include "plan/plan.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sysmem.h"
#include "sample/sample.h"

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_ROWS = 512,
    GPU_ROWS = 2048,         /* shorter pieces take a GPU twice as long a token */
    PROMPT_OUTS = 64,        /* prompt rows with logits in a server's step */
    LONGEST_UNASKED = 32768, /* context that is planned for when none is asked for */
    SHORTEST = 256,          /* below this a start that does not fit is refused */
    MOST_SNAPSHOTS = 4096,
    PREFIX_STATES = 16,
    THREAD_BYTES = 64 << 10 /* of a thread's stack and its allocator, as measured */
};

/* Left to the system: a part of the memory, within bounds. */
#define RESERVE_PART 20
#define MIN_RESERVE  (128 * TD_MIB)
#define MAX_RESERVE  (8 * TD_GIB)

static int32_t blocks_for(int32_t tokens)
{
    return (tokens + TD_KV_BLOCK - 1) / TD_KV_BLOCK;
}

void td_plan_adapt(struct td_plan_asked *a, const struct td_dev *dev, int ranks,
                   int32_t vocab)
{
    if (ranks > 1 || !dev->host)
        a->vocab = vocab ? vocab : INT32_MAX;
    if (!dev->host && !a->max_rows)
        a->max_rows =
            TD_MAX(GPU_ROWS, (a->max_seqs + TD_CHUNK - 1) / TD_CHUNK * TD_CHUNK);
}

void td_plan_limits(const struct td_plan_asked *a, struct td_model_limits *out)
{
    struct td_model_limits l = {.max_seqs = TD_MAX(a->max_seqs, 1), .vocab = a->vocab};
    l.max_rows = a->max_rows ? a->max_rows : TD_MAX(DEFAULT_ROWS, l.max_seqs);
    l.max_out = TD_MAX(a->max_out, l.max_seqs);
    if (a->serves) {
        l.max_out = l.max_seqs + PROMPT_OUTS;
        l.max_rows = TD_MAX(l.max_rows, l.max_seqs + TD_CHUNK);
    }
    l.max_len = a->max_len ? a->max_len : TD_CHUNK;
    *out = l;
}

int64_t td_plan_prefix_bytes(const struct td_config *config)
{
    int64_t bytes = PREFIX_STATES * td_config_state_bytes(config);
    return TD_MIN(TD_MAX(bytes, 128 * TD_MIB), 4 * TD_GIB);
}

/* ---- what there is ------------------------------------------------------------------ */

static int64_t reserve_of(int64_t total)
{
    return TD_MIN(TD_MAX(total / RESERVE_PART, MIN_RESERVE), MAX_RESERVE);
}

/* Bytes that one of the ranks may still take, and what bounds them. */
static int64_t share_of(const struct td_sysmem *mem,
                        const struct td_plan_beside *beside, int64_t reserve,
                        struct td_plan_room *r)
{
    char bound[160], kept[64] = "", front[64] = "", share[64] = "";
    int64_t available = td_sysmem_available(mem, bound, sizeof(bound));
    int ranks = TD_MAX(beside->ranks, 1);
    if (reserve)
        (void)snprintf(kept, sizeof(kept), "; %s stay in reserve",
                       td_size_text(reserve, 1).text);
    if (beside->taken)
        (void)snprintf(front, sizeof(front), "; %s are the server's front",
                       td_size_text(beside->taken, 1).text);
    if (ranks > 1)
        (void)snprintf(share, sizeof(share), "; %d ranks share the rest", ranks);
    (void)snprintf(r->bound, sizeof(r->bound), "%s%s%s%s", bound, kept, front, share);
    return TD_MAX(available - reserve - beside->taken, 0) / ranks;
}

void td_plan_room_of(const struct td_sysmem *mem, int64_t program, int64_t asked_memory,
                     const struct td_plan_beside *beside, struct td_plan_room *out)
{
    int64_t process = TD_MIN(mem->space_limit, mem->data_limit);
    int64_t total = TD_MIN(TD_MIN(mem->total, mem->group_limit), process);
    struct td_plan_room r = {.total = total, .program = program, .shared = true};
    r.reserve = asked_memory ? 0 : reserve_of(total);
    r.host = share_of(mem, beside, r.reserve, &r) + program;
    r.asked = asked_memory && asked_memory < r.host;
    if (r.asked) {
        r.host = asked_memory;
        (void)snprintf(r.bound, sizeof(r.bound), "--memory allows %s",
                       td_size_text(asked_memory, 1).text);
    }
    r.device = r.host;
    *out = r;
}

enum td_status td_plan_room_find(const struct td_dev *device, int64_t asked_memory,
                                 const struct td_plan_beside *beside,
                                 struct td_plan_room *out, struct td_error *err)
{
    struct td_sysmem mem;
    struct td_plan_room r;
    int64_t budget = (int64_t)device->budget;
    enum td_status s = td_sysmem_read("", &mem, err);
    if (s != TD_OK)
        return s;
    td_plan_room_of(&mem, mem.resident, asked_memory, beside, &r);
    r.shared = device->shared;
    if (!device->shared || budget < r.device) {
        r.device = budget;
        r.asked = asked_memory == budget;
        const char *taken = device->taken && !r.asked ? device->taken : "";
        (void)snprintf(r.bound, sizeof(r.bound),
                       r.asked ? "--memory allows %s%s%s"
                               : "%s of the GPU's memory can be used%s%s",
                       td_size_text(budget, 1).text, *taken ? "; " : "", taken);
    }
    *out = r;
    return TD_OK;
}

/* ---- what it takes ------------------------------------------------------------------ */

/* A plan in the making. */
struct planner {
    struct td_model *model;
    struct td_dev *dev;
    const struct td_plan_asked *asked;
    const struct td_plan_room *room;
};

static void process_of(const struct planner *k, struct td_plan *p)
{
    const struct td_model_limits *l = &p->limits;
    struct td_load_opts load = k->asked->load;
    int32_t vocab = td_model_config(k->model)->vocab;
    int64_t row = vocab * (int64_t)sizeof(float);
    struct td_range part = td_model_vocab(k->model);
    /* rows are kept where sampling cannot read the device's: rank 0's, a GPU's */
    bool keeps = part.count < vocab ? part.first == 0 : !k->dev->host;
    int32_t samplers = k->asked->serves ? l->max_seqs : 1;
    load.dev = k->dev;
    p->process = (struct td_plan_process){
        .program = k->room->program,
        .logits = (keeps ? l->max_out : 0) * row + 2 * row,
        .samplers = samplers * (int64_t)td_sampler_bytes(vocab, l->max_len),
        .threads = (int64_t)k->dev->threads * THREAD_BYTES,
        .lists = p->bytes.lists,
        /* columns are copied out of as much of the page cache as there is staging */
        .staging =
            td_load_staging(&load, p->bytes.weights) * (part.count < vocab ? 2 : 1)};
}

/* Sizes under these limits, with so many blocks and saved states. */
static void add_up(const struct planner *k, struct td_plan *p)
{
    td_model_set_limits(k->model, &p->limits);
    td_model_bytes(k->model, &p->bytes);
    process_of(k, p);
    const struct td_plan_process *c = &p->process;
    p->beside = c->program + c->logits + c->threads +
                TD_MAX(c->lists + c->staging, c->samplers);
    p->shared = k->room->shared;
    p->kv = p->bytes.kv_block * p->n_blocks;
    p->states = p->bytes.state * p->limits.max_seqs;
    p->prefixes = p->bytes.state * p->n_snapshots;
    p->device = p->bytes.weights + p->bytes.work + p->bytes.shelf + p->kv + p->states +
                p->prefixes;
    p->peak = p->beside + (p->shared ? p->device : 0);
    p->full = p->n_blocks / TD_MAX(blocks_for(p->limits.max_len), 1);
    p->limit = k->room->shared ? k->room->host : k->room->device;
}

/* Bytes that are left, negative when it does not fit. */
static int64_t spare(const struct planner *k, const struct td_plan *p)
{
    int64_t device = k->room->device - p->device;
    return k->room->shared ? TD_MIN(device, k->room->host - p->peak) : device;
}

/* One sequence of max_len tokens, states for all: the least that a start needs. */
static int64_t least(const struct planner *k, int32_t max_len, int32_t max_seqs,
                     struct td_plan *p)
{
    struct td_plan_asked a = *k->asked;
    a.max_seqs = max_seqs;
    *p = (struct td_plan){.n_blocks = blocks_for(max_len)};
    td_plan_limits(&a, &p->limits);
    p->limits.max_len = max_len;
    add_up(k, p);
    return spare(k, p);
}

/* ---- refusal ------------------------------------------------------------------------ */

/* What is advised has to hold in the next run too, whose program may be larger by some
 * pages of its files. */
enum { ADVICE_SPARE = 1 << 20 };

/* The longest context that fits with so many sequences, 0: none. */
static int32_t longest(const struct planner *k, int32_t max_seqs, int32_t most)
{
    struct td_plan p;
    int32_t lo = 0, hi = most / TD_CHUNK;
    if (least(k, most, max_seqs, &p) >= ADVICE_SPARE)
        return most;
    while (lo < hi) {
        int32_t middle = (lo + hi + 1) / 2;
        if (least(k, middle * TD_CHUNK, max_seqs, &p) >= ADVICE_SPARE)
            lo = middle;
        else
            hi = middle - 1;
    }
    return lo * TD_CHUNK;
}

static int32_t most_seqs(const struct planner *k, int32_t max_len, int32_t most)
{
    struct td_plan p;
    int32_t lo = 0, hi = most;
    while (lo < hi) {
        int32_t middle = (lo + hi + 1) / 2;
        if (least(k, max_len, middle, &p) >= ADVICE_SPARE)
            lo = middle;
        else
            hi = middle - 1;
    }
    return lo;
}

/* The least number of ranks beyond this one's over which it fits, 0: none. */
static int more_ranks(const struct planner *k, int32_t max_len)
{
    int list[TD_MAX_RANKS];
    const struct td_config *c = td_model_config(k->model);
    int n = td_split_list(c, list), found = 0;
    for (int i = 0; i < n && !found; i++) {
        struct planner other = *k;
        struct td_plan p;
        struct td_model_limits limits;
        if (list[i] <= td_model_slice(k->model)->ranks)
            continue;
        td_plan_limits(k->asked, &limits);
        if (td_model_size(k->asked->model, k->dev, 0, list[i], &limits, &other.model,
                          NULL) != TD_OK)
            return 0;
        if (least(&other, max_len, limits.max_seqs, &p) >= ADVICE_SPARE)
            found = list[i];
        td_model_free(other.model);
    }
    return found;
}

static enum td_status too_large(const struct planner *k, struct td_plan *p,
                                struct td_error *err)
{
    char fix[TD_ERROR_FIX_MAX];
    size_t n = 0;
    const struct td_model_bytes *b = &p->bytes;
    int32_t len = p->limits.max_len, seqs = p->limits.max_seqs;
    td_error_set(
        err, TD_E_MEMORY_PLAN,
        "%s needs %s for one sequence of %d tokens: %s weights, "
        "%s KV cache, %s states, %s work, %s process",
        k->asked->model, td_size_text(k->room->shared ? p->peak : p->device, 1).text,
        len, td_size_text(b->weights, 1).text, td_size_text(p->kv, 1).text,
        td_size_text(p->states, 1).text, td_size_text(b->work + b->shelf, 1).text,
        td_size_text(k->room->shared ? p->beside : 0, 1).text);
    td_error_why(err, "%s", k->room->bound);
    int32_t shorter = longest(k, seqs, len), fewer = most_seqs(k, len, seqs);
    int ranks = more_ranks(k, len);
    if (shorter >= TD_CHUNK)
        n += (size_t)snprintf(fix + n, sizeof(fix) - n, "%s--max-model-len %d fits",
                              n ? "; " : "", shorter);
    if (fewer > 0)
        n += (size_t)snprintf(fix + n, sizeof(fix) - n, "%s--max-num-seqs %d fits",
                              n ? "; " : "", fewer);
    if (ranks)
        n += (size_t)snprintf(fix + n, sizeof(fix) - n,
                              "%sit fits over %d ranks with as much memory each",
                              n ? "; " : "", ranks);
    if (n)
        td_error_fix(err, "%s", fix);
    else
        td_error_fix(err, "use a host with more memory or a smaller model; free or "
                          "allow what the cause names");
    return TD_E_MEMORY_PLAN;
}

/* ---- the plan ----------------------------------------------------------------------- */

/* The caches, in what is left beside one sequence. */
static void fill_caches(const struct planner *k, struct td_plan *p)
{
    int64_t left = spare(k, p);
    if (p->bytes.state)
        p->n_snapshots = (int32_t)TD_MIN(
            TD_MIN(k->asked->prefix_cache, left / 2) / p->bytes.state, MOST_SNAPSHOTS);
    left -= p->bytes.state * p->n_snapshots;
    int64_t one = p->n_blocks;
    int64_t more = p->bytes.kv_block ? left / p->bytes.kv_block : 0;
    p->n_blocks = (int32_t)TD_MIN(one * p->limits.max_seqs, one + more);
    add_up(k, p);
}

enum td_status td_plan_make(struct td_model *m, struct td_dev *dev,
                            const struct td_plan_asked *asked,
                            const struct td_plan_room *room, struct td_plan *out,
                            struct td_error *err)
{
    const struct td_config *c = td_model_config(m);
    struct planner k = {.model = m, .dev = dev, .asked = asked, .room = room};
    struct td_plan p;
    int32_t len =
        asked->max_len ? asked->max_len : TD_MIN(c->max_positions, LONGEST_UNASKED);
    int32_t seqs = TD_MAX(asked->max_seqs, 1);
    if (asked->max_len > c->max_positions) {
        td_error_set(err, TD_E_USAGE, "a context of %d tokens is asked for",
                     asked->max_len);
        td_error_why(err, "%s was made for at most %d", asked->model, c->max_positions);
        td_error_fix(err, "ask for less, or leave --max-model-len out");
        return TD_E_USAGE;
    }
    while (least(&k, len, seqs, &p) < 0 && !asked->max_len && len / 2 >= SHORTEST)
        len /= 2;
    if (spare(&k, &p) < 0)
        return too_large(&k, &p, err);
    int32_t most = longest(&k, seqs, c->max_positions);
    (void)least(&k, len, seqs, &p);
    fill_caches(&k, &p);
    p.most_len = most;
    *out = p;
    return TD_OK;
}

void td_plan_lower(struct td_model *m, struct td_dev *dev,
                   const struct td_plan_asked *asked, const struct td_plan_room *room,
                   struct td_plan *p)
{
    struct planner k = {.model = m, .dev = dev, .asked = asked, .room = room};
    add_up(&k, p);
}

void td_plan_emit(const struct td_plan *p, const struct td_plan_room *room)
{
    const struct td_plan_process *c = &p->process;
    td_event("plan",
             (struct td_num[]){{"weights", (double)p->bytes.weights},
                               {"kv", (double)p->kv},
                               {"states", (double)p->states},
                               {"prefixes", (double)p->prefixes},
                               {"work", (double)(p->bytes.work + p->bytes.shelf)},
                               {"device", (double)p->device},
                               {"program", (double)c->program},
                               {"logits", (double)c->logits},
                               {"samplers", (double)c->samplers},
                               {"threads", (double)c->threads},
                               {"lists", (double)c->lists},
                               {"staging", (double)c->staging},
                               {"peak", (double)p->peak},
                               {"limit", (double)p->limit},
                               {"reserve", (double)room->reserve},
                               {"total", (double)room->total},
                               {"context", p->limits.max_len},
                               {"sequences", p->limits.max_seqs},
                               {"tokens", (double)p->n_blocks * TD_KV_BLOCK},
                               {NULL, 0}});
}
