/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table. See options.h.
 */
#include "cmd/options.h"

#include "cmd/world.h"

#include <string.h>

const struct td_opt td_options[TD_OPTION_COUNT] = {
#define X(id, name, letter, kind, verbs, value, def, lo, hi, help)                     \
    {name, letter, kind, (unsigned)(verbs), value, def, lo, hi, help},
    TD_OPTION_LIST(X)
#undef X
};

const struct td_opt_hint td_option_hints[] = {
    {"tensor-parallel-size", "tandem calls it --tp"},
    {"tp-size", "tandem calls it --tp"},
    {"gpu-memory-utilization", "tandem plans in bytes: --memory 84G"},
    {"mem-fraction-static", "tandem plans in bytes: --memory 84G"},
    {"distributed-executor-backend", "not needed: give the machines with --hosts a,b"},
    {"pipeline-parallel-size", "tandem splits tensors only: --tp N"},
    {"max-seq-len", "tandem calls it --max-model-len"},
    {"context-length", "tandem calls it --max-model-len"},
    {"ctx-size", "tandem calls it --max-model-len"},
    {"n-predict", "tandem calls it --max-tokens"},
    {"temp", "tandem calls it --temperature"},
    {"model", "the model is an argument: tandem VERB MODEL"},
    {"threads-batch", "tandem has one number: --threads"},
    {"system-prompt", "tandem calls it --system"},
    {"trust-remote-code", "not needed: tandem runs no code from a model"},
    {"json", "the machine form of this verb are its events: --event-log FILE"},
    {NULL, NULL},
};

struct td_engine_params td_options_engine(const struct td_conf *conf, const char *model)
{
    const char *numerics = td_conf_str(conf, TD_O_NUMERICS);
    struct td_engine_params p = {
        .model = model,
        .device = td_conf_str(conf, TD_O_DEVICE),
        .no_graphs = strcmp(td_conf_str(conf, TD_O_GRAPHS), "off") == 0,
        .numerics = strcmp(numerics, "f32") == 0 ? TD_NUM_F32 : TD_NUM_BF16};
    if (strcmp(td_conf_str(conf, TD_O_WEIGHTS), "random") == 0)
        p.random = 1;
    if (td_conf_is_set(conf, TD_O_THREADS))
        p.threads = (int)td_conf_int(conf, TD_O_THREADS);
    if (td_conf_is_set(conf, TD_O_CPU))
        p.level = td_conf_str(conf, TD_O_CPU);
    if (td_conf_is_set(conf, TD_O_MEMORY))
        p.memory = td_conf_int(conf, TD_O_MEMORY);
    if (td_conf_is_set(conf, TD_O_MAX_MODEL_LEN))
        p.max_len = (int32_t)td_conf_int(conf, TD_O_MAX_MODEL_LEN);
    p.world = td_cmd_world();
    return p;
}

struct td_engine_params td_options_server(const struct td_conf *conf, const char *model,
                                          const struct td_config *config)
{
    struct td_engine_params p = td_options_engine(conf, model);
    p.max_seqs = (int32_t)td_conf_int(conf, TD_O_MAX_NUM_SEQS);
    if (td_conf_is_set(conf, TD_O_MAX_NUM_BATCHED_TOKENS))
        p.max_rows = (int32_t)(td_conf_int(conf, TD_O_MAX_NUM_BATCHED_TOKENS) /
                               TD_CHUNK * TD_CHUNK);
    if (td_conf_is_set(conf, TD_O_PREFIX_CACHE))
        p.prefix_cache = td_conf_int(conf, TD_O_PREFIX_CACHE);
    else if (config)
        p.prefix_cache = td_plan_prefix_bytes(config);
    p.serves = true;
    return p;
}
