/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes, the error catalogue and the error record.
 *
 * Every function that can fail returns enum td_status (TD_OK is 0). Functions whose
 * failure a user must understand also take a struct td_error *, the last argument but
 * for out-parameters' sake never NULL-checked by callers: NULL is allowed everywhere.
 * The first function that knows the cause fills the record; the rest only pass the
 * status on. A record that is already filled is never overwritten.
 *
 * One list defines the codes and their catalogue. A code's slug is what event logs,
 * JSON output and `tandem explain` show; title, cause and remedy are what a user reads
 * when the function that failed knows nothing better.
 */
#ifndef TD_BASE_STATUS_H
#define TD_BASE_STATUS_H

#include "base/compiler.h"

#include <stddef.h>

/* X(code, slug, title, usual cause, remedy) */
#define TD_STATUS_LIST(X)                                                              \
    X(TD_OK, "ok", "no error", "", "")                                                 \
    X(TD_E_USAGE, "usage", "wrong usage", "an option or argument is not understood",   \
      "see `tandem help VERB`")                                                        \
    X(TD_E_NOMEM, "no-memory", "out of memory", "the system refused an allocation",    \
      "free memory on this host or ask for less")                                      \
    X(TD_E_LIMIT, "limit", "a built-in limit was reached",                             \
      "the input is larger than tandem accepts", "make the input smaller")             \
    X(TD_E_IO, "io", "reading or writing failed",                                      \
      "the operating system reported an error",                                        \
      "check the disk and the permissions of the file")                                \
    X(TD_E_NOT_FOUND, "not-found", "a file is missing",                                \
      "the path does not exist or cannot be reached", "check the path")                \
    X(TD_E_HUB_ID, "hub-id", "a hub id was given where a directory is needed",         \
      "tandem reads model directories and downloads nothing by itself",                \
      "fetch the model first and give its directory")                                  \
    X(TD_E_LFS_POINTER, "lfs-pointer", "a Git-LFS pointer lies in place of a file",    \
      "the repository was cloned without its large files", "run `git lfs pull` there") \
    X(TD_E_TRUNCATED, "truncated", "a file is shorter than it says",                   \
      "a download or copy did not finish", "fetch the file again")                     \
    X(TD_E_HEADER, "bad-header", "a safetensors header is invalid",                    \
      "the file is damaged or was written by a faulty tool", "fetch the file again")   \
    X(TD_E_JSON, "bad-json", "a JSON document is invalid",                             \
      "the file is damaged or is not JSON", "fetch the file again")                    \
    X(TD_E_CONFIG, "bad-config", "the model's configuration is invalid",               \
      "a value in that file is missing, of the wrong type or out of range",            \
      "compare the file with the published one, or fetch it again")                    \
    X(TD_E_UNSUPPORTED, "unsupported", "the model is of a kind tandem does not read",  \
      "the architecture or number format is not implemented",                          \
      "use a Qwen3.5 checkpoint in BF16 or block FP8 (weight_scale_inv, 128x128)")     \
    X(TD_E_TENSOR, "bad-tensor", "a tensor is missing or does not fit",                \
      "the checkpoint and its config.json disagree",                                   \
      "fetch config.json and the weights from the same revision")                      \
    X(TD_E_TOKENIZER, "bad-tokenizer", "the tokenizer cannot be read",                 \
      "tokenizer.json is damaged or of an unknown kind", "fetch tokenizer.json again") \
    X(TD_E_TEMPLATE, "bad-template", "the chat template failed",                       \
      "the template is invalid or refused these messages",                             \
      "check the messages against what the model's template expects")                  \
    X(TD_E_MEMORY_PLAN, "does-not-fit", "the model does not fit into memory",          \
      "weights, caches and work buffers need more than this host can give",            \
      "use a smaller model, a shorter context or more hosts")                          \
    X(TD_E_SPLIT, "bad-split", "the model cannot be split over that many ranks",       \
      "heads or 128-blocks do not divide evenly", "choose a number of ranks it names") \
    X(TD_E_MIX, "mixed-ranks", "the ranks do not fit together",                        \
      "hosts have different builds, processors, options or model files",               \
      "put the same program and the same model on all hosts")                          \
    X(TD_E_INPUT, "bad-input", "a request cannot be answered",                         \
      "a value of the request is out of range", "correct the value that is named")     \
    X(TD_E_NUMERICS, "not-finite", "the model computed a number that is not finite",   \
      "weights are damaged, or an intermediate value overflowed",                      \
      "check the files' checksums; try --numerics f32")                                \
    X(TD_E_TIMEOUT, "timeout", "a deadline passed",                                    \
      "another process or host did not answer in time",                                \
      "look at the host and rank that is named")                                       \
    X(TD_E_PEER, "peer-lost", "another process ended",                                 \
      "the process exited, was killed or lost its link",                               \
      "look at its log; `tandem explain` names the cause")                             \
    X(TD_E_CANCELLED, "cancelled", "stopped on request", "somebody asked to stop",     \
      "nothing to repair; start it again when it is wanted")                           \
    X(TD_E_NO_DEVICE, "no-device", "there is no GPU",                                  \
      "no driver, no GPU, or none that this process may see",                          \
      "look at nvidia-smi; --device cpu does without")                                 \
    X(TD_E_DEVICE, "device", "a GPU cannot be used",                                   \
      "the driver or the program does not fit it, or it stopped working",              \
      "look at nvidia-smi and dmesg; --device cpu does without")                       \
    X(TD_E_DRIVER, "driver", "the NVIDIA driver does not fit",                         \
      "it is too old for this build, or not in order",                                 \
      "update the driver; --device cpu does without")                                  \
    X(TD_E_GPU_LOST, "gpu-lost", "a GPU stopped working",                              \
      "a fault of its memory, its links, its power or its driver",                     \
      "look at dmesg; restart the machine; --device cpu does without")                 \
    X(TD_E_HOSTS, "bad-hosts", "the list of hosts cannot be used",                     \
      "no entry is this machine, or two entries are the same one",                     \
      "run tandem on one of the hosts and name each of them once")                     \
    X(TD_E_NAME, "bad-name", "a host name leads to the wrong place",                   \
      "it does not resolve, or resolves to an address that cannot be reached",         \
      "give --hosts addresses of the network that works")                              \
    X(TD_E_SSH, "ssh", "a host cannot be entered by ssh",                              \
      "ssh failed before it could start anything there",                               \
      "make `ssh -o BatchMode=yes HOST true` work")                                    \
    X(TD_E_PROGRAM, "remote-program", "tandem cannot run on a host",                   \
      "the program is missing there, is of another build or does not start",           \
      "install the same build there, or run tandem from the folder of `make bundle`")  \
    X(TD_E_NO_MPI, "no-mpi", "Open MPI is missing on a host",                          \
      "its library or its daemon orted is not installed, or not in PATH of ssh",       \
      "install openmpi-bin there")                                                     \
    X(TD_E_NETWORK, "no-network", "no network joins the hosts",                        \
      "no network that they share could be used in both directions",                   \
      "look at the addresses that are named; --fabric CIDR names the one to use")      \
    X(TD_E_ONE_WAY, "one-way", "a network works in one direction only",                \
      "connections from one host arrive, those of the other do not",                   \
      "look at the firewall and the routes of the host that is named")                 \
    X(TD_E_FIREWALL, "firewall", "a firewall stops tandem's ports",                    \
      "a host answers on other ports, but not on those that tandem uses",              \
      "let TCP ports 46000 to 46199 through on the network between the hosts")         \
    X(TD_E_DUPLICATE, "duplicate-address", "two machines have the same address",       \
      "an address was given to two interfaces", "give one of them another address")    \
    X(TD_E_MTU, "mtu", "large packets do not get through",                             \
      "interfaces or switches between the hosts allow packets of different size",      \
      "set the same MTU on all of them")                                               \
    X(TD_E_SLOW_LINK, "slow-link", "a link carries far less than it says",             \
      "a bad cable, a wrong port, or another program that uses it",                    \
      "look at cable and switch; --fabric takes the network as it is")                 \
    X(TD_E_CLOCK, "clock", "the clocks of the hosts differ",                           \
      "a clock is not kept by NTP", "set the clock: timedatectl set-ntp true")         \
    X(TD_E_MODEL_DIFFERS, "model-differs", "the hosts do not have the same model",     \
      "files are missing, cut short or of another revision on one host",               \
      "copy the model folder there again")                                             \
    X(TD_E_MEMORY_TAKEN, "memory-taken", "others hold the memory",                     \
      "another process holds what the model needs", "stop the process that is named")  \
    X(TD_E_INTERNAL, "internal", "a fault inside tandem",                              \
      "an invariant of the program does not hold",                                     \
      "report it with the command line and the event log")

