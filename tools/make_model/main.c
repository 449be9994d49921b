/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_model [options] DIR. See synth.h for the parts; --help for the options.
 */
#include "tools/make_model/synth.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdio.h>

static int report(const struct td_error *err)
{
    (void)fprintf(stderr, "error   %s\n", err->what);
    if (*err->why)
        (void)fprintf(stderr, "cause   %s\n", err->why);
    if (*err->fix)
        (void)fprintf(stderr, "fix     %s\n", err->fix);
    return err->code == TD_E_USAGE ? 2 : 1;
}

static int help(void)
{
    struct td_buf text;
    td_buf_init(&text, 1 * TD_MIB);
    enum td_status s = td_synth_help(&text);
    if (s == TD_OK)
        (void)fputs(text.p, stdout);
    td_buf_release(&text);
    return s != TD_OK || fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    struct td_synth m;
    struct td_synth_stats stats;
    struct td_error err;
    bool wants_help = false;
    td_error_init(&err);
    td_phase_set(TD_PHASE_LOAD);
    if (td_synth_parse(argc - 1, argv + 1, &m, &wants_help, &err) != TD_OK)
        return report(&err);
    if (wants_help)
        return help();
    double start = td_clock_now();
    if (td_synth_write(&m, &stats, &err) != TD_OK)
        return report(&err);
    double seconds = td_clock_now() - start, mb = (double)stats.bytes / 1e6;
    (void)printf("%s: %lld tensors, %.1f MB in %lld files, %.2f s, %.0f MB/s\n", m.out,
                 (long long)stats.tensors, mb, (long long)stats.files, seconds,
                 mb / seconds);
    return fflush(stdout) != 0;
}
