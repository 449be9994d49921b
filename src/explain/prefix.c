/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefixes of log lines. See prefix.h.
 *
 * Each layer is a function that looks at the beginning of the text and returns how many
 * bytes belong to it (0: this layer is not there). They are tried in turn until none
 * fits. The forms are those of kubelet and docker, journald and syslog, compose, mpirun,
 * srun, torchrun, torch, vLLM, SGLang, Ray, NCCL, llama.cpp and the kernel.
 */
#include "explain/prefix.h"

#include <stdbool.h>
#include <string.h>

enum {
    MAX_LAYERS = 12,
    REPEATED_MAX = 320 /* bytes of Ray's note about repeated lines */
};

struct cut {
    const char *p, *end;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_word(char c)
{
    return is_alpha(c) || is_digit(c) || c == '_';
}

static bool eat(struct cut *c, char want)
{
    if (c->p >= c->end || *c->p != want)
        return false;
    c->p++;
    return true;
}

static bool eat_str(struct cut *c, const char *want)
{
    size_t n = strlen(want);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, want, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* Between lo and hi digits (hi at most 18); the value or -1. */
static long eat_num(struct cut *c, int lo, int hi)
{
    long v = 0;
    int n = 0;
    while (c->p + n < c->end && n < hi && is_digit(c->p[n])) {
        v = v * 10 + (c->p[n] - '0');
        n++;
    }
    if (n < lo)
        return -1;
    c->p += n;
    return v;
}

static void copy(char *out, size_t size, const char *p, const char *end)
{
    size_t n = (size_t)(end - p);
    n = n < size ? n : size - 1;
    memcpy(out, p, n);
    out[n] = 0;
}

static void set_time(struct td_line *line, long month, long day, double seconds)
{
    static const int before[] = {0,   31,  59,  90,  120, 151, 181,
                                 212, 243, 273, 304, 334, 365};
    if (month < 1 || month > 12 || day < 1 || day > 31)
        return;
    line->time = (double)(before[month - 1] + day - 1) * 86400.0 + seconds;
}

/* hh:mm:ss with an optional fraction after '.' or ','. Returns -1 when not there. */
static double eat_clock(struct cut *c)
{
    long h = eat_num(c, 2, 2);
    if (h < 0 || h > 24 || !eat(c, ':'))
        return -1;
    long m = eat_num(c, 2, 2);
    if (m < 0 || !eat(c, ':'))
        return -1;
    long s = eat_num(c, 2, 2);
    if (s < 0)
        return -1;
    double t = (double)(h * 3600 + m * 60 + s);
    if (c->end - c->p > 1 && (*c->p == '.' || *c->p == ',') && is_digit(c->p[1])) {
        double scale = 0.1;
        for (c->p++; c->p < c->end && is_digit(*c->p); c->p++, scale /= 10)
            t += (*c->p - '0') * scale;
    }
    return t;
}

/* yyyy-mm-dd or yyyy/mm/dd, then ' ' or 'T', then a clock. */
static bool eat_date(struct cut *c, struct td_line *line)
{
    struct cut d = *c;
    long y = eat_num(&d, 4, 4);
    if (y < 1970 || !(eat(&d, '-') || eat(&d, '/')))
        return false;
    long mo = eat_num(&d, 2, 2);
    if (!(eat(&d, '-') || eat(&d, '/')))
        return false;
    long day = eat_num(&d, 2, 2);
    if (mo < 0 || day < 0 || !(eat(&d, ' ') || eat(&d, 'T')))
        return false;
    double t = eat_clock(&d);
    if (t < 0)
        return false;
    set_time(line, mo, day, t);
    *c = d;
    return true;
}

static char level_of(const char *p, size_t n)
{
    static const struct {
        const char *name;
        char level;
    } names[] = {{"DEBUG", 'D'},   {"INFO", 'I'},  {"WARNING", 'W'},  {"WARN", 'W'},
                 {"ERROR", 'E'},   {"FATAL", 'C'}, {"CRITICAL", 'C'}, {"info", 'I'},
                 {"warning", 'W'}, {"error", 'E'}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, p, n) == 0)
            return names[i].level;
    return 0;
}

static char eat_level(struct cut *c)
{
    const char *p = c->p;
    while (p < c->end && is_alpha(*p) && p - c->p < 9)
        p++;
    char level = level_of(c->p, (size_t)(p - c->p));
    if (level)
        c->p = p;
    return level;
}

static size_t used(const struct cut *c, const char *start)
{
    const char *p = c->p;
    if (p < c->end && *p == ' ')
        p++;
    return (size_t)(p - start);
}

/* 2024-06-28T06:11:52.685300953Z [stderr F ], [2026-02-24T20:21:58Z] */
static size_t layer_collector(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    bool bracket = eat(&c, '[');
    if (!eat_date(&c, line))
        return 0;
    if (!eat(&c, 'Z') && c.p < c.end && (*c.p == '+' || *c.p == '-')) {
        struct cut z = {c.p + 1, c.end};
        if (eat_num(&z, 2, 2) >= 0 && (eat(&z, ':'), eat_num(&z, 2, 2) >= 0))
            c = z;
    }
    if (bracket)
        return eat(&c, ']') ? used(&c, p) : 0;
    if (!eat(&c, ' '))
        return 0;
    if (eat_str(&c, "stderr F ") || eat_str(&c, "stdout F ") ||
        eat_str(&c, "stderr P ") || eat_str(&c, "stdout P "))
        return (size_t)(c.p - p);
    return (size_t)(c.p - p);
}

/* Aug 19 18:34:27 host-a unit[8727]: */
static size_t layer_syslog(const char *p, const char *end, struct td_line *line)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct cut c = {p, end};
    if (end - p < 16 || !is_alpha(p[0]) || p[3] != ' ')
        return 0;
    long month = 0;
    for (long i = 0; i < 12; i++)
        if (memcmp(names + i * 3, p, 3) == 0)
            month = i + 1;
    c.p += 4;
    (void)eat(&c, ' ');
    long day = eat_num(&c, 1, 2);
    if (!month || day < 0 || !eat(&c, ' '))
        return 0;
    double t = eat_clock(&c);
    if (t < 0 || !eat(&c, ' '))
        return 0;
    const char *host = c.p;
    while (c.p < c.end && *c.p != ' ')
        c.p++;
    const char *host_end = c.p;
    if (!eat(&c, ' '))
        return 0;
    const char *unit = c.p;
    while (c.p < c.end && *c.p != ' ' && *c.p != ':' && *c.p != '[')
        c.p++;
    const char *unit_end = c.p;
    if (eat(&c, '[')) {
        line->pid = eat_num(&c, 1, 9);
        (void)eat(&c, ']');
    }
    if (!eat(&c, ':'))
        return 0;
    set_time(line, month, day, t);
    copy(line->host, sizeof(line->host), host, host_end);
    copy(line->role, sizeof(line->role), unit, unit_end);
    return used(&c, p);
}

