/* spec: parses a document into a checked pipeline, and reports its errors.
 *
 * Steps are numbered so that each needs only lower-numbered ones. The document's order stays if it
 * already satisfies this, and always in a document that grows. A stk_spec is immutable after
 * parsing and lives in one arena. Names are unique and resolved: an input refers to a step by
 * index, never by text. Settings are already merged pipeline → step (docs/formats/spec.md); steps
 * without their own settings share one stk_settings. Errors carry file and line of the user's
 * document. */
#ifndef STK_SPEC_H
#define STK_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/event.h"
#include "base/json.h"
#include "base/limits.h"

typedef struct stk_spec stk_spec;

typedef enum {
    STK_INPUT_VALUE,    /* text: JSON */
    STK_INPUT_PARAM,    /* text: parameter name; i_param: its index */
    STK_INPUT_OUTPUT,   /* step, output: indices */
    STK_INPUT_FILE,     /* text: path as written, relative to the spec's folder */
    STK_INPUT_ARTIFACT, /* text: digest */
    STK_INPUT_ITEM,     /* the item of the innermost foreach, in a document that grows */
    STK_INPUT_LIST      /* items */
} stk_input_kind;

typedef struct stk_input {
    const char *name; /* NULL inside a list */
    stk_input_kind kind;
    uint32_t step;
    uint32_t output;
    uint32_t i_param;
    uint32_t n_items;
    const char *text;
    const char
        *about; /* artifact: {"format", "type", "meta"} as JSON (only those given), or NULL */
    const struct stk_input *items;
} stk_input;

typedef struct stk_output {
    const char *name;
    const char *type; /* as declared, or NULL */
    const char *const *tags;
    uint32_t n_tags;
} stk_output;

enum { STK_GPU_MEMORY_AUTO = -2 };

/* Devices that a step asks for. */
typedef struct stk_alternative {
    int64_t gpu_count;        /* -1 unset; 0: none (stk_spec_n_devices returns the number) */
    int64_t gpu_memory_bytes; /* share of each device's memory; -1 unset: whole devices;
                                 STK_GPU_MEMORY_AUTO: as much as earlier runs needed */
    const char *gpu_class;    /* NULL unset */
    const char *gpu_vendor;   /* NULL unset; "nvidia", "amd", "intel", "aws", "google" */
} stk_alternative;

/* Resources that a step asks for; "unset" differs from zero. */
typedef struct stk_resources {
    int64_t cpu_milli;    /* thousandths of a CPU; -1 unset */
    int64_t memory_bytes; /* -1 unset */
    stk_alternative
        base; /* the request if any_of is empty; else the default for each alternative */
    const stk_alternative *any_of; /* in order of preference; a gpu_count is never 0 */
    uint32_t n_any_of;             /* at most STK_LIMIT_ASKS */
    const char *more;              /* other ResourceSettings fields as JSON, or NULL */
    bool of_pools; /* also asks for ZenML's resource pools, which do not exist here */
} stk_resources;

/* True if the document says `gpu_count: 0`: no devices, whatever else it says. */
static inline bool stk_spec_asks_none(const stk_resources *res)
{
    return res->base.gpu_count == 0;
}

/* Everything unset. */
#define STK_RESOURCES_UNSET                                                                        \
    ((stk_resources){                                                                              \
        .cpu_milli = -1, .memory_bytes = -1, .base = {.gpu_count = -1, .gpu_memory_bytes = -1}})

typedef struct stk_retry {
    uint32_t max_retries; /* 0: none */
    int64_t delay_ms;
    double backoff; /* n-th wait = delay × backoff^(n-1) */
    double jitter;  /* 0…1: the wait is multiplied by 1 ± jitter */
} stk_retry;

/* When memory ran out, the next attempt asks for this many times as much. Factors are more than 1;
 * 0: running out of that memory is final. These attempts are in addition to those of `retry`. */
typedef struct stk_on_oom {
    double memory;     /* the host's */
    double gpu_memory; /* a device's */
    uint32_t max_retries;
} stk_on_oom;

/* The device curves of a step, recorded for people. */
typedef struct stk_gpu_profile {
    bool enabled;
    bool with_card;
    bool include_artifacts;
    const char *artifact_prefix; /* "gpu_profile_" */
    int64_t interval_ms;
} stk_gpu_profile;

/* Whether a cached result depends on the files and variables that the step read. */
typedef enum {
    STK_TRACK_ON,
    STK_TRACK_OFF,
    STK_TRACK_STRICT /* doesn't cache a result if some reads can't be seen */
} stk_track;

