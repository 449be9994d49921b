/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts as JSON and back. See facts.h.
 *
 * One table for each struct says which member goes by which key and what it may be; the
 * writer and the reader both walk it, so that they cannot disagree and nothing is
 * believed unchecked.
 */
#include "fabric/facts.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum kind { TEXT, WHOLE, REAL, TRUTH, LIST, OWNED_LIST };

struct table;

struct field {
    const char *key;
    enum kind kind;
    size_t at, size;           /* of the member; of one element for lists */
    int64_t lo, hi;            /* numbers; hi is the most elements of a list */
    size_t count;              /* where the length of a list is (int64_t) */
    const struct table *table; /* of a list's elements */
};

struct table {
    const struct field *fields;
    size_t n;
};

#define S(s, key, m)                                                                   \
    {                                                                                  \
        key, TEXT, offsetof(struct s, m), sizeof(((struct s *)0)->m), 0, 0, 0, NULL    \
    }
#define I(s, key, m, lo, hi)                                                           \
    {                                                                                  \
        key, WHOLE, offsetof(struct s, m), sizeof(int64_t), lo, hi, 0, NULL            \
    }
#define R(s, key, m)                                                                   \
    {                                                                                  \
        key, REAL, offsetof(struct s, m), sizeof(double), 0, INT64_C(1) << 40, 0, NULL \
    }
#define B(s, key, m)                                                                   \
    {                                                                                  \
        key, TRUTH, offsetof(struct s, m), sizeof(bool), 0, 0, 0, NULL                 \
    }
#define L(s, key, m, c, table)                                                         \
    {                                                                                  \
        key, LIST, offsetof(struct s, m), sizeof(((struct s *)0)->m[0]), 0,            \
            (int64_t)TD_COUNT(((struct s *)0)->m), offsetof(struct s, c), table        \
    }

static const struct field iface_fields[] = {
    S(td_iface, "name", name),
    S(td_iface, "kind", kind),
    S(td_iface, "mac", mac),
    I(td_iface, "index", index, 0, INT32_MAX),
    I(td_iface, "mtu", mtu, 0, UINT32_MAX),
    I(td_iface, "mbit", mbit, 0, INT32_MAX),
    B(td_iface, "up", up),
    B(td_iface, "carrier", carrier),
    B(td_iface, "loopback", loopback),
};

static const struct field addr_fields[] = {
    S(td_address, "address", text),
    S(td_address, "network", cidr),
    S(td_address, "iface", iface),
    I(td_address, "prefix", prefix, 0, 128),
};

static const struct field route_fields[] = {
    S(td_route, "to", to),
    S(td_route, "via", via),
    S(td_route, "iface", iface),
};

static const struct field gid_fields[] = {
    I(td_gid, "index", index, 0, 65535),
    S(td_gid, "gid", text),
    S(td_gid, "type", type),
    S(td_gid, "iface", iface),
};

static const struct table gid_table = {gid_fields, TD_COUNT(gid_fields)};

static const struct field rdma_fields[] = {
    S(td_rdma, "device", device), I(td_rdma, "port", port, 1, 255),
    B(td_rdma, "active", active), B(td_rdma, "ethernet", ethernet),
    R(td_rdma, "gbit", gbit),     L(td_rdma, "gids", gids, n_gids, &gid_table),
};

static const struct field gpu_fields[] = {
    S(td_gpu_facts, "name", name),
    S(td_gpu_facts, "uuid", uuid),
    I(td_gpu_facts, "capability", capability, 0, 10000),
    B(td_gpu_facts, "unified", unified),
    I(td_gpu_facts, "total", total, 0, INT64_MAX),
    I(td_gpu_facts, "used", used, 0, INT64_MAX),
};

static const struct field holder_fields[] = {
    I(td_holder, "pid", pid, 0, INT32_MAX),
    I(td_holder, "gpu", gpu, -1, TD_FACT_GPUS),
    I(td_holder, "bytes", bytes, 0, INT64_MAX),
    S(td_holder, "command", command),
    S(td_holder, "container", container),
};

struct own_name {
    char text[TD_FACT_ADDR];
};

static const struct field own_fields[] = {S(own_name, "address", text)};

static const struct field file_fields[] = {
    S(td_model_file, "name", name),
    I(td_model_file, "size", size, 0, INT64_MAX),
    S(td_model_file, "hash", hash),
};

