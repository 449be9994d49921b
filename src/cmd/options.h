/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every option of every verb, in one list: flag, variable, file entry, help and docs.
 *
 * X(id, name, letter, kind, verbs, value, default, lo, hi, help)
 */
#ifndef TD_CMD_OPTIONS_H
#define TD_CMD_OPTIONS_H

#include "base/conf.h"
#include "cmd/cmd.h"
#include "engine/engine.h"

/* Verbs that open a model, and those that serve it. */
#define TD_VERBS_SERVER (TD_VERB_SERVE | TD_VERB_WORKER)
#define TD_VERBS_ENGINE (TD_VERB_RUN | TD_VERB_BENCH | TD_VERBS_SERVER)

/* Verbs that look at several machines. */
#define TD_VERBS_RANKS (TD_VERB_RUN | TD_VERB_BENCH | TD_VERB_SERVE | TD_VERB_PLAN)
#define TD_VERBS_HOSTS (TD_VERB_CHECK | TD_VERBS_RANKS)

/* Verbs that size an engine, and those that size a server's. */
#define TD_VERBS_PLAN   (TD_VERBS_ENGINE | TD_VERB_PLAN)
#define TD_VERBS_PLAN_N (TD_VERBS_SERVER | TD_VERB_PLAN)

/* Verbs whose context is asked for; bench makes it as long as what it measures. */
#define TD_VERBS_CONTEXT (TD_VERBS_PLAN & ~TD_VERB_BENCH)

/* Verbs whose print has a machine form; that of the others are their events. */
#define TD_VERBS_PRINT                                                                 \
    (TD_VERB_RUN | TD_VERB_INSPECT | TD_VERB_EXPLAIN | TD_VERB_BENCH | TD_VERB_PLAN |  \
     TD_VERB_CHECK | TD_VERB_STATUS)

