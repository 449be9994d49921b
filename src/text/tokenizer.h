/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer of a model: text to token ids and back. This is what other rooms use.
 *
 * It reads what a hub delivers, tokenizer.json and tokenizer_config.json, and gives the
 * ids that the `tokenizers` package gives. A text goes through these steps:
 *
 *     repair       bytes that are no UTF-8 become U+FFFD           (tokenizer.c)
 *     added.h      added tokens such as <|im_start|> are cut out
 *     nfc.h        normalization form C, and added tokens that ask for it
 *     pretok.h     cut into words, by patterns                     (pattern.h)
 *     bpe.h        each word to ids                                (vocab.h)
 *
 * and ids come back as bytes (detok.h). Taken are byte-level BPE models: normalizer NFC
 * or none; pre-tokenizers Split (a pattern or a text, behaviour Isolated), Digits and
 * ByteLevel without prefix space; decoder ByteLevel; a post-processor that adds no token.
 * Truncation and padding settings are not followed. All else is refused by name.
 *
 * A tokenizer does not change after loading (but for notes that threads may take at the
 * same time): all functions but load and free may run in any number of threads.
 */
#ifndef TD_TEXT_TOKENIZER_H
#define TD_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/status.h"
#include "text/bpe.h"
#include "text/detok.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct td_tokenizer;

/* Reads dir/tokenizer.json and, when it is there, dir/tokenizer_config.json: further
 * added tokens, flags of known ones, the end-of-sequence token. *out is freed with
 * td_tokenizer_free(). Errors name file and place: TD_E_NOT_FOUND, TD_E_JSON,
 * TD_E_TOKENIZER (damaged, or of a kind that tandem does not read), TD_E_CONFIG (a value
 * of the wrong type), TD_E_LIMIT, TD_E_NOMEM, TD_E_IO, TD_E_LFS_POINTER. */
enum td_status td_tokenizer_load(const char *dir, struct td_tokenizer **out,
                                 struct td_error *err);

/* The same from memory; config may be NULL. Neither is used afterwards. */
enum td_status td_tokenizer_parse(const char *json, size_t n, const char *config,
                                  size_t config_n, struct td_tokenizer **out,
                                  struct td_error *err);

void td_tokenizer_free(struct td_tokenizer *t);

enum {
    TD_ENCODE_TEXT = 0,    /* special tokens in the text are text: for foreign words */
    TD_ENCODE_SPECIAL = 1, /* special tokens in the text become their ids */
    TD_DECODE_ALL = 0,
    TD_DECODE_SKIP_SPECIAL = 1 /* special tokens are left out; other added ones stay */
};

/* Appends the ids of n bytes of text to an initialised array; as it was on failure.
 * No token is added before or after. Each longest run of bytes that could begin a
 * character but does not complete it, else each byte that is no UTF-8, counts as one
 * U+FFFD (a lossy decode). Zero bytes are text. Added tokens that are not special, such
 * as <think>, become their ids under both flags, as in the reference.
 * Errors: TD_E_LIMIT (longer than TD_MAX_TEXT, or the pattern takes too long),
 * TD_E_NOMEM. */
enum td_status td_tokenizer_encode(const struct td_tokenizer *t, const char *text,
                                   size_t n, unsigned flags, struct td_ids *out,
                                   struct td_error *err);

/* Appends the text of n ids: valid UTF-8, with U+FFFD for bytes that are not. Ids that
 * stand for nothing give nothing. Errors: the buffer's. */
enum td_status td_tokenizer_decode(const struct td_tokenizer *t, const int32_t *ids,
                                   size_t n, unsigned flags, struct td_buf *out);

/* The number of ids: those at or beyond it are padding of the model's matrices. */
size_t td_tokenizer_size(const struct td_tokenizer *t);

/* The bytes that an id stands for (*n of them, no final zero, perhaps half a character),
 * borrowed from the tokenizer. NULL when it stands for nothing. */
const char *td_tokenizer_token(const struct td_tokenizer *t, int32_t id, size_t *n);

/* The id whose bytes these are, an added token's before others; -1 when there is none. */
int32_t td_tokenizer_find(const struct td_tokenizer *t, const char *text, size_t n);

/* True for special added tokens: those that skipping leaves out. */
bool td_tokenizer_is_special(const struct td_tokenizer *t, int32_t id);

/* The end-of-sequence token of tokenizer_config.json, -1 when it names none. A model's
 * configuration may name further ids to stop at. */
int32_t td_tokenizer_eos(const struct td_tokenizer *t);

#endif