typedef struct stk_cache_policy {
    bool enabled;
    bool reuse;    /* false: the step always runs, and its result counts for later ones */
    bool is_asked; /* the document asks for caching; in one that grows, caching is off by default */
    int64_t expires_ms; /* 0: never */
    const char *const *ignore_inputs;
    uint32_t n_ignore_inputs;
    const char *const *files; /* more files whose contents are part of the key */
    uint32_t n_files;
    const char *salt; /* or NULL */
    stk_track track;
} stk_cache_policy;

enum { STK_GANG_GPUS = -1 };

/* Many processes as one step; ranks 0: not a gang. */
typedef struct stk_gang_ask {
    int64_t ranks;     /* STK_GANG_GPUS: one for each device granted, at least one */
    int64_t min_ranks; /* a restart may leave out failed ranks, down to this many; 0: never */
    int64_t restarts;
    int64_t nodes;   /* number of nodes, each with the same number of ranks; 0: one */
    int64_t port;    /* 0: any free port */
    int64_t hang_ms; /* 0: no watchdog */
} stk_gang_ask;

typedef struct stk_hook {
    const char *run;    /* shell command, or NULL */
    const char *python; /* module:function, or NULL */
} stk_hook;

typedef enum {
    STK_HOOK_START,
    STK_HOOK_SUCCESS,
    STK_HOOK_FAILURE,
    STK_HOOK_END,
    STK_HOOK_N
} stk_hook_when;
typedef enum { STK_ISOLATION_FORK, STK_ISOLATION_SPAWN } stk_isolation;

typedef struct stk_pair {
    const char *key;
    const char *value;
} stk_pair;

typedef struct stk_settings {
    stk_resources resources;
    stk_retry retry;
    stk_on_oom on_oom;
    const char *xid;    /* overrides in stk_xid_policy's format, "109=restart,94=ignore"; or NULL */
    int64_t timeout_ms; /* 0: none */
    int64_t grace_ms;
    int64_t timeout_notice_ms; /* sends SIGTERM this long before the timeout; 0: at the timeout */
    bool keep_checkpoints;     /* even after the step succeeded */
    int64_t
        sample_ms; /* interval between measurements of a running task; 0: the engine's default */
    stk_gpu_profile gpu_profile;
    stk_cache_policy cache;
    stk_gang_ask gang;
    const stk_pair *env;
    uint32_t n_env;
    const char *const *secrets;
    uint32_t n_secrets;
    stk_hook hooks[STK_HOOK_N];
    stk_isolation isolation;
    const char *docker;  /* JSON, or NULL */
    const char *backend; /* JSON, or NULL */
    const char *extra;   /* JSON, or NULL */
    const char *const *tags;
    uint32_t n_tags;
} stk_settings;

/* How a step's successors are chosen, in a document whose graph grows (docs/decisions/0009). */
typedef enum {
    STK_NEXT_NONE,     /* an end, or the document doesn't grow */
    STK_NEXT_ALL,      /* all steps in `next` */
    STK_NEXT_FOREACH,  /* one task of next[0] for each item of the output `on` */
    STK_NEXT_PARALLEL, /* next[0] as a gang of num_parallel ranks */
    STK_NEXT_SWITCH    /* the step in `next` whose case equals the output `on` */
} stk_next_kind;

typedef struct stk_step {
    const char *name;
    const char *const
        *argv; /* command: the words to exec (["/bin/sh","-c",text] for a string); else NULL */
    uint32_t n_argv;
    const char *python;      /* "module:qualname", or NULL */
    const char *interpreter; /* Python with packages of its own: absolute path; or NULL */
    const char *cwd;         /* absolute, or NULL */
    const stk_input *inputs;
    uint32_t n_inputs;
    const stk_output *outputs;
    uint32_t n_outputs;
    const uint32_t *after; /* step indices */
    uint32_t n_after;
    const stk_pair *code; /* digests of its code: part name → digest; sorted by name */
    uint32_t n_code;
    const char *const *uses; /* frameworks that its code imports: "torch" */
    uint32_t n_uses;
    const char *source;      /* "file:line" for messages, or NULL */
    const char *description; /* or NULL */
    const stk_settings *settings;
    stk_next_kind grows;
    const uint32_t *next; /* step indices */
    uint32_t n_next;
    const char *on;           /* name of the output that `grows` refers to; or NULL */
    const char *const *cases; /* SWITCH: the value for each of `next`, which may repeat a step */
    uint32_t num_parallel;    /* PARALLEL; 0: the output `on` or the result gives the number */
    bool is_join;             /* joins all branches of the innermost open split */
    bool in_foreach;          /* one of the open splits around it is a foreach */
    bool fallback; /* gets one more attempt, marked as such, instead of a final failure */
    int line;      /* in the document */
} stk_step;
/* True if `i_step` is in the `next` of `from`. */
static inline bool stk_step_leads_to(const stk_step *from, uint32_t i_step)
{
    for (uint32_t i = 0; i < from->n_next; i++) {
        if (from->next[i] == i_step) {
            return true;
        }
    }
    return false;
}

