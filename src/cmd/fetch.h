/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a server over HTTP, for the verbs that talk to one that runs (libcurl).
 */
#ifndef TD_CMD_FETCH_H
#define TD_CMD_FETCH_H

#include "base/buf.h"
#include "base/status.h"

#include <stddef.h>

/* The address of a server as people give it ("host:8000", "http://host:8000/v1/") in the
 * form that paths are put behind ("http://host:8000"), into out. TD_E_USAGE. */
enum td_status td_url_clean(const char *given, char *out, size_t size,
                            struct td_error *err);

/* Gets url + path within `seconds` into an initialised, empty buffer; *http is the status
 * of the reply, whatever it is. TD_E_PEER: nobody there, TD_E_TIMEOUT, TD_E_LIMIT (more
 * than body->max), TD_E_IO, each with the reason. key: NULL or what the server wants. */
enum td_status td_fetch(const char *url, const char *path, const char *key,
                        double seconds, struct td_buf *body, long *http,
                        struct td_error *err);

/* What a failed transfer means; code is a CURLcode. */
enum td_status td_fetch_error(int code, const char *url, const char *words,
                              struct td_error *err);

#endif