static const struct table iface_table = {iface_fields, TD_COUNT(iface_fields)};
static const struct table addr_table = {addr_fields, TD_COUNT(addr_fields)};
static const struct table route_table = {route_fields, TD_COUNT(route_fields)};
static const struct table rdma_table = {rdma_fields, TD_COUNT(rdma_fields)};
static const struct table gpu_table = {gpu_fields, TD_COUNT(gpu_fields)};
static const struct table holder_table = {holder_fields, TD_COUNT(holder_fields)};
static const struct table own_table = {own_fields, TD_COUNT(own_fields)};
static const struct table file_table = {file_fields, TD_COUNT(file_fields)};

static const struct field facts_fields[] = {
    S(td_facts, "host", host),
    S(td_facts, "version", version),
    S(td_facts, "build", build),
    S(td_facts, "program", program),
    S(td_facts, "arch", arch),
    S(td_facts, "kernel", kernel),
    S(td_facts, "mpi", mpi),
    S(td_facts, "orted", orted),
    S(td_facts, "cpu", cpu),
    I(td_facts, "cores", cores, 0, 1 << 20),
    I(td_facts, "memory_total", memory.total, 0, INT64_MAX),
    I(td_facts, "memory_available", memory.available, 0, INT64_MAX),
    I(td_facts, "group_limit", memory.group_limit, 0, INT64_MAX),
    I(td_facts, "group_used", memory.group_used, 0, INT64_MAX),
    S(td_facts, "group", memory.group),
    I(td_facts, "space_limit", memory.space_limit, 0, INT64_MAX),
    I(td_facts, "space_used", memory.space_used, 0, INT64_MAX),
    I(td_facts, "data_limit", memory.data_limit, 0, INT64_MAX),
    I(td_facts, "data_used", memory.data_used, 0, INT64_MAX),
    I(td_facts, "resident", memory.resident, 0, INT64_MAX),
    I(td_facts, "kills_host", kills.host, -1, INT64_MAX),
    I(td_facts, "kills_group", kills.group, -1, INT64_MAX),
    I(td_facts, "memlock", memlock, -1, INT64_MAX),
    I(td_facts, "nofile", nofile, -1, INT64_MAX),
    I(td_facts, "shm_total", shm_total, 0, INT64_MAX),
    I(td_facts, "shm_free", shm_free, 0, INT64_MAX),
    S(td_facts, "disk_path", disk.path),
    I(td_facts, "disk_total", disk.total, 0, INT64_MAX),
    I(td_facts, "disk_free", disk.free, 0, INT64_MAX),
    L(td_facts, "ifaces", ifaces, n_ifaces, &iface_table),
    L(td_facts, "addresses", addrs, n_addrs, &addr_table),
    L(td_facts, "routes", routes, n_routes, &route_table),
    L(td_facts, "rdma", rdma, n_rdma, &rdma_table),
    L(td_facts, "own_name", own, n_own, &own_table),
    S(td_facts, "driver", driver),
    L(td_facts, "gpus", gpus, n_gpus, &gpu_table),
    L(td_facts, "holders", holders, n_holders, &holder_table),
    S(td_facts, "model", model),
    S(td_facts, "model_error", model_error),
    {"files", OWNED_LIST, offsetof(struct td_facts, files),
     sizeof(struct td_model_file), 0, TD_MAX_MODEL_FILES,
     offsetof(struct td_facts, n_files), &file_table},
    I(td_facts, "model_bytes", model_bytes, 0, INT64_MAX),
};

static const struct table facts_table = {facts_fields, TD_COUNT(facts_fields)};

/* ---- writing ------------------------------------------------------------------------ */

static void put(struct td_buf *out, const struct table *t, const void *from);

static void put_list(struct td_buf *out, const struct field *f, const char *base)
{
    int64_t n;
    const char *elements = base + f->at;
    memcpy(&n, base + f->count, sizeof(n));
    if (f->kind == OWNED_LIST)
        memcpy(&elements, base + f->at, sizeof(elements));
    td_buf_addc(out, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i)
            td_buf_addc(out, ',');
        put(out, f->table, elements + (size_t)i * f->size);
    }
    td_buf_addc(out, ']');
}

