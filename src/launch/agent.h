/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: the same program on another host (verb `agent`), which answers questions on
 * standard input, one JSON object a line each way, until its input ends. See
 * launch/hosts.h for who asks.
 *
 *     it begins     {"tandem":1,"build":"…","version":"…"}
 *     {"do":"facts","model":PATH,"name":BOOL}
 *                                        {"facts":{…}}                fabric/facts.h
 *     {"do":"rates","model":PATH}        {"memory":B/S,"disk":B/S,"disk_how":"…"}
 *     {"do":"clock"}                     {"clock":SECONDS}
 *     {"do":"listen","token":T}          {"data":PORT,"oob":PORT}
 *     {"do":"connect","seconds":S,"hurry":true,"targets":[{"from","to","token","data","oob"}]}
 *                                        {"reach":[{"reach":"ok","alive":true,"port":0}]}
 *     {"do":"measure","from","to","token","data","oob","seconds"}
 *                                        {"link":{…}}, with "error" when it broke off
 *     anything that fails                {"error":{"code","what","why","fix"}}
 *
 * A line is at most TD_MAX_AGENT_LINE bytes. Unknown requests are answered with an error;
 * another number behind "tandem" is another protocol.
 */
#ifndef TD_LAUNCH_AGENT_H
#define TD_LAUNCH_AGENT_H

#include "base/status.h"
#include "fabric/probe.h"

enum { TD_AGENT_PROTOCOL = 1 };

/* Answers on two descriptors until the input ends. Errors: TD_E_IO, TD_E_LIMIT,
 * TD_E_JSON when the other side does not speak this. */
enum td_status td_agent_run(int in, int out, const char *build, const char *version,
                            struct td_error *err);

/* Reads the files of a model folder into the facts: names, sizes, hashes; headers are
 * checked. What is wrong becomes facts->model_error. */
void td_model_files_read(const char *path, struct td_facts *f);

/* Errors and links as JSON members, both ways. */
enum td_status td_agent_put_error(struct td_buf *out, const struct td_error *e);
void td_agent_get_error(const json_t *o, struct td_error *out);
enum td_status td_agent_put_link(struct td_buf *out, const struct td_link *l);
enum td_status td_agent_get_link(const json_t *o, struct td_link *out,
                                 struct td_error *err);

#endif
