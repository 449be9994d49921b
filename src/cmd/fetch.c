/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a server over HTTP. See fetch.h.
 */
#include "cmd/fetch.h"

#include "base/limits.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const double CONNECT_SECONDS = 5;

enum td_status td_url_clean(const char *given, char *out, size_t size,
                            struct td_error *err)
{
    size_t n = strlen(given);
    const char *scheme = strstr(given, "://") ? "" : "http://";
    while (n > 0 && given[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(given + n - 3, "/v1", 3) == 0)
        n -= 3;
    bool ok = n > 0 && n < size && !strpbrk(given, " \t\r\n?#");
    if (ok && !*scheme)
        ok = strncmp(given, "http://", 7) == 0 || strncmp(given, "https://", 8) == 0;
    if (ok) {
        int len = snprintf(out, size, "%s%.*s", scheme, (int)n, given);
        ok = len > 0 && (size_t)len < size;
    }
    if (ok)
        return TD_OK;
    td_error_set(err, TD_E_USAGE, "\"%.200s\" is not the address of a server", given);
    td_error_why(err, "expected something like http://127.0.0.1:8000");
    return TD_E_USAGE;
}

enum td_status td_fetch_error(int code, const char *url, const char *words,
                              struct td_error *err)
{
    enum td_status s = TD_E_IO;
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST) {
        s = td_error_set(err, TD_E_PEER, "nothing answers at %s", url);
        td_error_fix(err, "start one with `tandem serve MODEL`, or give the address of "
                          "one that runs with --url");
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        s = td_error_set(err, TD_E_TIMEOUT, "%s does not answer in time", url);
        td_error_fix(err, "see whether that server is overloaded or stopped");
    } else if (code == CURLE_WRITE_ERROR) {
        s = td_error_set(err, TD_E_LIMIT, "%s answers with more than is expected", url);
        td_error_fix(err, "see whether the address is that of a model server");
    } else {
        td_error_set(err, s, "the connection to %s failed", url);
        td_error_fix(err, "see whether the address is that of a model server");
    }
    td_error_why(err, "%s",
                 words && *words ? words : curl_easy_strerror((CURLcode)code));
    return s;
}

static size_t on_body(char *p, size_t size, size_t n, void *self)
{
    return td_buf_add(self, p, size * n) == TD_OK ? size * n : 0;
}

enum td_status td_fetch(const char *url, const char *path, const char *key,
                        double seconds, struct td_buf *body, long *http,
                        struct td_error *err)
{
    char whole[TD_MAX_PATH], header[TD_MAX_PATH], words[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    CURL *c = curl_easy_init();
    if (!c)
        return td_error_set(err, TD_E_NOMEM, "no memory for a connection");
    (void)snprintf(whole, sizeof(whole), "%s%s", url, path);
    if (key) {
        (void)snprintf(header, sizeof(header), "Authorization: Bearer %s", key);
        headers = curl_slist_append(NULL, header);
    }
    curl_easy_setopt(c, CURLOPT_URL, whole);
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)(CONNECT_SECONDS * 1000));
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(seconds * 1000));
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, body);
    CURLcode code = curl_easy_perform(c);
    enum td_status s =
        code == CURLE_OK ? TD_OK : td_fetch_error((int)code, url, words, err);
    if (s == TD_OK)
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, http);
    curl_slist_free_all(headers);
    curl_easy_cleanup(c);
    return s;
}