static void put(struct td_buf *out, const struct table *t, const void *from)
{
    const char *base = from;
    for (size_t i = 0; i < t->n; i++) {
        const struct field *f = &t->fields[i];
        int64_t whole;
        double real;
        bool truth;
        td_buf_addf(out, "%c\"%s\":", i ? ',' : '{', f->key);
        switch (f->kind) {
        case TEXT:
            td_json_add_string(out, base + f->at, strlen(base + f->at));
            break;
        case WHOLE:
            memcpy(&whole, base + f->at, sizeof(whole));
            td_buf_addf(out, "%" PRId64, whole);
            break;
        case REAL:
            memcpy(&real, base + f->at, sizeof(real));
            td_buf_addf(out, "%.9g", isfinite(real) ? real : 0.0);
            break;
        case TRUTH:
            memcpy(&truth, base + f->at, sizeof(truth));
            td_buf_adds(out, truth ? "true" : "false");
            break;
        case LIST:
        case OWNED_LIST:
            put_list(out, f, base);
            break;
        }
    }
    td_buf_addc(out, '}');
}

enum td_status td_facts_put(struct td_buf *out, const struct td_facts *f)
{
    put(out, &facts_table, f);
    return out->status;
}

/* ---- reading ------------------------------------------------------------------------ */

static enum td_status get(const json_t *o, const struct table *t, const char *where,
                          void *to, struct td_error *err);

static enum td_status get_text(const json_t *o, const struct field *f,
                               const char *where, char *to, struct td_error *err)
{
    const char *text;
    enum td_status s = td_json_str(o, f->key, where, "", &text, err);
    if (s != TD_OK)
        return s;
    if (strlen(text) >= f->size)
        return td_error_set(err, TD_E_LIMIT, "%s: %s has more than %zu bytes", where,
                            f->key, f->size - 1);
    memcpy(to, text, strlen(text) + 1);
    return TD_OK;
}

static enum td_status get_list(const json_t *o, const struct field *f,
                               const char *where, char *base, struct td_error *err)
{
    const json_t *list = json_object_get(o, f->key);
    char *elements = base + f->at;
    int64_t n = (int64_t)json_array_size(list);
    enum td_status s = TD_OK;
    if (list && !json_is_array(list))
        return td_json_refuse(list, f->key, where, "a list", err);
    if (n > f->hi)
        return td_error_set(err, TD_E_LIMIT, "%s: %s has more than %" PRId64 " entries",
                            where, f->key, f->hi);
    if (f->kind == OWNED_LIST) {
        elements = td_calloc((size_t)TD_MAX(n, 1), f->size);
        if (!elements)
            return td_error_set(err, TD_E_NOMEM, "no memory for %s of %s", f->key,
                                where);
        memcpy(base + f->at, &elements, sizeof(elements));
    }
    memcpy(base + f->count, &n, sizeof(n));
    for (int64_t i = 0; i < n && s == TD_OK; i++)
        s = get(json_array_get(list, (size_t)i), f->table, where,
                elements + (size_t)i * f->size, err);
    return s;
}

static enum td_status get(const json_t *o, const struct table *t, const char *where,
                          void *to, struct td_error *err)
{
    char *base = to;
    enum td_status s = TD_OK;
    if (!json_is_object(o))
        return td_error_set(err, TD_E_CONFIG, "%s: an object was expected", where);
    for (size_t i = 0; i < t->n && s == TD_OK; i++) {
        const struct field *f = &t->fields[i];
        int64_t whole = 0;
        double real = 0;
        bool truth = false;
        switch (f->kind) {
        case TEXT:
            s = get_text(o, f, where, base + f->at, err);
            break;
        case WHOLE:
            s = td_json_int(o, f->key, where, f->lo, f->hi, TD_MAX(f->lo, 0), &whole,
                            err);
            memcpy(base + f->at, &whole, sizeof(whole));
            break;
        case REAL:
            s = td_json_double(o, f->key, where, 0, (double)f->hi, 0, &real, err);
            memcpy(base + f->at, &real, sizeof(real));
            break;
        case TRUTH:
            s = td_json_bool(o, f->key, where, false, &truth, err);
            memcpy(base + f->at, &truth, sizeof(truth));
            break;
        case LIST:
        case OWNED_LIST:
            s = get_list(o, f, where, base, err);
            break;
        }
    }
    return s;
}

enum td_status td_facts_get(const json_t *o, const char *where, struct td_facts *f,
                            struct td_error *err)
{
    return get(o, &facts_table, where, f, err);
}
