/* spec_result: what a task says it did, read as text from somebody we don't trust.
 *
 * A result.json (docs/formats/task-directory.md) is written by a step: by Stoker's worker, a C
 * helper, or by hand. Everything here is checked before the engine looks at it: types, names,
 * digests, sizes, and that every path is relative and stays inside the attempt directory
 * ("out/model"; no "..", ".", or empty parts). That the path is not a link, and exists, is for
 * whoever opens it. Unknown keys are errors, with a did-you-mean.
 */
#ifndef STK_SPEC_RESULT_H
#define STK_SPEC_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/event.h"
#include "model/spec/spec.h"

typedef struct stk_result_output {
    const char *name;
    const char *path;     /* relative to the attempt directory; or NULL */
    const char *value;    /* JSON; or NULL */
    const char *artifact; /* digest of one that a parent has under this name; or NULL. Exactly
                             one of path, value and artifact is set */
    const char *format;   /* "npy", "json" …; or NULL */
    const char *type;     /* or NULL */
    const char *meta;     /* JSON object, or NULL */
    const char *digest;   /* 64 lower-case hex digits, or NULL */
    int64_t size;         /* of the content, with a digest: bytes that a share has; -1: not said */
    const char *metadata; /* JSON object from output_metadata, or NULL */
    const char *const *tags; /* from output_tags */
    uint32_t n_tags;
    const char *artifact_name;    /* from output_names, or NULL */
    const char *artifact_version; /* from output_names, or NULL */
} stk_result_output;

/* Why a task failed, in its own words. */
typedef struct stk_result_error {
    stk_failure class;     /* EXCEPTION, IMPORT, SERIALIZE, LOAD, DEVICE_OOM, RESOURCES or USAGE */
    const char *type;      /* "ValueError", or NULL */
    const char *message;   /* never NULL */
    const char *traceback; /* or NULL */
    const char *where;     /* "train.py:41", or NULL */
    const char *module;    /* IMPORT: the module that is missing, or NULL */
    const char *output;    /* SERIALIZE: the output that can't be stored, or NULL */
} stk_result_error;

/* What a framework that the task had loaded said of itself at the end (accelerator.frameworks). */
typedef struct stk_result_framework {
    const char *name;          /* "torch" */
    const char *version;       /* or NULL */
    const char *build;         /* "cuda 12.8", "rocm 6.2", "cpu", or NULL */
    const char *reason;        /* why it can't use a device, in its own words; or NULL */
    int available;             /* it can use a device: 1, 0; -1 unknown */
    int initialized;           /* it has: 1, 0; -1 unknown */
    int32_t device_count;      /* that it sees; -1 unknown */
    const int64_t *peak_bytes; /* of its allocator, per device that it sees; -1 unknown */
    uint32_t n_peak_bytes;
} stk_result_framework;

typedef struct stk_result {
    bool ok; /* status "ok"; else "failed" */
    const stk_result_output *outputs;
    uint32_t n_outputs;
    const char *const *dropped; /* names of inherited artifacts that it deleted */
    uint32_t n_dropped;
    const char *const *next_steps; /* names: what it chose; none: it didn't say */
    uint32_t n_next_steps;
    int64_t next_n;                      /* width of its foreach, or ranks; -1: it didn't say */
    const stk_result_output *next_items; /* what holds the items ("next.items"), or NULL */
    const char *metadata;                /* JSON object, or NULL */
    const stk_pair *seen;                /* file → digest ("" for a distribution) */
    uint32_t n_seen;
    const char *seen_json; /* the same as a JSON object, or NULL */
    const char *const *warnings;
    uint32_t n_warnings;
    const char *const *hooks_run; /* "on_start" … */
    uint32_t n_hooks_run;
    const char *cards; /* JSON list, or NULL */
    const stk_result_framework *frameworks;
    uint32_t n_frameworks;
    bool mask_changed; /* by its own code: a variable that says which devices are visible */
    bool has_error; /* always when !ok: class EXCEPTION with a message where the text gave none */
    stk_result_error error;
} stk_result;

/* Everything in *ret_result lives in `arena`. `path` is only used in messages. Errors: STK_E_SPEC
 * (text that is no such document; the line is known), STK_E_LIMIT, STK_E_VERSION, STK_E_NOMEM. */
int stk_result_parse(const char *text, size_t len, const char *path, stk_arena *arena,
                     stk_result *ret_result, stk_err *err);

#endif