/* service-1    |  */
static size_t layer_compose(const char *p, const char *end, struct td_line *line)
{
    const char *q = p;
    while (q < end && q - p < 40 && (is_word(*q) || *q == '-' || *q == '.'))
        q++;
    const char *name_end = q;
    if (q == p)
        return 0;
    while (q < end && *q == ' ' && q - p < 80)
        q++;
    if (q == name_end || q >= end || *q != '|')
        return 0;
    copy(line->role, sizeof(line->role), p, name_end);
    q++;
    return (size_t)(q < end && *q == ' ' ? q + 1 - p : q - p);
}

/* "> " of quoted pastes, "head.log:12:" of grep, "kernel: " */
static size_t layer_paste(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    (void)line;
    if (eat_str(&c, "> ") || eat_str(&c, "kernel: "))
        return (size_t)(c.p - p);
    while (c.p < end && c.p - p < 200 && (is_word(*c.p) || strchr("/-.", *c.p)))
        c.p++;
    const char *q = c.p;
    if (q - p < 5 || (memcmp(q - 4, ".log", 4) != 0 && memcmp(q - 4, ".txt", 4) != 0 &&
                      memcmp(q - 4, ".out", 4) != 0 && memcmp(q - 4, ".err", 4) != 0))
        return 0;
    if (!eat(&c, ':'))
        return 0;
    struct cut n = c;
    if (eat_num(&n, 1, 9) >= 0 && eat(&n, ':'))
        c = n;
    return (size_t)(c.p - p);
}

