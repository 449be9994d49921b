/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode normalization form C. See nfc.h.
 *
 * A character's class:
 *
 *     STARTER   nothing moves it or joins it to what stands before it
 *     1..254    a mark of that combining class, in its place if classes do not descend
 *     CHECK     may change: it decomposes for good, or may join what stands before it
 *
 * Text can be cut before each starter and the parts normalized alone. A part whose marks
 * do not descend and which has no CHECK is normalized.
 */
#include "text/nfc.h"

#include "base/mem.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

enum {
    STARTER = 0,
    CHECK = 255,
    TABLE_END = 0x2FA20, /* starters from here on */
    FIRST_LEAD = 0xCC,   /* characters below U+0300 begin with a smaller byte */
    DECOMPOSED_MAX = 8,  /* code points that one canonical decomposition gives */
    EXPANSION = 2,       /* code points out of one byte, at most (U+0390: 3 of 2) */
    FEW = 64,            /* bytes of a part that needs no memory */
    SMALL_RUN = 16
};

struct range {
    int32_t first, last;
};

/* Code points with a combining class or a decomposition since Unicode 10, whole blocks
 * where those are new. */
static const struct range newer[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
    {0x1715, 0x1715},   {0x1ABF, 0x1AFF},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x105C0, 0x105FF}, {0x10D00, 0x10D8F}, {0x10E80, 0x10EFF}, {0x10F00, 0x10FFF},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113FF}, {0x1145E, 0x1145E},
    {0x11800, 0x1184F}, {0x11900, 0x1195F}, {0x119A0, 0x11AAF}, {0x11D00, 0x11DDF},
    {0x11F00, 0x11F5F}, {0x16100, 0x1613F}, {0x16D40, 0x16D7F}, {0x16FF0, 0x16FF1},
    {0x1E030, 0x1E08F}, {0x1E100, 0x1E14F}, {0x1E290, 0x1E2FF}, {0x1E4D0, 0x1E4FF},
    {0x1E5D0, 0x1E6FF},
};

/* Large blocks of starters, left out when the table is made. */
static const struct range starters[] = {
    {0x3400, 0x4DBF}, {0x4E00, 0xA4CF}, {0xAC00, 0xD7FF}, {0x20000, 0x2F7FF}};

/* Hangul vowels and final consonants, which join what stands before them. */
static const struct range jamo[] = {{0x1161, 0x1175}, {0x11A8, 0x11C2}};

void td_nfc_init(struct td_nfc *nfc)
{
    nfc->classes = NULL;
}

void td_nfc_release(struct td_nfc *nfc)
{
    td_free(nfc->classes);
    td_nfc_init(nfc);
}

