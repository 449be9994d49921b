/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Picks the verb, reads its options, prints its error. All other work is the verb's.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/job.h"
#include "cmd/options.h"
#include "cmd/term.h"
#include "cmd/world.h"
#include "launch/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct td_cmd *const verbs[] = {
    &td_cmd_serve,   &td_cmd_status, &td_cmd_bench, &td_cmd_run,
    &td_cmd_inspect, &td_cmd_plan,   &td_cmd_check, &td_cmd_explain,
    &td_cmd_worker,  &td_cmd_agent,  &td_cmd_help,  NULL};

const struct td_cmd *const *td_cmd_list(void)
{
    return verbs;
}

static const struct td_cmd *find_verb(const char *name)
{
    for (const struct td_cmd *const *v = verbs; *v; v++)
        if (strcmp((*v)->name, name) == 0)
            return *v;
    return NULL;
}

static enum td_status read_file(struct td_conf *conf, struct td_error *err)
{
    char path[TD_MAX_PATH];
    const char *home = getenv("HOME");
    if (td_conf_is_set(conf, TD_O_CONFIG))
        return td_conf_parse_file(conf, td_conf_str(conf, TD_O_CONFIG), err);
    if (td_file_exists("tandem.conf"))
        return td_conf_parse_file(conf, "tandem.conf", err);
    if (!home || td_path_join(path, sizeof(path), home, ".config/tandem/tandem.conf",
                              NULL) != TD_OK)
        return TD_OK;
    return td_file_exists(path) ? td_conf_parse_file(conf, path, err) : TD_OK;
}

static enum td_status read_options(struct td_conf *conf, const struct td_cmd *cmd,
                                   int argc, char **argv, struct td_error *err)
{
    enum td_status s =
        td_conf_init(conf, td_options, TD_OPTION_COUNT, td_option_hints, err);
    if (s == TD_OK)
        s = td_conf_parse_args(conf, cmd->verb, argc, argv, err);
    if (s == TD_OK)
        s = td_conf_parse_env(conf, err);
    if (s == TD_OK)
        s = read_file(conf, err);
    if (s == TD_OK && td_conf_is_set(conf, TD_O_EVENT_LOG))
        s = td_log_open(td_conf_str(conf, TD_O_EVENT_LOG), err);
    return s;
}

/* Flags that mean nothing on one machine, and of them those that several ranks there
 * give a meaning. */
static const size_t between_hosts[] = {TD_O_FABRIC, TD_O_SSH, TD_O_RANK_TIMEOUT,
                                       TD_O_LOAD_TIMEOUT};
enum { BETWEEN_RANKS = 2 };

/* A single host in --hosts is this machine's, or a mistake; and so is a flag that would
 * be ignored. In a file and in the environment options stand for every verb. */
static enum td_status check_alone(const struct td_conf *conf, const struct td_cmd *cmd,
                                  struct td_error *err)
{
    const char *hosts = td_conf_str(conf, TD_O_HOSTS);
    int several = 0;
    if (!(cmd->verb & TD_VERBS_HOSTS) || td_conf_is_set(conf, TD_O_WORLD) ||
        td_hosts_count(hosts, &several, NULL) != TD_OK || several > 1)
        return TD_OK; /* what is wrong with a list, the verb will say */
    size_t n = td_cmd_job_wanted(conf) ? BETWEEN_RANKS : TD_COUNT(between_hosts);
    for (size_t i = 0; i < n; i++) {
        if (!td_conf_is_flag(conf, between_hosts[i]))
            continue;
        td_error_set(err, TD_E_USAGE, "--%s is given, but this machine alone is used",
                     td_options[between_hosts[i]].name);
        td_error_why(err, "it is about what lies between several %s",
                     i < BETWEEN_RANKS ? "machines" : "ranks");
        td_error_fix(err, "give --hosts a,b%s, or leave it out",
                     i < BETWEEN_RANKS ? "" : " or --tp N");
        return TD_E_USAGE;
    }
    return hosts && *hosts ? td_hosts_alone(hosts, err) : TD_OK;
}