/* [1,3]<stdout>:  [default0]:  [rank0]:  0:  */
static size_t layer_launcher(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    if (p < end && is_digit(*p)) { /* srun -l */
        long rank = eat_num(&c, 1, 4);
        if (!eat_str(&c, ": "))
            return 0;
        line->rank = (int)rank;
        return (size_t)(c.p - p);
    }
    if (!eat(&c, '['))
        return 0;
    if (eat_str(&c, "rank") || eat_str(&c, "default")) {
        long rank = eat_num(&c, 1, 6);
        if (rank < 0 || !eat(&c, ']') || !eat(&c, ':'))
            return 0;
        line->rank = (int)rank;
        return used(&c, p);
    }
    if (eat_num(&c, 1, 6) < 0 || !eat(&c, ','))
        return 0;
    long rank = eat_num(&c, 1, 6);
    if (rank < 0 || !eat_str(&c, "]<std"))
        return 0;
    line->rank = (int)rank;
    while (c.p < end && *c.p != ':')
        c.p++;
    return eat(&c, ':') ? used(&c, p) : 0;
}

static int rank_of_role(const char *role)
{
    const char *tp = strstr(role, "_TP");
    if (!tp)
        return -1;
    struct cut c = {tp + 3, role + strlen(role)};
    return (int)eat_num(&c, 1, 5);
}

/* key=value pairs inside "(Name pid=46, ip=10.0.0.6)" */
static bool role_pairs(struct cut *c, struct td_line *line)
{
    while (c->p < c->end && *c->p != ')') {
        if (eat_str(c, "pid=")) {
            line->pid = eat_num(c, 1, 9);
        } else if (eat_str(c, "ip=")) {
            const char *ip = c->p;
            while (c->p < c->end && *c->p != ')' && *c->p != ',')
                c->p++;
            copy(line->host, sizeof(line->host), ip, c->p);
        } else if (eat_str(c, "rank=")) {
            line->rank = (int)eat_num(c, 1, 6);
        } else if (*c->p == ' ' || *c->p == ',') {
            c->p++;
        } else if (*c->p == '+') {
            while (c->p < c->end && *c->p != ')')
                c->p++;
        } else {
            return false;
        }
    }
    return eat(c, ')');
}

/* (EngineCore_DP0 pid=504)  (RayWorkerWrapper pid=2981, ip=10.0.0.6)  (raylet) */
static size_t layer_process(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    struct td_line tmp = *line;
    if (!eat(&c, '('))
        return 0;
    const char *name = c.p;
    while (c.p < end && c.p - name < 80 &&
           (is_word(*c.p) || *c.p == '.' || *c.p == ':'))
        c.p++;
    const char *name_end = c.p;
    bool bare = c.p < end && *c.p == ')';
    if (bare && strncmp(name, "raylet)", 7) != 0 &&
        strncmp(name, "gcs_server)", 11) != 0)
        return 0;
    if (c.p < end && *c.p == '=') /* (pid=53316): no name yet */
        c.p = name_end = name;
    if (!role_pairs(&c, &tmp))
        return 0;
    if (name_end > name) {
        copy(tmp.role, sizeof(tmp.role), name, name_end);
        int rank = rank_of_role(tmp.role);
        if (rank >= 0)
            tmp.rank = rank;
    }
    *line = tmp;
    return used(&c, p);
}

