/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every named ceiling on things that come from outside, in one place. A value that
 * passes one of them ends in TD_E_LIMIT or a clearer code, never in more memory.
 */
#ifndef TD_BASE_LIMITS_H
#define TD_BASE_LIMITS_H

#define TD_KIB 1024LL
#define TD_MIB (1024LL * TD_KIB)
#define TD_GIB (1024LL * TD_MIB)

#define TD_MAX_PATH          4096
#define TD_MAX_JSON_DEPTH    64             /* nesting of any JSON document */
#define TD_MAX_JSON_FILE     (256 * TD_MIB) /* index and tokenizer files */
#define TD_MAX_CONFIG_FILE   (4 * TD_MIB)   /* config.json, generation_config.json */
#define TD_MAX_TEMPLATE_FILE (1 * TD_MIB)   /* chat_template.jinja */

#endif
