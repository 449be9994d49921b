/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tandem.conf and command lines: the bytes are read as a file, then, cut at zero bytes,
 * as the words of a command line, both with the program's own option table.
 */
#define _POSIX_C_SOURCE 200809L
#include "cmd/options.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORDS = 64, MAX_BYTES = 4096 };

static void as_file(const uint8_t *data, size_t n)
{
    static char path[32];
    struct td_conf conf;
    struct td_error err;
    td_error_init(&err);
    if (!*path)
        (void)snprintf(path, sizeof(path), "/tmp/td_fuzz_conf_%d", (int)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    (void)close(fd);
    if (td_conf_init(&conf, td_options, TD_OPTION_COUNT, td_option_hints, &err) ==
        TD_OK)
        (void)td_conf_parse_file(&conf, path, &err);
    td_conf_release(&conf);
    (void)unlink(path);
}

static void as_words(const uint8_t *data, size_t n)
{
    static char text[MAX_BYTES + 1];
    char *words[MAX_WORDS];
    struct td_conf conf;
    struct td_error err;
    int argc = 0;
    td_error_init(&err);
    memcpy(text, data, n);
    text[n] = 0;
    for (char *p = text; p < text + n && argc < MAX_WORDS; p += strlen(p) + 1)
        words[argc++] = p;
    if (td_conf_init(&conf, td_options, TD_OPTION_COUNT, td_option_hints, &err) ==
        TD_OK)
        (void)td_conf_parse_args(&conf, TD_VERB_ALL, argc, words, &err);
    td_conf_release(&conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > MAX_BYTES)
        return -1;
    as_file(data, n);
    as_words(data, n);
    return 0;
}
