/* spec_read: typed reading of document nodes, each failure one sentence with its line. Inside the
 * room.
 *
 * The rule for optional keys, here and in schema/: a null value means "not given". `key` is the
 * name as messages show it ("retry.delay").
 */
#ifndef STK_SPEC_READ_H
#define STK_SPEC_READ_H

#include "base/json.h"
#include "base/map.h"
#include "model/spec/spec.h"

typedef struct stk_spec_reader {
    stk_arena *arena;
    const char *path;
    const stk_spec_place *place; /* of a pipeline; else NULL */
    stk_err *err;
    const char *step; /* messages begin with "step 'x': "; NULL outside of steps */
    stk_spec *spec;
} stk_spec_reader;

/* Settings and the nodes that steps merge with. */
typedef struct stk_spec_base {
    stk_settings s;
    stk_json environment, docker, backend, extra, more, xid; /* NULL nodes: not given */
    stk_resources said; /* `resources` alone; the settings' have what options of backends ask for */
    int64_t sample_ms;  /* as said; settings have what a profile needs, too */
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
};

/* --- failing --- */

int stk_spec_fail(stk_spec_reader *r, const stk_json *node, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int stk_spec_fail_code(stk_spec_reader *r, int code, const stk_json *node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int stk_spec_no_memory(stk_spec_reader *r);
int stk_spec_if_null(stk_spec_reader *r, const void *p); /* that where it is NULL, else 0 */
/* "'key' must be WHAT, not a list". */
int stk_spec_wrong(stk_spec_reader *r, const stk_json *node, const char *key, const char *what);
/* Hint: "did you mean 'x'?" where a candidate is near. */
void stk_spec_did_you_mean(stk_spec_reader *r, const char *word, const char *const *candidates,
                           size_t n);

/* --- reading --- */

/* Index of the key in `known`, or an error code ("unknown key 'resorces'; did you mean …").
 * `where`: the mapping it stands in ("retry"), or NULL. */
int stk_spec_key(stk_spec_reader *r, const stk_json *key, const char *const *known, int n_known,
                 const char *where);
/* -1: not among them. */
int stk_spec_find_key(const stk_json *key, const char *const *known, int n_known);

int stk_spec_read_map(stk_spec_reader *r, const stk_json *node, const char *key);
int stk_spec_read_text(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_text);
int stk_spec_read_bool(stk_spec_reader *r, const stk_json *node, const char *key, bool *ret);
int stk_spec_read_int(stk_spec_reader *r, const stk_json *node, const char *key, int64_t min,
                      int64_t max, int64_t *ret);
int stk_spec_read_real(stk_spec_reader *r, const stk_json *node, const char *key, double min,
                       double max, double *ret);
/* Seconds, or "90s", "10m": milliseconds. */
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

/* A member of a mapping, and where its value goes. */
typedef struct stk_spec_field {
    const char *label; /* as messages show it ("retry.delay"); the key is what follows its dot */
    enum {
        STK_SPEC_OWN,      /* by `read` */
        STK_SPEC_TEXT,     /* const char * */
        STK_SPEC_TEXTS,    /* const char *const *, their number behind it: uint32_t */
        STK_SPEC_BOOL,     /* bool */
        STK_SPEC_COUNT,    /* uint32_t, at most `max` */
        STK_SPEC_INT,      /* int64_t, from `min` to `max` */
        STK_SPEC_REAL,     /* double, from `min` to `max` */
        STK_SPEC_DURATION, /* int64_t, milliseconds */
        STK_SPEC_OBJECT    /* const char *: a mapping as JSON */
    } kind;
    size_t at; /* of the value in what `to` points to */
    int64_t min, max;
    int (*read)(stk_spec_reader *r, const stk_json *value, const char *label, void *at);
} stk_spec_field;

/* The members of `map` that aren't null; `where` as for stk_spec_key. */
int stk_spec_read_fields(stk_spec_reader *r, const stk_json *map, const char *where,
                         const stk_spec_field *fields, int n_fields, void *to);
#define STK_SPEC_N(fields) ((int)(sizeof(fields) / sizeof *(fields)))

/* Mappings merged recursively, anything else replaced; null in `over` leaves what was there. */
int stk_spec_merge(stk_spec_reader *r, const stk_json *base, const stk_json *over,
                   stk_json *ret_node);

/* --- settings (spec_settings.c) --- */

int stk_spec_is_setting(const stk_json *key);
size_t stk_spec_setting_names(const char *const **ret_names);
/* What stands before anything is said. */
void stk_spec_default_settings(stk_spec_base *ret_base);
/* A `resources` mapping by itself; "unset" where it says nothing. `any_of` isn't taken. */
int stk_spec_read_resources(stk_spec_reader *r, const stk_json *map, stk_resources *ret);
/* Reads the settings keys of `map` (other keys are left alone) over `base`. */
int stk_spec_read_settings(stk_spec_reader *r, const stk_spec_base *base, const stk_json *map,
                           stk_spec_base *ret_settings);

/* --- devices (spec_devices.c) --- */

/* The keys of `resources` that an alternative has too. */
enum { STK_SPEC_GPU_COUNT, STK_SPEC_GPU_MEMORY, STK_SPEC_GPU_CLASS, STK_SPEC_GPU_VENDOR };
int stk_spec_read_device(stk_spec_reader *r, const stk_json *node, int key, stk_alternative *ret);
int stk_spec_read_any_of(stk_spec_reader *r, const stk_json *list, stk_resources *res);
/* A step says these keys (by their numbers) itself and no any_of: they win over what the
 * alternatives that it inherits say, and a kind of its own leaves nothing of them. */
int stk_spec_say_over_any_of(stk_spec_reader *r, const bool said[4], stk_resources *res);
int stk_spec_read_on_oom(stk_spec_reader *r, const stk_json *map, stk_on_oom *on_oom);
int stk_spec_read_xid(stk_spec_reader *r, const stk_json *map, stk_spec_base *base);
int stk_spec_read_sample(stk_spec_reader *r, const stk_json *node, const char *key,
                         int64_t *ret_ms);
int stk_spec_read_gpu_profile(stk_spec_reader *r, const stk_json *node, stk_settings *s);

/* --- containers (spec_docker.c): what only a container's start would refuse --- */

int stk_spec_check_docker(stk_spec_reader *r, const stk_json *map);
int stk_spec_check_backend(stk_spec_reader *r, const stk_json *map);

/* --- ranks (spec_gang.c) --- */

int stk_spec_read_gang(stk_spec_reader *r, const stk_json *node, stk_gang_ask *gang);

/* --- steps (spec_steps.c) --- */

int stk_spec_read_steps(stk_spec_reader *r, const stk_json *steps);
/* "what: there is no step 'name'", with a did-you-mean. */
int stk_spec_unknown_step(stk_spec_reader *r, const stk_json *node, const char *what,
                          const char *name);
/* spec_next.c: what follows `step`, from the keys of `map`; every step's name is known. */
int stk_spec_read_next(stk_spec_reader *r, const stk_json *map, stk_step *step);
/* spec_grow.c: sets spec->grows; whether the steps (of `map`) of a growing document make a graph.
 */
int stk_spec_check_growth(stk_spec_reader *r, const stk_json *map);
/* spec_order.c: puts r->spec->steps in an order in which each needs only lower-numbered ones. */
int stk_spec_order_steps(stk_spec_reader *r, stk_step *steps, uint32_t n);

/* --- parameters (spec_params.c) --- */

int stk_spec_read_params(stk_spec_reader *r, const stk_json *node);

#endif
