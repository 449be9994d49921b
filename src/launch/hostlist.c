/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the list of hosts comes from. See hostlist.h.
 */
#include "launch/hostlist.h"

#include "base/file.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 * 1024, MAX_DIGITS = 9 };

bool td_hostlist_slurm(const char *hosts)
{
    return hosts && strcmp(hosts, "slurm") == 0;
}

/* ---- Slurm's node lists --------------------------------------------------------------- */

/* Names are written out one by one. */
struct writer {
    struct td_buf *out;
    size_t begin; /* length of `out` before the first name */
    int names;
};

static enum td_status bad_list(const char *list, struct td_error *err)
{
    td_error_set(err, TD_E_USAGE, "the node list \"%.200s\" cannot be read", list);
    td_error_why(err, "Slurm writes node lists as a,n[01-03,7]");
    td_error_fix(err, "give the machines with --hosts a,b");
    return TD_E_USAGE;
}

static bool put_name(struct writer *w, const char *head, size_t n, long number,
                     int width, const char *tail, size_t m)
{
    if (w->names == TD_MAX_RANKS)
        return false;
    if (w->out->len > w->begin)
        td_buf_addc(w->out, ',');
    td_buf_add(w->out, head, n);
    if (width > 0)
        td_buf_addf(w->out, "%0*ld", width, number);
    td_buf_add(w->out, tail, m);
    w->names++;
    return true;
}

static bool read_number(const char **p, long *value, int *width)
{
    *value = 0;
    for (*width = 0; **p >= '0' && **p <= '9' && *width < MAX_DIGITS;
         (*p)++, (*width)++)
        *value = *value * 10 + (**p - '0');
    return *width > 0 && !(**p >= '0' && **p <= '9');
}

/* One entry, n bytes: NAME, or HEAD[1-3,7]TAIL with one pair of brackets. */
static bool put_entry(struct writer *w, const char *entry, size_t n)
{
    const char *end = entry + n, *open = memchr(entry, '[', n);
    if (!open)
        return n > 0 && !memchr(entry, ']', n) && put_name(w, entry, n, 0, 0, "", 0);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close || memchr(close, '[', (size_t)(end - close)))
        return false;
    for (const char *p = open + 1; p < close;) {
        long from, to;
        int width, other;
        if (!read_number(&p, &from, &width))
            return false;
        to = from;
        if (*p == '-') {
            p++;
            if (!read_number(&p, &to, &other))
                return false;
        }
        if (p != close && *p++ != ',')
            return false;
        for (long i = from; i <= to; i++)
            if (!put_name(w, entry, (size_t)(open - entry), i, width, close + 1,
                          (size_t)(end - close - 1)))
                return false;
        if (to < from)
            return false;
    }
    return true;
}

enum td_status td_hostlist_slurm_nodes(const char *list, struct td_buf *out,
                                       struct td_error *err)
{
    struct writer w = {out, out->len, 0};
    for (const char *p = list;; p++) {
        const char *begin = p;
        for (int depth = 0; *p && (depth > 0 || *p != ','); p++)
            depth += (*p == '[') - (*p == ']');
        if (!put_entry(&w, begin, (size_t)(p - begin)))
            return bad_list(list, err);
        if (!*p)
            break;
    }
    if (out->status != TD_OK)
        td_error_set(err, out->status, "no room for the names of the hosts");
    return out->status;
}

static enum td_status from_slurm(struct td_buf *out, struct td_error *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST");
    if (list && *list)
        return td_hostlist_slurm_nodes(list, out, err);
    td_error_set(err, TD_E_HOSTS, "this is no Slurm allocation");
    td_error_why(err, "SLURM_JOB_NODELIST is not set");
    td_error_fix(err, "start tandem with sbatch or salloc, or give --hosts a,b");
    return TD_E_HOSTS;
}

/* ---- host files ------------------------------------------------------------------------ */

static enum td_status from_file(const char *path, struct td_buf *out,
                                struct td_error *err)
{
    struct td_buf text;
    size_t begin = out->len;
    td_buf_init(&text, MAX_FILE);
    enum td_status s = td_file_read(path, &text, err);
    for (const char *p = s == TD_OK ? text.p : NULL; p && *p;) {
        size_t line = strcspn(p, "\r\n"), skip = strspn(p, " \t");
        size_t n = strcspn(p + skip, " \t\r\n#");
        if (n > 0 && out->len > begin)
            td_buf_addc(out, ',');
        td_buf_add(out, p + skip, n);
        p += line + strspn(p + line, "\r\n");
    }
    td_buf_release(&text);
    if (s != TD_OK)
        return s;
    if (out->status != TD_OK)
        return td_error_set(err, out->status, "no room for the names of the hosts");
    if (out->len > begin)
        return TD_OK;
    td_error_set(err, TD_E_HOSTS, "%s names no host", path);
    td_error_why(err, "a host file has the name of a host in each line");
    return TD_E_HOSTS;
}

enum td_status td_hostlist_expand(const char *hosts, struct td_buf *out,
                                  struct td_error *err)
{
    if (td_hostlist_slurm(hosts))
        return from_slurm(out, err);
    if (*hosts == '@')
        return from_file(hosts + 1, out, err);
    if (td_buf_adds(out, hosts) != TD_OK)
        td_error_set(err, out->status, "no room for the names of the hosts");
    return out->status;
}
