/* spec_result: parses what a task reports in its result.json, which is untrusted.
 *
 * A step writes result.json (docs/formats/task-directory.md): through Stoker's worker, a C helper,
 * or by hand. This room checks everything before the engine uses it: types, names, digests, sizes,
 * and that every path is relative and stays inside the attempt directory ("out/model"; no "..",
 * ".", or empty parts). Whoever opens a path must check that it exists and is no link. Unknown keys
 * are errors, with a did-you-mean. */
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
    const char *artifact; /* digest of a parent's artifact with this name; or NULL. Exactly one of
                             path, value and artifact is set */
    const char *format;   /* "npy", "json" …; or NULL */
    const char *type;     /* or NULL */
    const char *meta;     /* JSON object, or NULL */
    const char *preview;  /* JSON object: a component that cards show; or NULL */
    const char *digest;   /* 64 lower-case hex digits, or NULL */
    int64_t size; /* bytes of the content, given with a digest if a share has it; -1: not given */
    const char *metadata;    /* JSON object from output_metadata, or NULL */
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
    const char *raw;       /* the exception's own text, where the message is another; or NULL */
    const char *traceback; /* or NULL */
    const char *where;     /* "train.py:41", or NULL */
    const char *module;    /* IMPORT: the module that is missing, or NULL */
    const char *output;    /* SERIALIZE: the output that can't be stored, or NULL */
} stk_result_error;

/* The final state of a framework that the task had loaded, as the framework reports it
 * (accelerator.frameworks). */
typedef struct stk_result_framework {
    const char *name;          /* "torch" */
    const char *version;       /* or NULL */
    const char *build;         /* "cuda 12.8", "rocm 6.2", "cpu", or NULL */
    const char *reason;        /* why it can't use a device, in the framework's words; or NULL */
    int available;             /* it can use a device: 1, 0; -1 unknown */
    int initialized;           /* it has used one: 1, 0; -1 unknown */
    int32_t device_count;      /* devices that it sees; -1 unknown */
    const int64_t *peak_bytes; /* peak of its allocator, for each device that it sees; -1 unknown */
    uint32_t n_peak_bytes;
} stk_result_framework;

typedef struct stk_result {
    bool ok; /* status "ok"; else "failed" */
    const stk_result_output *outputs;
    uint32_t n_outputs;
    const char *const *dropped; /* names of inherited artifacts that the task deleted */
    uint32_t n_dropped;
    const char *inputs; /* JSON {name: digest} of the artifacts that it loaded, or NULL */
    const char *const *next_steps; /* names of the chosen steps; none: not given */
    uint32_t n_next_steps;
    int64_t next_n;                      /* width of its foreach, or ranks; -1: not given */
    const stk_result_output *next_items; /* the output with the items ("next.items"), or NULL */
    const char *metadata;                /* JSON object, or NULL */
    const stk_pair *seen;                /* file → digest ("" for a distribution); @artifact */
    uint32_t n_seen;
    const char *seen_json; /* the same as a JSON object, or NULL */
    const char *const *warnings;
    uint32_t n_warnings;
    const char *const *hooks_run; /* "on_start" … */
    uint32_t n_hooks_run;
    const char *cards; /* JSON list, or NULL */
    const stk_result_framework *frameworks;
    uint32_t n_frameworks;
    bool mask_changed; /* the task's code changed a variable that selects the visible devices */
    bool has_error; /* always true if !ok; class EXCEPTION with a default message if the text gave
                       none */
    stk_result_error error;
} stk_result;

/* Everything in *ret_result lives in `arena`. `path` is only used in messages. Errors: STK_E_SPEC
 * (invalid document; `err` has the line), STK_E_LIMIT, STK_E_VERSION, STK_E_NOMEM. */
int stk_result_parse(const char *text, size_t len, const char *path, stk_arena *arena,
                     stk_result *ret_result, stk_err *err);

#endif
