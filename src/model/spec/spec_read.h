/* spec_read: typed reading of document nodes; each failure is one sentence with its line. Private
 * to the room.
 *
 * Here and in schema/, a null value means that an optional key is not given. `key` is the name as
 * messages show it ("retry.delay"). */
#ifndef STK_SPEC_READ_H
#define STK_SPEC_READ_H

#include "base/json.h"
#include "base/map.h"
#include "model/spec/spec.h"

typedef struct stk_spec_reader {
    stk_arena *arena;
    const char *path;
    const stk_spec_place *place; /* of a pipeline document; else NULL */
    stk_err *err;
    const char *step; /* messages begin with "step 'x': "; NULL outside of steps */
    stk_spec *spec;
} stk_spec_reader;

/* Settings, and the nodes that steps merge theirs with. */
typedef struct stk_spec_base {
    stk_settings s;
    stk_json environment, docker, backend, extra, more, xid; /* NULL nodes: not given */
    stk_resources
        said; /* only from `resources`; the settings include the requests in backend options */
    int64_t sample_ms; /* as given; the settings also include what a profile needs */
} stk_spec_base;

struct stk_spec {
    stk_arena *arena;
    const char *path;
    const char *name;
    const char *description;
    const char *folder;
    const char *origin;
    const char *text;
    size_t text_len;
    stk_mode mode;
    const stk_spec_base *base;
    stk_step *steps;
    uint32_t n_steps;
    bool grows;
    stk_map step_index;
    stk_param *params;
    uint32_t n_params;
    struct stk_spec_titles *titles; /* made when somebody asks for one (spec_titles.c) */
};

typedef struct stk_spec_titles stk_spec_titles;
stk_spec_titles *stk_spec_new_titles(stk_arena *arena); /* NULL: out of memory */
/* Forgets them, because a parameter's value changed; they are made again. */
void stk_spec_free_titles(stk_spec *spec);

/* --- failing --- */

