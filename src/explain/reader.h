/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a log: plain, gzip or zstd, told apart by their first bytes.
 */
#ifndef TD_EXPLAIN_READER_H
#define TD_EXPLAIN_READER_H

#include "base/status.h"

#include <stddef.h>

struct td_reader;

/* Reads from a descriptor, which stays the caller's; or from memory, which must outlive
 * the reader, with fd -1. */
enum td_status td_reader_new(int fd, const void *bytes, size_t n,
                             struct td_reader **out, struct td_error *err);
void td_reader_free(struct td_reader *r);

/* Up to n bytes of unpacked text. *got is 0 at the end. After damage in a compressed
 * stream, or a read error, what came before it has been delivered, *got is 0 and
 * td_reader_note() tells what happened. */
enum td_status td_reader_read(struct td_reader *r, char *out, size_t n, size_t *got);

/* NULL, or why the text ends early. Static. */
const char *td_reader_note(const struct td_reader *r);

#endif
