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

/* A checkpoint. The largest known member of the family has 76,656 tensors. */
#define TD_MAX_HEADER  (128 * TD_MIB) /* one safetensors header */
#define TD_MAX_TENSORS 2000000        /* in a model directory */
#define TD_MAX_SHARDS  4096
#define TD_MAX_DIMS    6
#define TD_MAX_NAME    512 /* bytes of a tensor name */

/* A model's configuration. */
#define TD_MAX_LAYERS      512
#define TD_MAX_MTP_LAYERS  4
#define TD_MAX_HIDDEN      65536
#define TD_MAX_HEADS       1024
#define TD_MAX_HEAD_DIM    1024
#define TD_MAX_FFN         (1 << 20)
#define TD_MAX_EXPERTS     4096
#define TD_MAX_TOP_EXPERTS 64
#define TD_MAX_VOCAB       (1 << 22)
#define TD_MAX_POSITIONS   (1 << 24)
#define TD_MAX_CONV        8
#define TD_MAX_EOS         16
#define TD_MAX_RANKS       64

/* Text and tokens. */
#define TD_MAX_TEXT          (16 * TD_MIB) /* one text to encode; holds up to 40x */
#define TD_MAX_PATTERN       (16 * TD_KIB) /* a pre-tokenizer's pattern */
#define TD_MAX_PRETOKENIZERS 8
#define TD_MAX_ADDED_TOKENS  65536
#define TD_MAX_ADDED_TOKEN   256 /* bytes of one added token */

/* Chat templates. */
#define TD_MAX_TEMPLATE_TREE    (128 * TD_MIB) /* memory of a parsed template */
#define TD_MAX_TEMPLATE_NESTING 100            /* blocks and brackets in the source */
#define TD_MAX_TEMPLATE_DEPTH   1000           /* evaluations inside each other */
#define TD_MAX_TEMPLATE_STEPS   20000000LL /* work of one render: nodes, items, .. */
#define TD_MAX_TEMPLATE_MEMORY  (256 * TD_MIB) /* values of one render */
#define TD_MAX_TEMPLATE_OUTPUT  (64 * TD_MIB)  /* text of one render */
#define TD_MAX_TEMPLATE_RANGE   100000         /* numbers of a range(), as in jinja2 */
#define TD_MAX_TEMPLATE_WIDTH   100000         /* padding and digits in formats */

/* Loading. */
#define TD_MAX_LOAD_THREADS 32
#define TD_MAX_STAGING      (192 * TD_MIB)

/* What one request may ask of the sampler. */
#define TD_MAX_LOGPROBS   64   /* alternatives for a token */
#define TD_MAX_LOGIT_BIAS 1024 /* entries of logit_bias */
#define TD_MAX_STOP_IDS   64   /* a model's ends; a request's stop ids */

/* A message between front and engine. */
#define TD_MAX_FRAME (256 * TD_MIB)

/* Ranks: their command lines and what they print. */
#define TD_MAX_ARGUMENT (64 * TD_KIB) /* one word of a command */

/* The server: what clients may send, and what is kept for them. */
#define TD_MAX_HTTP_HEADER     (32 * TD_KIB) /* request line and headers */
#define TD_MAX_HTTP_BODY       (64 * TD_MIB)
#define TD_MAX_HTTP_ARRIVING   (TD_GIB)      /* bodies of all requests that arrive */
#define TD_MAX_HTTP_UNREAD     (16 * TD_MIB) /* of a stream, by a slow reader */
#define TD_MAX_EVENT           (16 * TD_MIB) /* line of an event stream that we read */
#define TD_MAX_ENGINE_FAILURES 5             /* in a row, then the server stops */
#define TD_MAX_CHOICES         128           /* answers to one request */
#define TD_MAX_SEQUENCES       4096          /* of all requests at a time */
#define TD_MAX_MESSAGES        65536         /* of one chat */
#define TD_MAX_TOOLS           1024          /* of one chat */
#define TD_MAX_STOPS           16            /* stop strings of a request */
#define TD_MAX_STOP_TEXT       1024          /* bytes of a stop string */
#define TD_MAX_ARGUMENTS       256           /* parameters of one tool call */
#define TD_MAX_TOOL_NAME       256           /* bytes */

/* What the agent of another host may send, and what is asked of it. */
#define TD_MAX_AGENT_LINE  (4 * TD_MIB) /* one message */
#define TD_MAX_MODEL_FILES 8192         /* of one model folder */
#define TD_MAX_TARGETS     1024         /* addresses to connect to, in one request */

/* explain: what is kept of the logs it reads, whatever their size. */
#define TD_MAX_EXPLAIN_SOURCES 4096
#define TD_MAX_EXPLAIN_STREAMS 8192
#define TD_MAX_EXPLAIN_HITS    8192
#define TD_MAX_EXPLAIN_FACTS   2048
#define TD_MAX_EXPLAIN_DEPTH   8             /* directories below one that is given */
#define TD_MAX_EXPLAIN_KEEP    (96 * TD_MIB) /* texts and tables */
#define TD_MAX_EXPLAIN_FILE    (64 * TD_GIB) /* bytes of one file, after unpacking */

#endif