enum td_status {
#define X(code, slug, title, cause, remedy) code,
    TD_STATUS_LIST(X)
#undef X
        TD_STATUS_COUNT
};

/* Phases of a life; the names appear in event logs. */
#define TD_PHASE_LIST(X)                                                               \
    X(TD_PHASE_CHECK, "check")                                                         \
    X(TD_PHASE_PLAN, "plan")                                                           \
    X(TD_PHASE_LAUNCH, "launch")                                                       \
    X(TD_PHASE_LOAD, "load")                                                           \
    X(TD_PHASE_WARMUP, "warmup")                                                       \
    X(TD_PHASE_SERVE, "serve")                                                         \
    X(TD_PHASE_STOP, "stop")

enum td_phase {
#define X(code, name) code,
    TD_PHASE_LIST(X)
#undef X
        TD_PHASE_COUNT
};

/* An entry of the catalogue. All strings are static. */
struct td_status_info {
    const char *slug, *title, *cause, *remedy;
};

enum {
    TD_ERROR_WHAT_MAX = 512, /* bytes with the final zero; longer texts are cut */
    TD_ERROR_WHY_MAX = 768,
    TD_ERROR_FIX_MAX = 512,
    TD_ERROR_HOST_MAX = 64
};

/* What failed (`what`), the fact that explains it (`why`), what to do (`fix`).
 * host is empty and rank -1 while the failure is this process's own. */
