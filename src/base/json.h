/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON on top of jansson: bounded parsing, and getters that report the field by name.
 *
 * Getters take the object, the key and a default. An absent key or a JSON null gives
 * the default; a value of another type or out of range is an error that says
 * `WHERE: KEY is VALUE, expected ...`. `where` names the document (a path, "request").
 */
#ifndef TD_BASE_JSON_H
#define TD_BASE_JSON_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Parses n bytes (duplicate keys refused, at most TD_MAX_JSON_DEPTH levels, no NUL).
 * *out is a new reference. Errors: TD_E_JSON with line and column, TD_E_NOMEM. */
enum td_status td_json_parse(const char *text, size_t n, const char *where,
                             json_t **out, struct td_error *err);

/* The same, but strings may have NUL in them: a model may say anything. */
enum td_status td_json_parse_nul(const char *text, size_t n, const char *where,
                                 json_t **out, struct td_error *err);

/* Reads and parses a file of at most max bytes. */
enum td_status td_json_read(const char *path, size_t max, json_t **out,
                            struct td_error *err);

enum td_status td_json_int(const json_t *obj, const char *key, const char *where,
                           int64_t lo, int64_t hi, int64_t absent, int64_t *out,
                           struct td_error *err);
enum td_status td_json_double(const json_t *obj, const char *key, const char *where,
                              double lo, double hi, double absent, double *out,
                              struct td_error *err);
enum td_status td_json_bool(const json_t *obj, const char *key, const char *where,
                            bool absent, bool *out, struct td_error *err);

/* *out is borrowed from obj, or `absent`. */
enum td_status td_json_str(const json_t *obj, const char *key, const char *where,
                           const char *absent, const char **out, struct td_error *err);

/* Refuses a value as the getters do: `WHERE: KEY is VALUE, expected ...` (TD_E_CONFIG).
 * Long values are shown by their beginning. */
enum td_status td_json_refuse(const json_t *v, const char *key, const char *where,
                              const char *expected, struct td_error *err);

/* Appends a JSON string literal with its quotes; bytes that are not UTF-8 become U+FFFD. */
enum td_status td_json_add_string(struct td_buf *b, const char *s, size_t n);

#endif
