/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem worker: the engine as a process of its own. Started by `tandem serve`, not by
 * people. Events go to standard output, requests and tokens over the server's socket.
 */
#define _POSIX_C_SOURCE 200809L
#include "engine/worker.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Requests beyond this many never reach the engine: the front keeps them. */
enum { MAX_WAITING = 8192 };

static enum td_status connect_to(const char *path, int *out, struct td_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(at.sun_path))
        return td_error_set(err, TD_E_USAGE, "--socket %s is too long", path);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
        td_error_set(err, TD_E_PEER, "cannot reach the server at %s: %s", path,
                     strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return TD_E_PEER;
    }
    *out = fd;
    return TD_OK;
}

static int run(struct td_conf *conf, struct td_error *err)
{
    struct td_worker_params p = {.build = td_build, .max_waiting = MAX_WAITING};
    if (!td_conf_is_set(conf, TD_O_SOCKET) || !td_conf_is_set(conf, TD_O_VOCAB)) {
        td_error_set(err, TD_E_USAGE, "worker is started by `tandem serve`");
        return TD_EXIT_USAGE;
    }
    td_log_set_rank(0);
    p.engine = td_options_server(conf, conf->args[0], NULL);
    p.vocab = (int32_t)td_conf_int(conf, TD_O_VOCAB);
    enum td_status s = connect_to(td_conf_str(conf, TD_O_SOCKET), &p.fd, err);
    if (s == TD_OK)
        s = td_worker_run(&p, err);
    return s == TD_OK ? TD_EXIT_OK : TD_EXIT_FAILED;
}

const struct td_cmd td_cmd_worker = {
    .name = "worker",
    .verb = TD_VERB_WORKER,
    .usage = "worker MODEL --socket PATH --vocab N",
    .args = {1, 1, "model", NULL},
    .summary = "",
    .details = "The engine of a server, started by `tandem serve`.",
    .run = run,
};