struct td_error {
    enum td_status code;
    enum td_phase phase;
    int rank;
    char host[TD_ERROR_HOST_MAX];
    char what[TD_ERROR_WHAT_MAX];
    char why[TD_ERROR_WHY_MAX];
    char fix[TD_ERROR_FIX_MAX];
};

/* The catalogue entry of a code; never NULL, unknown codes give TD_E_INTERNAL's. */
const struct td_status_info *td_status_info(enum td_status code);

/* The name of a phase as event logs spell it. */
const char *td_phase_name(enum td_phase phase);

/* The phase of that name; `or_else` when there is none, or name is NULL. */
enum td_phase td_phase_named(const char *name, enum td_phase or_else);

/* The phase that later errors and events of this process belong to. */
void td_phase_set(enum td_phase phase);
enum td_phase td_phase_now(void);

/* An empty record. */
void td_error_init(struct td_error *err);

/* Fills an empty record with `code`, the formatted `what` and the catalogue's cause and
 * remedy; leaves a filled one alone. Returns `code`, so that a caller can write
 * `return td_error_set(err, TD_E_IO, "cannot read %s", path);`. */
enum td_status td_error_set(struct td_error *err, enum td_status code, const char *what,
                            ...) TD_PRINTF(3, 4);

#ifdef __clang_analyzer__
/* The analyzer reads one file at a time: this tells it what the result is. */
#define td_error_set(err, code, ...) ((td_error_set)(err, code, __VA_ARGS__), (code))
#endif

/* Replace the catalogue's cause or remedy by a better one, right after
 * td_error_set(). */
void td_error_why(struct td_error *err, const char *why, ...) TD_PRINTF(2, 3);
void td_error_fix(struct td_error *err, const char *fix, ...) TD_PRINTF(2, 3);

#endif