typedef struct stk_param {
    const char *name;
    const char *type;  /* "int" "float" "str" "bool" "json": as declared, else the type of the
                          default; NULL: anything (no type, and the default is null) */
    const char *value; /* JSON, default or override; NULL: required, not yet given */
    const char *help;
} stk_param;

/* --- making one --- */

/* Where a document lies; each may be NULL. A stored document contains its folder and file. */
typedef struct stk_spec_place {
    const char *path;   /* for messages */
    const char *folder; /* absolute: base of relative paths, and where commands run; NULL: "/" */
    const char *file;   /* absolute: the file to read the document from again */
} stk_spec_place;

/* Parses JSON if the document's first non-space byte is '{', else YAML. Errors: STK_E_SPEC (with
 * the line), STK_E_LIMIT, STK_E_VERSION. */
int stk_spec_parse(const char *text, size_t len, const stk_spec_place *place, stk_spec **ret_spec,
                   stk_err *err);
void stk_spec_free(stk_spec *spec);
static inline void stk_spec_free_auto(stk_spec **owned)
{
    stk_spec_free(*owned);
}
#define STK_SPEC_AUTO __attribute__((cleanup(stk_spec_free_auto))) stk_spec *

/* Converts YAML text to JSON text (malloc'd, caller frees) with the same limits. For `stoker spec
 * convert` and run configurations. */
int stk_spec_convert(const char *text, size_t len, const char *path, char **ret_json, stk_err *err);

/* The same as {"document": …, "lines": {"/steps/train": 7, …}}: JSON pointers (RFC 6901) to the
 * line of each key or item, for programs that check the document further. */
int stk_spec_convert_lines(const char *text, size_t len, const char *path, char **ret_json,
                           stk_err *err);

/* `--param k=v`: reads v as the parameter's type. An unknown name gets a did-you-mean. Call before
 * planning. */
int stk_spec_set_param(stk_spec *spec, const char *name, const char *value, stk_err *err);
/* The same with the value as JSON, which must have the parameter's type: restores the values of a
 * resumed run. */
int stk_spec_set_param_json(stk_spec *spec, const char *name, const char *json, stk_err *err);
/* STK_E_USAGE if a required parameter has no value; names all of them. */
int stk_spec_check_params(const stk_spec *spec, stk_err *err);

/* --- reading it --- */

const char *stk_spec_name(const stk_spec *spec);
const char *stk_spec_path(const stk_spec *spec); /* as given, for messages; or NULL */
const char *stk_spec_description(const stk_spec *spec);
const char *
stk_spec_folder(const stk_spec *spec); /* absolute folder that relative paths refer to */
stk_mode stk_spec_mode(const stk_spec *spec);
const stk_settings *stk_spec_settings(const stk_spec *spec); /* pipeline level */
/* JSON object. "cwd", the folder, is always in it; "file" if the document was a file. */
const char *stk_spec_origin(const stk_spec *spec);
/* The document as canonical JSON text, as stored and re-read by resume. Its origin.cwd names the
 * folder, so it means the same anywhere. Overridden parameters are not in it. */
const char *stk_spec_text(const stk_spec *spec, size_t *ret_len);
uint32_t stk_spec_n_steps(const stk_spec *spec);
/* True if some step has a `next`. Steps are then templates in the document's order, a run begins
 * with the first, and events add its tasks (room grow). */
bool stk_spec_grows(const stk_spec *spec);
const stk_step *stk_spec_step(const stk_spec *spec, uint32_t i_step);
int64_t stk_spec_find(const stk_spec *spec, const char *step_name); /* -1: none */
/* What people read: the step's name, but for the calls of one function that the Python front named
 * fit, fit_2 … what differs between them: "fit[lr=0.1]", at most three differences; of calls that
 * differ only in where their inputs come from, the source: "score[fit_2]". Titles are unique, and
 * no step's name. Lives until a parameter is set. All are made at the first call, which isn't
 * thread-safe. */
const char *stk_spec_title(const stk_spec *spec, uint32_t i_step);
int64_t stk_spec_find_word(const stk_spec *spec, const char *word); /* by name or title; -1: none */
uint32_t stk_spec_n_params(const stk_spec *spec);
const stk_param *stk_spec_param(const stk_spec *spec, uint32_t i_param);