#define TD_OPTION_LIST(X)                                                              \
    X(CONFIG, "config", 0, TD_OPT_STR, TD_VERB_ALL, "FILE", NULL, 1, 0,                \
      "read options from FILE instead of ./tandem.conf or "                            \
      "~/.config/tandem/tandem.conf")                                                  \
    X(HELP, "help", 'h', TD_OPT_BOOL, TD_VERB_ALL, "", NULL, 0, 0,                     \
      "help of this verb")                                                             \
    X(JSON, "json", 0, TD_OPT_BOOL, TD_VERBS_PRINT, "", NULL, 0, 0,                    \
      "print the machine form")                                                        \
    X(ALL, "all", 'a', TD_OPT_BOOL, TD_VERB_EXPLAIN, "", NULL, 0, 0,                   \
      "also print the timeline of all hosts")                                          \
    X(EVENT_LOG, "event-log", 0, TD_OPT_STR, TD_VERB_ALL, "FILE", NULL, 1, 0,          \
      "append this process's events to FILE as JSON lines")                            \
    X(HOSTS, "hosts", 0, TD_OPT_STR, TD_VERBS_HOSTS, "A,B", NULL, 0, 0,                \
      "the machines, this one among them; names or addresses that ssh can enter; "     \
      "@FILE: as a host file has them; slurm: those of the allocation (default: this " \
      "machine alone)")                                                                \
    X(FABRIC, "fabric", 0, TD_OPT_STR, TD_VERBS_HOSTS, "CIDR|IFACE", NULL, 1, 0,       \
      "network between the machines, such as 192.168.200.0/24 (default: the one that " \
      "is measured to be the best; plan looks at none)")                               \
    X(SSH, "ssh", 0, TD_OPT_STR, TD_VERBS_HOSTS, "COMMAND", "ssh", 1, 0,               \
      "how to enter the other machines, such as \"ssh -p 2222 -l user\"")              \
    X(TP, "tp", 0, TD_OPT_INT, TD_VERBS_RANKS, "N", NULL, 1, TD_MAX_RANKS,             \
      "ranks that share every layer, spread over the hosts (default: one on each)")    \
    X(TENSORS, "tensors", 0, TD_OPT_BOOL, TD_VERB_INSPECT, "", NULL, 0, 0,             \
      "also list every tensor: format, shape, bytes, file, use")                       \
    X(SYSTEM, "system", 's', TD_OPT_STR, TD_VERB_RUN, "TEXT", NULL, 0, 0,              \
      "instructions that come before the conversation")                                \
    X(THINK, "think", 0, TD_OPT_BOOL, TD_VERB_RUN, "", NULL, 0, 0,                     \
      "reason before answering; --no-think: answer at once (default: as the model's "  \
      "template has it)")                                                              \
    X(MAX_TOKENS, "max-tokens", 'n', TD_OPT_INT, TD_VERB_RUN | TD_VERB_BENCH, "N",     \
      NULL, 1, 1 << 24,                                                                \
      "longest answer, reasoning included (default: until the context ends; bench: "   \
      "128)")                                                                          \
    X(TEMPERATURE, "temperature", 't', TD_OPT_REAL, TD_VERB_RUN, "T", NULL, 0, 2,      \
      "0: always the most probable token; 1: as probable as the model says (this and " \
      "the next four: default as in generation_config.json)")                          \
    X(TOP_P, "top-p", 0, TD_OPT_REAL, TD_VERB_RUN, "P", NULL, 1e-6, 1,                 \
      "draw from the most probable tokens that together reach P; 1: from all")         \
    X(TOP_K, "top-k", 0, TD_OPT_INT, TD_VERB_RUN, "K", NULL, 0, 1 << 24,               \
      "draw from the K most probable tokens; 0: from all")                             \
    X(MIN_P, "min-p", 0, TD_OPT_REAL, TD_VERB_RUN, "P", NULL, 0, 1,                    \
      "leave out tokens with less than P times the largest probability")               \
    X(REPETITION_PENALTY, "repetition-penalty", 0, TD_OPT_REAL, TD_VERB_RUN, "X",      \
      NULL, 0.01, 100, "divides the logit of every token seen so far; 1: off")         \
    X(PRESENCE_PENALTY, "presence-penalty", 0, TD_OPT_REAL, TD_VERB_RUN, "X", NULL,    \
      -2, 2, "taken off the logit of every token the answer already has")              \
    X(SEED, "seed", 0, TD_OPT_INT, TD_VERB_RUN, "N", NULL, 0, 9007199254740992.0,      \
      "same seed, same text (default: another one each time)")                         \
    X(NUMERICS, "numerics", 0, TD_OPT_CHOICE, TD_VERBS_PLAN, "f32|bf16", "bf16", 0, 0, \
      "f32: everything in 32 bits, the reference; bf16: inputs of products and the "   \
      "KV cache rounded to 16 bits")                                                   \
    X(THREADS, "threads", 0, TD_OPT_INT, TD_VERBS_PLAN, "N", NULL, 1, 1024,            \
      "processor threads (default: one for each core of this rank's share)")           \
    X(DEVICE, "device", 0, TD_OPT_STR, TD_VERBS_PLAN, "auto|cpu|cuda[:N]", "auto", 1,  \
      0, "what computes: auto is an NVIDIA GPU if there is one, cuda:1 the second")    \
    X(GRAPHS, "graphs", 0, TD_OPT_CHOICE, TD_VERBS_ENGINE, "on|off", "on", 0, 0,       \
      "on: a GPU records the steps of generated tokens and replays them")              \
    X(CPU, "cpu", 0, TD_OPT_STR, TD_VERBS_PLAN, "LEVEL", NULL, 1, 0,                   \
      "use no more of the processor than this: ref, avx2, avx512, avx512bf16 "         \
      "(default: all that it has)")                                                    \
    X(WEIGHTS, "weights", 0, TD_OPT_CHOICE, TD_VERBS_ENGINE, "files|random", "files",  \
      0, 0,                                                                            \
      "random: read MODEL's config.json alone and draw the weights on the device; "    \
      "for "                                                                           \
      "benchmarks of models that are not here")                                        \
    X(MEMORY, "memory", 0, TD_OPT_BYTES, TD_VERBS_PLAN, "BYTES", NULL, 1, 0,           \
      "use at most this much, such as 84G (default: what host or GPU can give)")       \
    X(MAX_MODEL_LEN, "max-model-len", 0, TD_OPT_INT, TD_VERBS_CONTEXT, "N", NULL, 1,   \
      1 << 24,                                                                         \
      "tokens of the context, prompt and answer (default: the model's, or "            \
      "what fits)")                                                                    \
    X(MAX_NUM_SEQS, "max-num-seqs", 0, TD_OPT_INT, TD_VERBS_PLAN_N, "N", "32", 1,      \
      4096, "answers that are computed at a time; more wait")                          \
    X(MAX_NUM_BATCHED_TOKENS, "max-num-batched-tokens", 0, TD_OPT_INT,                 \
      TD_VERBS_PLAN_N | TD_VERB_BENCH, "N", NULL, 64, 65536,                           \
      "tokens of one step: a bound for the time between two tokens while prompts "     \
      "enter (default: 512; 2048 on a GPU and in bench)")                              \
    X(PREFIX_CACHE, "prefix-cache", 0, TD_OPT_BYTES, TD_VERBS_PLAN_N, "BYTES", NULL,   \
      0, 0,                                                                            \
      "memory for the states of known beginnings of prompts; 0: none are kept "        \
      "(default: 16 states, at least 128M and at most 4G)")                            \
    X(HOST, "host", 0, TD_OPT_STR, TD_VERB_SERVE, "ADDRESS", "127.0.0.1", 1, 0,        \
      "address of this machine to listen on; 0.0.0.0 or ::: all")                      \
    X(PORT, "port", 'p', TD_OPT_INT, TD_VERB_SERVE, "N", "8000", 0, 65535,             \
      "port to listen on; 0: any free one")                                            \
    X(API_KEY, "api-key", 0, TD_OPT_STR, TD_VERB_SERVE | TD_VERB_BENCH, "KEY", NULL,   \
      0, 0,                                                                            \
      "serve: clients must send it, as Bearer or x-api-key; bench: what is sent "      \
      "(better given as "                                                              \
      "TANDEM_API_KEY: command lines are seen by others)")                             \
    X(SERVED_MODEL_NAME, "served-model-name", 0, TD_OPT_STR, TD_VERB_SERVE, "NAME",    \
      NULL, 1, 0, "what the API calls the model (default: its directory's name)")      \
    X(MAX_QUEUE, "max-queue", 0, TD_OPT_INT, TD_VERB_SERVE, "N", "1024", 0, 4000,      \
      "answers that may wait for their turn; more are refused with 429")               \
    X(QUEUE_TIMEOUT, "queue-timeout", 0, TD_OPT_REAL, TD_VERB_SERVE, "SECONDS", "600", \
      0.1, 86400, "a request that waits longer is refused with 503")                   \
    X(DRAIN_TIMEOUT, "drain-timeout", 0, TD_OPT_REAL, TD_VERB_SERVE, "SECONDS", "30",  \
      0, 86400, "time that running answers have when the server is told to stop")      \
    X(MAX_CONNECTIONS, "max-connections", 0, TD_OPT_INT, TD_VERB_SERVE, "N", "4096",   \
      1, 65536, "clients at a time")                                                   \
    X(MAX_BODY, "max-body", 0, TD_OPT_BYTES, TD_VERB_SERVE, "BYTES", "16M", 1,         \
      TD_MAX_HTTP_BODY, "largest body of a request (at most 64M)")                     \
    X(IDLE_TIMEOUT, "idle-timeout", 0, TD_OPT_REAL, TD_VERB_SERVE, "SECONDS", "75", 1, \
      86400, "a connection that does nothing for so long is closed")                   \
    X(SOCKET, "socket", 0, TD_OPT_STR, TD_VERB_WORKER | TD_VERB_RUN | TD_VERB_BENCH,   \
      "PATH", NULL, 1, 0,                                                              \
      TD_OPT_INTERNAL "where whoever started rank 0 listens for it")                   \
    X(WORLD, "world", 0, TD_OPT_INT, TD_VERBS_ENGINE, "N", NULL, 1, TD_MAX_RANKS,      \
      TD_OPT_INTERNAL "this process is one of N ranks")                                \
    X(RANK_TIMEOUT, "rank-timeout", 0, TD_OPT_REAL, TD_VERBS_ENGINE, "SECONDS", "3",   \
      0.1, 86400, "a rank whose step stands still for so long is given up")            \
    X(LOAD_TIMEOUT, "load-timeout", 0, TD_OPT_REAL, TD_VERBS_ENGINE, "SECONDS", "300", \
      0.1, 86400, "the same until the first step: loading, warming up")                \
    X(VOCAB, "vocab", 0, TD_OPT_INT, TD_VERB_WORKER, "N", NULL, 1, 1 << 24,            \
      "ids that may be sampled: those that the tokenizer knows")                       \
    X(URL, "url", 'u', TD_OPT_STR, TD_VERB_STATUS | TD_VERB_BENCH, "URL",              \
      "http://127.0.0.1:8000", 1, 0, "address of a server that runs")                  \
    X(WATCH, "watch", 'w', TD_OPT_BOOL, TD_VERB_STATUS, "", NULL, 0, 0,                \
      "look again every second")                                                       \
    X(CONCURRENCY, "concurrency", 'c', TD_OPT_STR, TD_VERB_BENCH, "N,N", "1,8,32", 1,  \
      0, "requests on their way at a time, one measurement for each number")           \
    X(REQUESTS, "requests", 0, TD_OPT_INT, TD_VERB_BENCH, "N", NULL, 1, 1000000,       \
      "of each measurement (default: four times the concurrency, at least 8)")         \
    X(PROMPT_TOKENS, "prompt-tokens", 0, TD_OPT_INT, TD_VERB_BENCH, "N", "256", 1,     \
      1 << 20, "length of the prompts, nearly")                                        \
    X(COMPLETIONS, "completions", 0, TD_OPT_BOOL, TD_VERB_BENCH, "", NULL, 0, 0,       \
      "ask /v1/completions instead of /v1/chat/completions")                           \
    X(BATCH, "batch", 0, TD_OPT_STR, TD_VERB_BENCH, "N,N", "1,8", 1, 0,                \
      "sequences in a decode step of MODEL, one measurement for each number")          \
    X(PROMPT, "prompt", 0, TD_OPT_STR, TD_VERB_BENCH, "N,N", "1024", 1, 0,             \
      "tokens of MODEL's prompts, one measurement for each number")                    \
    X(CONTEXT, "context", 0, TD_OPT_STR, TD_VERB_BENCH, "N,N", NULL, 1, 0,             \
      "tokens before MODEL's decode steps (default: as --prompt)")                     \
    X(PLOT, "plot", 0, TD_OPT_STR, TD_VERB_BENCH, "FILE", NULL, 1, 0,                  \
      "also draw MODEL's shares of the limits into FILE, as SVG")                      \
    X(STATS, "stats", 0, TD_OPT_BOOL, TD_VERB_RUN, "", NULL, 0, 0,                     \
      "say after each answer how long it took, on standard error")

enum td_option {
#define X(id, name, letter, kind, verbs, value, def, lo, hi, help) TD_O_##id,
    TD_OPTION_LIST(X)
#undef X
        TD_OPTION_COUNT
};

/* The table for td_conf_init(), and the hints for flags of other engines. */
extern const struct td_opt td_options[TD_OPTION_COUNT];
extern const struct td_opt_hint td_option_hints[];

/* The model directory and the options of TD_VERBS_ENGINE, as the engine wants them. */
struct td_engine_params td_options_engine(const struct td_conf *conf,
                                          const char *model);

/* The same for a server's engine, with the options of TD_VERBS_PLAN_N. Without a `config`
 * there is no prefix cache unless --prefix-cache says so. */
struct td_engine_params td_options_server(const struct td_conf *conf, const char *model,
                                          const struct td_config *config);

#endif