/* INFO 11-23 11:58:35 [ray_utils.py:396] msg; ERROR 12-25 12:05:59 utils.py:226] msg */
static size_t layer_vllm(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    char level = eat_level(&c);
    if (!level)
        return 0;
    if (eat(&c, ':')) { /* python logging's "INFO:     text" of uvicorn */
        line->level = level;
        while (c.p < end && *c.p == ' ')
            c.p++;
        return (size_t)(c.p - p);
    }
    if (!eat(&c, ' '))
        return 0;
    long mo = eat_num(&c, 2, 2);
    if (mo < 0 || !eat(&c, '-'))
        return 0;
    long day = eat_num(&c, 2, 2);
    if (day < 0 || !eat(&c, ' '))
        return 0;
    double t = eat_clock(&c);
    if (t < 0 || !eat(&c, ' '))
        return 0;
    (void)eat(&c, '[');
    const char *q = c.p;
    while (q < end && q - c.p < 120 && *q != ' ' && *q != ']')
        q++;
    if (q >= end || *q != ']')
        return 0;
    c.p = q + 1;
    set_time(line, mo, day, t);
    line->level = level;
    return used(&c, p);
}

/* 2025-11-23 11:58:33,727\tINFO worker.py:1832 -- msg, "... - INFO - file - msg" */
static size_t layer_pylog(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    if (c.p < end && is_digit(*c.p) && !eat_date(&c, line))
        return 0;
    if (c.p > p && !eat(&c, '\t') && !eat_str(&c, " - ") && !eat(&c, ' '))
        return 0;
    char level = eat_level(&c);
    if (!level)
        return 0;
    const char *start = c.p;
    if (eat(&c, ' ')) {
        const char *q = c.p;
        while (q < end && q - c.p < 80 && *q != ' ')
            q++;
        struct cut d = {q, end};
        if (eat_str(&d, " -- ")) {
            line->level = level;
            return (size_t)(d.p - p);
        }
    }
    c.p = start;
    if (start == p || !eat_str(&c, " - "))
        return 0;
    line->level = level;
    return (size_t)(c.p - p);
}

/* [2025-06-13 01:49:41,730 E 1 1] (raylet) x.cc:179: msg; [2025-12-04 07:44:24 TP4] */
static size_t layer_bracket_date(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    if (!eat(&c, '[') || !eat_date(&c, line))
        return 0;
    while (c.p < end && *c.p == ' ') {
        c.p++;
        if (eat_str(&c, "TP")) {
            line->rank = (int)eat_num(&c, 1, 5);
        } else if (c.end - c.p > 1 && strchr("DIWECF", *c.p) && c.p[1] == ' ') {
            line->level = *c.p == 'F' ? 'C' : *c.p;
            c.p++;
            struct cut pid = {c.p + 1, end};
            line->pid = eat_num(&pid, 1, 9);
        } else {
            while (c.p < end && *c.p != ' ' && *c.p != ']')
                c.p++;
        }
    }
    return eat(&c, ']') ? used(&c, p) : 0;
}

/* [E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] and [W socket.cpp:663] */
static size_t layer_c10d(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    bool bracket = eat(&c, '[');
    if (c.p >= end || !strchr("IWEFC", *c.p))
        return 0;
    char level = *c.p == 'F' ? 'C' : *c.p;
    c.p++;
    if (c.p < end && is_digit(*c.p)) {
        long md = eat_num(&c, 3, 4);
        if (md < 0 || !eat(&c, ' '))
            return 0;
        double t = eat_clock(&c);
        if (t < 0)
            return 0;
        set_time(line, md / 100, md % 100, t);
    } else if (!bracket) {
        return 0;
    }
    const char *q = c.p;
    while (q < end && q - c.p < 120 && *q != ']' && *q != '\n')
        q++;
    if (q >= end || *q != ']' || !memchr(c.p, ':', (size_t)(q - c.p)))
        return 0;
    c.p = q + 1;
    line->level = level;
    return used(&c, p);
}