/* In time for every rank, and before anything is opened. */
static enum td_status check_args(const struct td_conf *conf, const struct td_cmd *cmd,
                                 struct td_error *err)
{
    const struct td_cmd_args *a = &cmd->args;
    if (conf->nargs > a->most) {
        td_error_set(err, TD_E_USAGE, "there is a word too many: \"%.200s\"",
                     conf->args[a->most]);
        td_error_why(err, "%s takes %s", cmd->name,
                     a->most == 1 ? "one"
                     : a->most    ? "two at most"
                                  : "none");
        if (a->fix)
            td_error_fix(err, "%s", a->fix);
        return TD_E_USAGE;
    }
    if (conf->nargs > 0 && !*conf->args[0]) {
        td_error_set(err, TD_E_USAGE, "the first argument of %s is empty", cmd->name);
        td_error_why(err, "a variable between quotes that is not set becomes nothing");
        return TD_E_USAGE;
    }
    if (conf->nargs >= a->least)
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "no %s is given", a->lacks);
    td_error_why(err, "%s needs one", cmd->name);
    return TD_E_USAGE;
}

static int report(const struct td_cmd *cmd, struct td_error *err)
{
    (void)fflush(stdout);
    if (cmd && strcmp(err->fix, td_status_info(TD_E_USAGE)->remedy) == 0)
        td_error_fix(err, "see `tandem help %s`", cmd->name);
    td_term_error(stderr, err);
    if (err->code == TD_E_USAGE && cmd)
        (void)fprintf(stderr, "usage   tandem %s\n", cmd->usage);
    if (err->code == TD_E_USAGE)
        return TD_EXIT_USAGE;
    if (cmd == &td_cmd_serve && *td_log_path()) /* a file of its own choice */
        (void)fprintf(stderr, "details %s\n", td_log_path());
    return TD_EXIT_FAILED;
}

/* What was printed reaches a full disk only now. */
static enum td_status written(struct td_error *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return TD_OK;
    td_error_set(err, TD_E_IO, "cannot write to standard output: %s", strerror(errno));
    td_error_fix(err, "check where it goes: a full disk, a closed pipe");
    return TD_E_IO;
}

static int run_verb(const struct td_cmd *cmd, int argc, char **argv)
{
    struct td_conf conf = {0};
    struct td_error err;
    int code = TD_EXIT_FAILED;
    td_error_init(&err);
    if (read_options(&conf, cmd, argc, argv, &err) == TD_OK &&
        check_alone(&conf, cmd, &err) == TD_OK &&
        (td_conf_bool(&conf, TD_O_HELP) || check_args(&conf, cmd, &err) == TD_OK) &&
        td_cmd_join(&conf, cmd, &err) == TD_OK) {
        if (td_conf_bool(&conf, TD_O_HELP) && cmd != &td_cmd_help) {
            conf.args[0] = argv[-1];
            conf.nargs = 1;
            code = td_cmd_help.run(&conf, &err);
        } else {
            code = td_cmd_do(cmd, &conf, &err);
        }
    }
    if (err.code == TD_OK)
        (void)written(&err);
    if (err.code != TD_OK) {
        td_event_error(&err);
        code = err.code == TD_E_USAGE ? TD_EXIT_USAGE : TD_EXIT_FAILED;
        if (td_cmd_reports(&err))
            code = report(cmd, &err);
    }
    code = td_cmd_leave(code, &err);
    if (td_log_lost())
        (void)fprintf(stderr, "note    the event log ends early: %s\n",
                      strerror(td_log_lost()));
    td_conf_release(&conf);
    td_log_close();
    return code;
}

/* A closed descriptor of these three would be given to the next file that is opened, a
 * model's or the event log, and printed into. One that cannot be used that way instead
 * fails as a closed one does. */
static void occupy_standard_files(void)
{
    struct stat st;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) != 0)
            (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static int print_version(void)
{
    struct td_error err;
    td_error_init(&err);
    (void)printf("tandem %s (%s)\n", td_version, td_build);
    return written(&err) == TD_OK ? TD_EXIT_OK : report(NULL, &err);
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "help";
    occupy_standard_files();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that is as large as it may be: an error */
    /* in a container without /sys hwloc would speak of it on our standard error */
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 0);
    if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        return print_version();
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    const struct td_cmd *cmd = find_verb(word);
    if (cmd)
        return run_verb(cmd, TD_MAX(argc - 2, 0), argv + TD_MIN(argc, 2));
    struct td_error err;
    td_error_init(&err);
    td_error_set(&err, TD_E_USAGE, "unknown verb \"%s\"", word);
    td_error_why(&err, "tandem's first argument is one of its verbs");
    td_error_fix(&err, "`tandem help` lists them");
    return report(NULL, &err);
}
