/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem explain LOG... [DIR...] [-]: the first cause of a failed start.
 */
#define _POSIX_C_SOURCE 200809L
#include "explain/explain.h"
#include "base/buf.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct td_explain_style style_of_stdout(void)
{
    struct td_explain_style style = {0};
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return style;
    const char *no_color = getenv("NO_COLOR");
    style.color = !no_color || !*no_color;
    style.width = 100;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        style.width = TD_MIN((int)size.ws_col, 140);
    return style;
}

static enum td_status print(struct td_conf *conf, const struct td_explain *x,
                            struct td_error *err)
{
    struct td_explain_style style = style_of_stdout();
    struct td_buf out;
    td_buf_init(&out, 4 * TD_MIB);
    enum td_status s;
    if (td_conf_bool(conf, TD_O_JSON)) {
        s = td_explain_json(x, td_conf_bool(conf, TD_O_ALL), &out);
    } else {
        s = td_explain_text(x, &style, &out);
        if (s == TD_OK && td_conf_bool(conf, TD_O_ALL)) {
            td_buf_addc(&out, '\n');
            s = td_explain_timeline(x, &style, &out);
        }
    }
    if (s == TD_OK)
        (void)fputs(out.p, stdout);
    else
        td_error_set(err, s, "the report does not fit into memory");
    td_buf_release(&out);
    return s;
}

static int run(struct td_conf *conf, struct td_error *err)
{
    struct td_explain *x = NULL;
    int code = TD_EXIT_FAILED;
    enum td_status s = td_explain_new(&x, err);
    for (size_t i = 0; s == TD_OK && i < (size_t)conf->nargs; i++)
        s = td_explain_add_path(x, conf->args[i], err);
    if (s == TD_E_NOT_FOUND && err)
        err->code = TD_E_USAGE;
    if (s == TD_OK)
        s = td_explain_judge(x, err);
    if (s == TD_OK)
        s = print(conf, x, err);
    if (s == TD_OK)
        code = td_explain_grade(x) == TD_GRADE_NONE ? TD_EXIT_NO_CAUSE : TD_EXIT_OK;
    td_explain_free(x);
    return code;
}

const struct td_cmd td_cmd_explain = {
    .name = "explain",
    .verb = TD_VERB_EXPLAIN,
    .usage = "explain LOG... [DIR...] [-]",
    .args = {1, INT_MAX, "log", NULL},
    .summary = "first cause of a failed start or a crash",
    .details =
        "Reads the logs of one failed (or hanging) start: of tandem, vLLM, SGLang, Ray "
        "(session\nfolders too), PyTorch, NCCL, MPI, TensorRT-LLM, llama.cpp, docker, "
        "Kubernetes and the\nkernel, of one or several hosts, plain or packed with "
        "gzip or "
        "zstd. Prints the first cause,\nwhere it happened, the evidence, what followed "
        "from it and the remedy.\n\nExit code: 0 a cause is named, 3 it is not in the "
        "files, 2 wrong usage.",
    .run = run,
};
