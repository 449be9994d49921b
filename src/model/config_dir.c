/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what the user called a model to the bytes of its configuration files. See
 * config.h. What is not a model directory is named for what it is.
 */
#define _POSIX_C_SOURCE 200809L
#include "model/config.h"

#include "base/buf.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcasecmp(s + n - m, end) == 0;
}

/* `org/name`, with or without the address of a hub in front; NULL when it is not one. */
static const char *hub_id(const char *model)
{
    static const char *const hubs[] = {"https://huggingface.co/", "huggingface.co/",
                                       "https://hf.co/", "hf.co/", "hf://"};
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    bool from_hub = false;
    for (size_t i = 0; i < TD_COUNT(hubs) && !from_hub; i++) {
        if (strncmp(model, hubs[i], strlen(hubs[i])) == 0) {
            model += strlen(hubs[i]);
            from_hub = true;
        }
    }
    size_t org = strspn(model, allowed);
    if (org == 0 || model[0] == '.' || model[org] != '/')
        return NULL;
    const char *name = model + org + 1;
    size_t n = strspn(name, allowed);
    if (n == 0 || name[0] == '.' || name[n] != 0)
        return NULL;
    char first[TD_MAX_PATH];
    (void)snprintf(first, sizeof(first), "%.*s", (int)TD_MIN(org, 255), model);
    /* In an existing folder it is a path with a mistake in it. */
    return from_hub || !td_file_is_dir(first) ? model : NULL;
}

enum td_status td_model_arg_check(const char *model, struct td_error *err)
{
    if (td_file_is_dir(model))
        return TD_OK;
    if (!*model) {
        td_error_set(err, TD_E_NOT_FOUND, "the name of the model directory is empty");
        td_error_fix(err, "give the directory that holds config.json");
        return TD_E_NOT_FOUND;
    }
    if (td_file_exists(model)) {
        if (access(model, F_OK) != 0)
            return td_file_cannot_open(model, errno, err);
        if (ends_with(model, ".gguf")) {
            td_error_set(err, TD_E_UNSUPPORTED, "%s is a GGUF file", model);
            td_error_why(err, "tandem reads model directories with config.json "
                              "and safetensors files");
            return TD_E_UNSUPPORTED;
        }
        td_error_set(err, TD_E_NOT_FOUND, "%s is a file, not a model directory", model);
        td_error_why(err, "a model is a directory with config.json, tokenizer.json and "
                          "*.safetensors");
        td_error_fix(err, "give the directory that holds config.json");
        return TD_E_NOT_FOUND;
    }
    const char *id = hub_id(model);
    if (id) {
        td_error_set(err, TD_E_HUB_ID, "there is no directory %s", model);
        td_error_fix(
            err,
            "hf download %s --local-dir %s   (older: huggingface-cli download), then "
            "give that directory",
            id, strchr(id, '/') + 1);
        return TD_E_HUB_ID;
    }
    td_error_set(err, TD_E_NOT_FOUND, "there is no model directory %s", model);
    return TD_E_NOT_FOUND;
}

/* The first file of the directory with that ending, into name. */
static bool find_ending(const char *dir, const char *end, char *name, size_t size)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    bool found = false;
    while (d && !found && (e = readdir(d)) != NULL) {
        found = ends_with(e->d_name, end);
        if (found)
            (void)snprintf(name, size, "%s", e->d_name);
    }
    if (d)
        (void)closedir(d);
    return found;
}

static enum td_status no_config(const char *dir, struct td_error *err)
{
    char name[256];
    if (find_ending(dir, ".gguf", name, sizeof(name))) {
        td_error_set(err, TD_E_UNSUPPORTED, "%s holds a GGUF model (%s)", dir, name);
        td_error_why(err, "tandem reads model directories with config.json and "
                          "safetensors files");
        return TD_E_UNSUPPORTED;
    }
    td_error_set(err, TD_E_NOT_FOUND, "%s has no config.json", dir);
    td_error_why(err, "the directory is not a model, or its download is incomplete");
    td_error_fix(err, "give the directory that holds config.json");
    return TD_E_NOT_FOUND;
}

/* ModelOpt exports may describe their quantization beside config.json only. */
static enum td_status check_other_quant(const char *dir, const struct td_config *cfg,
                                        struct td_error *err)
{
    char path[TD_MAX_PATH];
    enum td_status s =
        td_path_join(path, sizeof(path), dir, "hf_quant_config.json", err);
    if (s != TD_OK || cfg->quant != TD_QUANT_NONE || !td_file_exists(path))
        return s;
    td_error_set(err, TD_E_UNSUPPORTED, "%s: a ModelOpt quantization is not read",
                 path);
    td_error_why(err, "tandem reads BF16, F16, F32 and block FP8 "
                      "(weight_scale_inv) checkpoints");
    return TD_E_UNSUPPORTED;
}

enum td_status td_config_read(const char *dir, struct td_config *cfg,
                              struct td_error *err)
{
    char path[TD_MAX_PATH];
    struct td_buf b;
    struct td_config c;
    td_buf_init(&b, TD_MAX_CONFIG_FILE);
    enum td_status s = td_model_arg_check(dir, err);
    if (s == TD_OK)
        s = td_path_join(path, sizeof(path), dir, "config.json", err);
    if (s == TD_OK && !td_file_exists(path))
        s = no_config(dir, err);
    if (s == TD_OK)
        s = td_file_read(path, &b, err);
    if (s == TD_OK)
        s = td_config_parse(b.p, b.len, path, &c, err);
    if (s == TD_OK)
        s = check_other_quant(dir, &c, err);
    if (s == TD_OK)
        *cfg = c;
    td_buf_release(&b);
    return s;
}

enum td_status td_generation_defaults_read(const char *dir, const struct td_config *cfg,
                                           struct td_generation_defaults *out,
                                           struct td_error *err)
{
    char path[TD_MAX_PATH];
    struct td_buf b;
    td_buf_init(&b, TD_MAX_CONFIG_FILE);
    enum td_status s =
        td_path_join(path, sizeof(path), dir, "generation_config.json", err);
    if (s == TD_OK && !td_file_exists(path))
        s = td_generation_defaults_parse("{}", 2, path, cfg, out, err);
    else if (s == TD_OK && (s = td_file_read(path, &b, err)) == TD_OK)
        s = td_generation_defaults_parse(b.p, b.len, path, cfg, out, err);
    td_buf_release(&b);
    return s;
}
