/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalogue's table and the error record. See status.h.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const struct td_status_info catalogue[] = {
#define X(code, slug, title, cause, remedy) {slug, title, cause, remedy},
    TD_STATUS_LIST(X)
#undef X
};

static const char *const phase_names[] = {
#define X(code, name) name,
    TD_PHASE_LIST(X)
#undef X
};

static _Atomic int phase_now = TD_PHASE_CHECK;

const struct td_status_info *td_status_info(enum td_status code)
{
    if ((unsigned)code >= TD_STATUS_COUNT)
        code = TD_E_INTERNAL;
    return &catalogue[code];
}

const char *td_phase_name(enum td_phase phase)
{
    return (unsigned)phase < TD_PHASE_COUNT ? phase_names[phase] : "?";
}

enum td_phase td_phase_named(const char *name, enum td_phase or_else)
{
    for (int i = 0; name && i < TD_PHASE_COUNT; i++)
        if (strcmp(phase_names[i], name) == 0)
            return (enum td_phase)i;
    return or_else;
}

void td_phase_set(enum td_phase phase)
{
    atomic_store(&phase_now, (int)phase);
}

enum td_phase td_phase_now(void)
{
    return (enum td_phase)atomic_load(&phase_now);
}

void td_error_init(struct td_error *err)
{
    memset(err, 0, sizeof(*err));
    err->rank = -1;
}

#undef td_error_set
enum td_status td_error_set(struct td_error *err, enum td_status code, const char *what,
                            ...)
{
    if (!err || err->code != TD_OK)
        return code;
    const struct td_status_info *info = td_status_info(code);
    va_list ap;
    err->code = code;
    err->phase = td_phase_now();
    va_start(ap, what);
    (void)vsnprintf(err->what, sizeof(err->what), what, ap);
    va_end(ap);
    (void)snprintf(err->why, sizeof(err->why), "%s", info->cause);
    (void)snprintf(err->fix, sizeof(err->fix), "%s", info->remedy);
    return code;
}

void td_error_why(struct td_error *err, const char *why, ...)
{
    if (!err)
        return;
    va_list ap;
    va_start(ap, why);
    (void)vsnprintf(err->why, sizeof(err->why), why, ap);
    va_end(ap);
}

void td_error_fix(struct td_error *err, const char *fix, ...)
{
    if (!err)
        return;
    va_list ap;
    va_start(ap, fix);
    (void)vsnprintf(err->fix, sizeof(err->fix), fix, ap);
    va_end(ap);
}
