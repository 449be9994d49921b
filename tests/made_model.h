/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints in a temporary folder, made with the tool that the build made.
 */
#ifndef TD_TESTS_MADE_MODEL_H
#define TD_TESTS_MADE_MODEL_H

#include "check.h"

#include <stdio.h>
#include <stdlib.h>

/* Shapes that four ranks can share. */
#define MOE_BY_FOUR                                                                    \
    "--preset tiny-moe --hidden 128 --heads 8 --kv-heads 2 --head-dim 128 "            \
    "--gdn-key-heads 4 --gdn-value-heads 12 --gdn-key-dim 128 --gdn-value-dim 128 "    \
    "--experts 4 --top-k 2 --moe 512 --shared 512 --vocab 1009"
#define DENSE_BY_FOUR                                                                  \
    "--preset tiny-dense --heads 8 --kv-heads 4 --head-dim 64 --gdn-key-heads 4 "      \
    "--gdn-value-heads 4 --intermediate 384 --vocab 1009"

/* A folder of its own in dir[size], filled by make_model with these flags. */
static inline void make_model(char *dir, size_t size, const char *flags)
{
    char command[1024];
    const char *tmp = getenv("TMPDIR"), *build = getenv("BUILD");
    (void)snprintf(dir, size, "%s/tandem-made-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(dir));
    (void)snprintf(command, sizeof(command), "%s/make_model %s %s >/dev/null",
                   build ? build : "build", flags, dir);
    assert_int_equal(system(command), 0);
}

static inline void remove_model(const char *dir)
{
    char command[512];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

#endif
