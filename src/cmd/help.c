/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem help [VERB | options | errors]: everything comes from the tables of verbs,
 * options and status codes.
 */
#include "base/buf.h"
#include "base/limits.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <stdio.h>
#include <string.h>

static void overview(struct td_buf *out)
{
    td_buf_adds(out, "tandem serves one large language model over one or several "
                     "machines.\n\n");
    for (const struct td_cmd *const *v = td_cmd_list(); *v; v++)
        if (*(*v)->summary)
            td_buf_addf(out, "  tandem %-34s %s\n", (*v)->usage, (*v)->summary);
    td_buf_adds(out, "  tandem --version\n\n"
                     "Options of a verb: tandem help VERB. Each is also a TANDEM_* "
                     "variable and a\nline of tandem.conf.\n");
}

static enum td_status one_verb(const struct td_conf *conf, const char *name,
                               struct td_buf *out, struct td_error *err)
{
    for (const struct td_cmd *const *v = td_cmd_list(); *v; v++) {
        if (strcmp((*v)->name, name) != 0)
            continue;
        td_buf_addf(out, "tandem %s\n\n%s\n", (*v)->usage, (*v)->summary);
        if (*(*v)->details)
            td_buf_adds(out, "\n");
        td_buf_add_wrapped(out, (*v)->details, 0);
        td_buf_adds(out, *(*v)->details ? "\n\n" : "\n");
        return td_conf_help(conf, (*v)->verb, out);
    }
    td_error_set(err, TD_E_USAGE, "there is no verb \"%s\"", name);
    td_error_why(err, "help knows the verbs that `tandem help` lists");
    return TD_E_USAGE;
}

static void errors(struct td_buf *out)
{
    td_buf_adds(out,
                "| code | what | usual cause | remedy |\n| --- | --- | --- | --- |\n");
    for (int code = TD_OK + 1; code < TD_STATUS_COUNT; code++) {
        const struct td_status_info *info = td_status_info((enum td_status)code);
        td_buf_addf(out, "| `%s` | %s | %s | %s |\n", info->slug, info->title,
                    info->cause, info->remedy);
    }
}

static int run(struct td_conf *conf, struct td_error *err)
{
    struct td_buf out;
    td_buf_init(&out, 1 * TD_MIB);
    enum td_status s = TD_OK;
    if (conf->nargs == 0)
        overview(&out);
    else if (strcmp(conf->args[0], "options") == 0)
        s = td_conf_markdown(conf, &out);
    else if (strcmp(conf->args[0], "errors") == 0)
        errors(&out);
    else
        s = one_verb(conf, conf->args[0], &out, err);
    if (s == TD_OK)
        s = out.status;
    if (s == TD_OK)
        (void)fputs(out.p, stdout);
    else
        td_error_set(err, s, "the help text could not be built");
    td_buf_release(&out);
    return TD_EXIT_OK;
}

const struct td_cmd td_cmd_help = {
    .name = "help",
    .verb = TD_VERB_HELP,
    .usage = "help [VERB|options|errors]",
    .args = {0, 1, NULL, NULL},
    .summary = "this list, or the options of a verb",
    .details =
        "`tandem help options` and `tandem help errors` print all options and all "
        "errors\nas Markdown tables.",
    .run = run,
};