int stk_spec_fail(stk_spec_reader *r, const stk_json *node, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int stk_spec_fail_code(stk_spec_reader *r, int code, const stk_json *node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int stk_spec_no_memory(stk_spec_reader *r);
int stk_spec_if_null(stk_spec_reader *r, const void *p); /* stk_err_nomem if `p` is NULL, else 0 */
/* Fails with "'key' must be WHAT, not a list". */
int stk_spec_wrong(stk_spec_reader *r, const stk_json *node, const char *key, const char *what);
/* Adds the hint "did you mean 'x'?" if a candidate is near. */
void stk_spec_did_you_mean(stk_spec_reader *r, const char *word, const char *const *candidates,
                           size_t n);

/* --- reading --- */

/* Index of the key in `known`, or an error code ("unknown key 'resorces'; did you mean …").
 * `where`: the enclosing mapping ("retry"), or NULL. */
int stk_spec_key(stk_spec_reader *r, const stk_json *key, const char *const *known, int n_known,
                 const char *where);
/* Index of the key in `known`; -1: not among them. */
int stk_spec_find_key(const stk_json *key, const char *const *known, int n_known);

int stk_spec_read_map(stk_spec_reader *r, const stk_json *node, const char *key);
int stk_spec_read_text(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_text);
int stk_spec_read_bool(stk_spec_reader *r, const stk_json *node, const char *key, bool *ret);
int stk_spec_read_int(stk_spec_reader *r, const stk_json *node, const char *key, int64_t min,
                      int64_t max, int64_t *ret);
int stk_spec_read_real(stk_spec_reader *r, const stk_json *node, const char *key, double min,
                       double max, double *ret);
/* Reads seconds, "90s" or "10m" as milliseconds. */
int stk_spec_read_duration(stk_spec_reader *r, const stk_json *node, const char *key,
                           int64_t *ret_ms);
/* A list of texts, each not empty. */
int stk_spec_read_texts(stk_spec_reader *r, const stk_json *node, const char *key,
                        const char *const **ret_texts, uint32_t *ret_n);
/* Canonical JSON text. */
int stk_spec_read_json(stk_spec_reader *r, const stk_json *node, const char **ret_json);
/* "module:function". */
int stk_spec_read_entry(stk_spec_reader *r, const stk_json *node, const char *key,
                        const char **ret_entry);

/* A member of a mapping, and the field that its value goes into. */
typedef struct stk_spec_field {
    const char *label; /* as messages show it ("retry.delay"); the key is what follows its dot */
    enum {
        STK_SPEC_OWN,      /* by `read` */
        STK_SPEC_TEXT,     /* const char * */
        STK_SPEC_TEXTS,    /* const char *const *, followed by their number: uint32_t */
        STK_SPEC_BOOL,     /* bool */
        STK_SPEC_COUNT,    /* uint32_t, at most `max` */
        STK_SPEC_INT,      /* int64_t, from `min` to `max` */
        STK_SPEC_REAL,     /* double, from `min` to `max` */
        STK_SPEC_DURATION, /* int64_t, milliseconds */
        STK_SPEC_OBJECT    /* const char *: a mapping as JSON */
    } kind;
    size_t at; /* offset of the value in the struct at `to` */
    int64_t min, max;
    int (*read)(stk_spec_reader *r, const stk_json *value, const char *label, void *at);
} stk_spec_field;

/* Reads the members of `map` that aren't null; `where` as for stk_spec_key. */
int stk_spec_read_fields(stk_spec_reader *r, const stk_json *map, const char *where,
                         const stk_spec_field *fields, int n_fields, void *to);
#define STK_SPEC_N(fields) ((int)(sizeof(fields) / sizeof *(fields)))

/* Merges mappings recursively and replaces anything else; null in `over` keeps the base value. */
int stk_spec_merge(stk_spec_reader *r, const stk_json *base, const stk_json *over,
                   stk_json *ret_node);

/* --- settings (spec_settings.c) --- */

int stk_spec_is_setting(const stk_json *key);
size_t stk_spec_setting_names(const char *const **ret_names);
/* The defaults. */
void stk_spec_default_settings(stk_spec_base *ret_base);
/* Reads a lone `resources` mapping; missing keys are "unset". Refuses `any_of`. */
int stk_spec_read_resources(stk_spec_reader *r, const stk_json *map, stk_resources *ret);
/* Reads the settings keys of `map` over `base`; ignores other keys. */
int stk_spec_read_settings(stk_spec_reader *r, const stk_spec_base *base, const stk_json *map,
                           stk_spec_base *ret_settings);

/* --- devices (spec_devices.c) --- */

/* The keys of `resources` that an alternative may have too. */
enum { STK_SPEC_GPU_COUNT, STK_SPEC_GPU_MEMORY, STK_SPEC_GPU_CLASS, STK_SPEC_GPU_VENDOR };
int stk_spec_read_device(stk_spec_reader *r, const stk_json *node, int key, stk_alternative *ret);
int stk_spec_read_any_of(stk_spec_reader *r, const stk_json *list, stk_resources *res);
/* Applies device keys (indexed by the enum) that a step gives itself, without any_of: they override
 * the same keys of inherited alternatives, and a class or vendor removes those alternatives. */
int stk_spec_say_over_any_of(stk_spec_reader *r, const bool said[4], stk_resources *res);
int stk_spec_read_on_oom(stk_spec_reader *r, const stk_json *map, stk_on_oom *on_oom);
int stk_spec_read_xid(stk_spec_reader *r, const stk_json *map, stk_spec_base *base);
int stk_spec_read_sample(stk_spec_reader *r, const stk_json *node, const char *key,
                         int64_t *ret_ms);
int stk_spec_read_gpu_profile(stk_spec_reader *r, const stk_json *node, stk_settings *s);

/* --- containers (spec_docker.c): rejects early what only a container's start would refuse --- */

int stk_spec_check_docker(stk_spec_reader *r, const stk_json *map);
/* `volumes`, `mounts`, `tmpfs` or `devices` (spec_volumes.c). */
int stk_spec_check_mounted(stk_spec_reader *r, const stk_json *node, const char *key);
/* spec_ulimits.c */
int stk_spec_check_ulimits(stk_spec_reader *r, const stk_json *node, const char *key);
int stk_spec_check_backend(stk_spec_reader *r, const stk_json *map);

/* --- ranks (spec_gang.c) --- */

int stk_spec_read_gang(stk_spec_reader *r, const stk_json *node, stk_gang_ask *gang);

/* --- steps (spec_steps.c) --- */

int stk_spec_read_steps(stk_spec_reader *r, const stk_json *steps);
/* Fails with "what: there is no step 'name'" and a did-you-mean. */
int stk_spec_unknown_step(stk_spec_reader *r, const stk_json *node, const char *what,
                          const char *name);
/* spec_next.c: reads the successors of `step` from `map`; the names of all steps are known. */
int stk_spec_read_next(stk_spec_reader *r, const stk_json *map, stk_step *step);
/* spec_grow.c: sets spec->grows, and checks that the steps (of `map`) of a growing document form a
 * valid graph. */
int stk_spec_check_growth(stk_spec_reader *r, const stk_json *map);
/* spec_order.c: sorts r->spec->steps so that each needs only lower-numbered ones. */
int stk_spec_order_steps(stk_spec_reader *r, stk_step *steps, uint32_t n);

/* --- parameters (spec_params.c) --- */

int stk_spec_read_params(stk_spec_reader *r, const stk_json *node);

#endif