/* host-a:2528:2528 [0] NCCL INFO msg: keeps "NCCL ..." and what stands before it */
static size_t layer_nccl(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    while (c.p < end && c.p - p < 64 && (is_word(*c.p) || *c.p == '-' || *c.p == '.'))
        c.p++;
    const char *host_end = c.p;
    if (host_end == p || !eat(&c, ':'))
        return 0;
    long pid = eat_num(&c, 1, 9);
    if (pid < 0 || !eat(&c, ':') || eat_num(&c, 1, 9) < 0 || !eat(&c, ' '))
        return 0;
    copy(line->host, sizeof(line->host), p, host_end);
    line->pid = pid;
    if (eat(&c, '[')) {
        (void)eat_num(&c, 1, 4);
        (void)eat(&c, ']');
    }
    return used(&c, p);
}

/* [host-a:29881]  */
static size_t layer_mpi(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    if (!eat(&c, '['))
        return 0;
    const char *host = c.p;
    while (c.p < end && c.p - p < 64 && (is_word(*c.p) || *c.p == '-' || *c.p == '.'))
        c.p++;
    const char *host_end = c.p;
    if (host_end == host || !is_alpha(*host) || !eat(&c, ':'))
        return 0;
    long pid = eat_num(&c, 2, 9);
    if (pid < 0 || !eat(&c, ']'))
        return 0;
    copy(line->host, sizeof(line->host), host, host_end);
    line->pid = pid;
    return used(&c, p);
}

/* [74889.644138] of the kernel, 0.00.386.093 E of llama.cpp */
static size_t layer_elapsed(const char *p, const char *end, struct td_line *line)
{
    struct cut c = {p, end};
    if (eat(&c, '[')) {
        while (c.p < end && *c.p == ' ')
            c.p++;
        if (eat_num(&c, 1, 9) < 0 || !eat(&c, '.') || eat_num(&c, 6, 6) < 0)
            return 0;
        static const char kernel[] = "kernel";
        if (!line->role[0])
            copy(line->role, sizeof(line->role), kernel, kernel + sizeof(kernel) - 1);
        return eat(&c, ']') ? used(&c, p) : 0;
    }
    if (eat_num(&c, 1, 5) < 0 || !eat(&c, '.') || eat_num(&c, 2, 2) < 0 ||
        !eat(&c, '.') || eat_num(&c, 3, 3) < 0 || !eat(&c, '.') ||
        eat_num(&c, 3, 3) < 0 || !eat(&c, ' '))
        return 0;
    if (c.p < end && strchr("DIWE", *c.p))
        line->level = *c.p++;
    return used(&c, p);
}

typedef size_t (*layer_fn)(const char *p, const char *end, struct td_line *line);

/* A cheap look at the first byte keeps most lines from trying all layers. */
static size_t one_layer(const char *p, const char *end, struct td_line *line)
{
    static const layer_fn bracket[] = {layer_collector, layer_bracket_date,
                                       layer_launcher,  layer_c10d,
                                       layer_elapsed,   layer_mpi};
    static const layer_fn digit[] = {layer_pylog, layer_collector, layer_launcher,
                                     layer_elapsed, layer_nccl};
    static const layer_fn word[] = {layer_vllm, layer_pylog,   layer_c10d, layer_syslog,
                                    layer_nccl, layer_compose, layer_paste};
    const layer_fn *set = word;
    size_t count = sizeof(word) / sizeof(word[0]);
    if (*p == '(')
        return layer_process(p, end, line);
    if (*p == '>')
        return layer_paste(p, end, line);
    if (*p == '[') {
        set = bracket;
        count = sizeof(bracket) / sizeof(bracket[0]);
    } else if (is_digit(*p)) {
        set = digit;
        count = sizeof(digit) / sizeof(digit[0]);
    } else if (!is_alpha(*p) && *p != '/' && *p != '.') {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct td_line tmp = *line;
        size_t n = set[i](p, end, &tmp);
        if (n > 0) {
            *line = tmp;
            return n;
        }
    }
    return 0;
}

void td_line_parse(const char *text, size_t n, struct td_line *line)
{
    const char *p = text, *end = text + n;
    *line = (struct td_line){.time = -1, .pid = -1, .rank = -1};
    for (int i = 0; i < MAX_LAYERS && p < end; i++) {
        size_t k = one_layer(p, end, line);
        if (k == 0 || k > (size_t)(end - p))
            break;
        p += k;
    }
    line->text = p;
    line->len = (size_t)(end - p);
}