/* --- devices: use these two instead of reading the fields of a request --- */

/* The request's complete alternatives, best first: each of any_of merged over the rest, with a
 * gpu_count of at least 1. A memory, a class, a vendor or any_of without a count asks for one
 * device; a count of 0 asks for none, whatever else is set. Returns how many; 0: the request asks
 * for no device. */
uint32_t stk_spec_alternatives(const stk_resources *res, stk_alternative ret[STK_LIMIT_ASKS]);
/* Number of devices of the first alternative; 0: none. */
uint32_t stk_spec_n_devices(const stk_resources *res);

/* Merges the device options of a backend (`gpu`, `trainium`, `tpu` …) into a request, so that one
 * request holds everywhere; a gpu_count of 0 stays. NULL: no options. */
void stk_spec_lay_options(const stk_json *options, stk_resources *res);

/* A device, slice or chip as its driver reports it; NULL, -1: unknown. */
typedef struct stk_spec_device {
    const char *vendor, *noun, *model;
    const char *profile; /* of a MIG slice */
    int64_t memory_bytes;
} stk_spec_device;

/* True if the device has this class and vendor (NULL: any). Every word of gpu_class must be a word
 * of the model, vendor, noun or profile, or its memory, in any case and order, or all of it a short
 * name of the model (tbl/models.def): "A100-80GB" matches "NVIDIA A100-SXM4-80GB", "A10" doesn't,
 * "v5e" matches "Google TPU v5e", "1g.10gb" and "mig" match slices. */
bool stk_spec_device_fits(const char *gpu_class, const char *gpu_vendor,
                          const stk_spec_device *device);
/* The vendor of a class ("aws" for Trainium); NULL: unknown. */
const char *stk_spec_vendor_of_class(const char *gpu_class);
/* The vendor of an alternative: its gpu_vendor, else its class's; NULL: any. */
const char *stk_spec_vendor_of(const stk_alternative *want);
/* True if the class names a model of tbl/models.def, and `model` is a different one there. False if
 * either is unknown: a class may also be the value of a cluster's label. */
bool stk_spec_is_other_model(const char *gpu_class, const char *model);
/* The memory in bytes of a whole device of this model of tbl/models.def; -1: it isn't there. */
int64_t stk_spec_model_memory(const char *model);
/* True if the class asks for slices of devices ("1g.10gb", "A100-3G.40GB", "mig"). */
bool stk_spec_is_slice(const char *gpu_class);
/* … and for this profile. */
bool stk_spec_names_slice(const char *gpu_class, const char *profile);

/* --- containers --- */

/* `shm_size`: a number of bytes, or text as for Docker (64m, 8g: binary) or resources (8GB).
 * Returns false for anything else, and for values not above 0. */
bool stk_spec_container_bytes(const stk_json *node, int64_t *ret_bytes);
/* The names of docker-py's `run_args` that have no effect here: "'a', 'b'". */
void stk_spec_unused_run_args(const stk_json *args, stk_buf *ret_names);

/* --- containers: what `volumes`, `mounts`, `tmpfs` and `devices` name (spec_volumes.c) --- */

typedef struct stk_spec_volume {
    const char *kind; /* "bind", "volume", "tmpfs", "device", "cdi" */
    const char *from; /* a path here, a volume's name, a name of CDI; NULL: tmpfs */
    const char *to;   /* a path inside; NULL: cdi */
    const char *how;  /* options of a tmpfs, permissions of a device; "": none */
    bool write;
} stk_spec_volume;

typedef struct stk_spec_volumes {
    stk_spec_volume *items;
    uint32_t n, cap;
} stk_spec_volumes;

/* Appends what the option `key` names. Returns NULL, or what a wrong part must be. Texts live in
 * `arena` or the value. */
const char *stk_spec_add_volumes(const char *key, const stk_json *value, stk_arena *arena,
                                 stk_spec_volumes *list);
/* All of a place's options, of its run_args what the options don't name themselves. They have been
 * checked. Returns false: out of memory. */
bool stk_spec_all_volumes(const stk_json *options, stk_arena *arena, stk_spec_volumes *ret);

typedef struct stk_spec_ulimit {
    const char *name;
    int64_t soft, hard; /* -1: unlimited */
} stk_spec_ulimit;

/* The limits of a checked option `ulimits`, in either of its forms (spec_ulimits.c). */
uint32_t stk_spec_n_ulimits(const stk_json *node);
stk_spec_ulimit stk_spec_ulimit_at(const stk_json *node, uint32_t i);
/* An option, else that of `run_args`; NULL: neither is given. */
const stk_json *stk_spec_docker_option(const stk_json *options, const char *key);

#endif