static size_t decompose(int32_t c, int32_t *out)
{
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(
        c, out, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    if (n >= 1 && n <= DECOMPOSED_MAX)
        return (size_t)n;
    out[0] = c;
    return 1;
}

static size_t compose(int32_t *c, size_t n)
{
    utf8proc_ssize_t m = utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n,
                                                  UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    return m > 0 ? (size_t)m : n;
}

static uint8_t combining_class(int32_t c)
{
    return (uint8_t)utf8proc_get_property(c)->combining_class;
}

static void classify(uint8_t *classes, int32_t c)
{
    int32_t parts[DECOMPOSED_MAX];
    uint8_t ccc = combining_class(c);
    if (ccc && classes[c] != CHECK)
        classes[c] = ccc;
    size_t n = decompose(c, parts);
    if (n == 1 && parts[0] == c)
        return;
    for (size_t i = 1; i < n; i++)
        if (parts[i] < TABLE_END)
            classes[parts[i]] = CHECK;
    if (compose(parts, n) != 1 || parts[0] != c)
        classes[c] = CHECK;
}

enum td_status td_nfc_open(struct td_nfc *nfc)
{
    nfc->classes = td_calloc(TABLE_END, 1);
    if (!nfc->classes)
        return TD_E_NOMEM;
    size_t skip = 0;
    for (int32_t c = 0xC0; c < TABLE_END; c++) {
        if (skip < TD_COUNT(starters) && c == starters[skip].first)
            c = starters[skip++].last;
        else
            classify(nfc->classes, c);
    }
    for (size_t i = 0; i < TD_COUNT(jamo); i++)
        memset(nfc->classes + jamo[i].first, CHECK,
               (size_t)(jamo[i].last - jamo[i].first) + 1);
    for (size_t i = 0; i < TD_COUNT(newer); i++)
        memset(nfc->classes + newer[i].first, STARTER,
               (size_t)(newer[i].last - newer[i].first) + 1);
    return TD_OK;
}

/* Reads one character of valid UTF-8 and moves *i past it. */
static int32_t next_char(const char *text, size_t *i)
{
    const unsigned char *s = (const unsigned char *)text + *i;
    if (s[0] < 0x80) {
        *i += 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *i += 2;
        return (s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] < 0xF0) {
        *i += 3;
        return (s[0] & 0x0F) << 12 | (s[1] & 0x3F) << 6 | (s[2] & 0x3F);
    }
    *i += 4;
    return (s[0] & 0x07) << 18 | (s[1] & 0x3F) << 12 | (s[2] & 0x3F) << 6 |
           (s[3] & 0x3F);
}

static uint8_t class_of(const struct td_nfc *nfc, int32_t c)
{
    return c < TABLE_END ? nfc->classes[c] : STARTER;
}

/* By what marks are sorted; 0 for everything that is none. */
static uint8_t mark_class(const struct td_nfc *nfc, int32_t c)
{
    uint8_t k = class_of(nfc, c);
    return k == CHECK ? combining_class(c) : k;
}

/* A stretch of text from one starter to before another. */
struct part {
    size_t begin, end;
};

/* Finds the first part at or after `from`, itself a part's beginning, that is not
 * normalized. Its end is where the scan stopped: the part may go on. */
static bool find_part(const struct td_nfc *nfc, const char *text, size_t n, size_t from,
                      struct part *part)
{
    uint8_t last = STARTER;
    part->begin = from;
    for (size_t i = from; i < n;) {
        size_t at = i;
        if ((unsigned char)text[i] < FIRST_LEAD) {
            i += (unsigned char)text[i] < 0x80 ? 1 : 2;
            part->begin = at;
            last = STARTER;
            continue;
        }
        uint8_t k = class_of(nfc, next_char(text, &i));
        if (k == CHECK || (k != STARTER && k < last)) {
            part->end = i;
            return true;
        }
        if (k == STARTER)
            part->begin = at;
        last = k;
    }
    return false;
}

/* Extends a part to before the next starter. */
static void finish_part(const struct td_nfc *nfc, const char *text, size_t n,
                        struct part *part)
{
    for (size_t i = part->end; i < n; part->end = i)
        if (class_of(nfc, next_char(text, &i)) == STARTER)
            return;
}

/* Sorts a run of marks by combining class, keeping the order of equals. */
static enum td_status sort_marks(const struct td_nfc *nfc, int32_t *c, size_t n)
{
    if (n <= SMALL_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = c[i];
            size_t j = i;
            for (; j > 0 && mark_class(nfc, c[j - 1]) > mark_class(nfc, x); j--)
                c[j] = c[j - 1];
            c[j] = x;
        }
        return TD_OK;
    }
    size_t place[256] = {0};
    int32_t *copy = td_calloc(n, sizeof(*copy));
    if (!copy)
        return TD_E_NOMEM;
    memcpy(copy, c, n * sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        place[mark_class(nfc, c[i])]++;
    for (size_t k = 0, sum = 0; k < 256; k++) {
        size_t count = place[k];
        place[k] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        c[place[mark_class(nfc, copy[i])]++] = copy[i];
    td_free(copy);
    return TD_OK;
}

/* Appends the normalized form of one part. */
static enum td_status add_part(const struct td_nfc *nfc, const char *text, size_t n,
                               struct td_buf *out)
{
    int32_t few[FEW * EXPANSION + DECOMPOSED_MAX], *c = few;
    if (n > FEW) {
        c = td_calloc(n * EXPANSION + DECOMPOSED_MAX, sizeof(*c));
        if (!c)
            return TD_E_NOMEM;
    }
    enum td_status s = TD_OK;
    size_t len = 0, run = 0; /* run: marks at the end */
    for (size_t i = 0; i < n && s == TD_OK;) {
        size_t m = decompose(next_char(text, &i), c + len);
        for (; m > 0 && s == TD_OK; m--, len++) {
            if (mark_class(nfc, c[len])) {
                run++;
                continue;
            }
            s = sort_marks(nfc, c + len - run, run);
            run = 0;
        }
    }
    if (s == TD_OK)
        s = sort_marks(nfc, c + len - run, run);
    len = compose(c, len);
    for (size_t i = 0; i < len && s == TD_OK; i++) {
        utf8proc_uint8_t bytes[4];
        s = td_buf_add(out, bytes, (size_t)utf8proc_encode_char(c[i], bytes));
    }
    if (c != few)
        td_free(c);
    return s;
}

enum td_status td_nfc_apply(const struct td_nfc *nfc, const char *text, size_t n,
                            struct td_buf *scratch, const char **out, size_t *out_len)
{
    struct part part = {0, 0};
    *out = text;
    *out_len = n;
    if (!nfc->classes || !find_part(nfc, text, n, 0, &part))
        return TD_OK;
    size_t copied = 0;
    td_buf_clear(scratch);
    do {
        finish_part(nfc, text, n, &part);
        td_buf_add(scratch, text + copied, part.begin - copied);
        enum td_status s =
            add_part(nfc, text + part.begin, part.end - part.begin, scratch);
        if (s != TD_OK)
            return s;
        copied = part.end;
    } while (find_part(nfc, text, n, copied, &part));
    if (td_buf_add(scratch, text + copied, n - copied) != TD_OK)
        return scratch->status;
    *out = scratch->p;
    *out_len = scratch->len;
    return TD_OK;
}