/* Length of an escape sequence at p (ESC or #033 already seen), 0 when it is none. */
static size_t escape_len(const char *p, const char *end)
{
    const char *q = p;
    if (q < end && *q == '[') {
        for (q++; q < end && q - p < 24 && (is_digit(*q) || strchr(";?:", *q)); q++)
            ;
        return q < end && *q ? (size_t)(q + 1 - p) : (size_t)(q - p);
    }
    if (q < end && *q == ']') { /* a title: up to BEL */
        while (q < end && q - p < 256 && *q != '\a')
            q++;
        return q < end && *q == '\a' ? (size_t)(q + 1 - p) : 1;
    }
    return q < end && strchr("()=>", *q) && *q ? 1 : 0;
}

/* Undoes the JSON of docker's log files: {"log":"text\n","stream":"stderr",...}. */
static size_t unwrap_docker(const char *p, size_t n, char *out, size_t size)
{
    size_t k = 0;
    for (size_t i = 8; i < n && k + 1 < size && p[i] != '"'; i++) {
        if (p[i] != '\\' || i + 1 >= n) {
            out[k++] = p[i];
            continue;
        }
        i++;
        if (p[i] == 'u' && i + 4 < n) { /* only control characters matter here */
            out[k++] = memcmp(p + i + 1, "001b", 4) == 0 ? '\x1b' : ' ';
            i += 4;
        } else {
            out[k++] = p[i] == 'n' || p[i] == 'r' ? ' ' : p[i] == 't' ? '\t' : p[i];
        }
    }
    return k;
}

/* Ray's "[repeated 3x across cluster]" at the end of a line, and what it says after it. */
static size_t without_repeated(const char *p, size_t n)
{
    static const char mark[] = " [repeated ";
    size_t from = n > REPEATED_MAX ? n - REPEATED_MAX : 0;
    while (n > 0 && p[n - 1] == ' ')
        n--;
    if (n == 0 || (p[n - 1] != ']' && p[n - 1] != ')'))
        return n;
    for (size_t i = n; i-- > from;) {
        if (p[i] != ' ' || n - i < sizeof(mark) - 1 ||
            memcmp(p + i, mark, sizeof(mark) - 1) != 0)
            continue;
        struct cut c = {p + i + sizeof(mark) - 1, p + n};
        return eat_num(&c, 1, 9) > 0 && eat_str(&c, "x across cluster]") ? i : n;
    }
    return n;
}

size_t td_line_clean(const char *raw, size_t n, char *out, size_t size)
{
    char inner[TD_LINE_MAX];
    const char *p = raw, *end;
    if (n > TD_LINE_MAX)
        n = TD_LINE_MAX;
    if (n > 8 && memcmp(raw, "{\"log\":\"", 8) == 0) {
        n = unwrap_docker(raw, n, inner, sizeof(inner));
        p = inner;
    }
    end = p + n;
    size_t k = 0;
    while (p < end && k + 1 < size) {
        const char *q = p;
        while (q < end && (unsigned char)*q >= ' ' && *q != '#')
            q++;
        size_t run = (size_t)(q - p);
        run = run < size - 1 - k ? run : size - 1 - k;
        memcpy(out + k, p, run);
        k += run;
        p += run;
        if (p >= end || k + 1 >= size)
            break;
        if (*p == '\x1b')
            p += 1 + escape_len(p + 1, end);
        else if (*p == '#' && end - p > 4 && memcmp(p, "#033", 4) == 0)
            p += 4 + escape_len(p + 4, end);
        else if (*p == '#' || *p == '\t')
            out[k++] = *p++;
        else
            p++;
    }
    k = without_repeated(out, k);
    while (k > 0 && (out[k - 1] == ' ' || out[k - 1] == '\t'))
        k--;
    out[k] = 0;
    return k;
}
