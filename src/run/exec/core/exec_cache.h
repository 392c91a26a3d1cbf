/* Cache keys and look-ups. */
#ifndef STK_EXEC_CACHE_H
#define STK_EXEC_CACHE_H

#include "base/map.h"
#include "model/plan/plan.h"
#include "run/exec/exec.h"

/* An output that exists: its digest and its ref (tbl/events.def) as JSON text. */
typedef struct exec_ref {
    const char *digest; /* NULL: unknown */
    const char *json;
} exec_ref;

/* Shared by a pipeline's look-ups: digests of files that were read. */
typedef struct exec_lookup {
    stk_store *store;
    const stk_plan *plan;
    stk_arena *arena;     /* lives as long as the run */
    stk_map files;        /* path → artifact digest (char *) */
    stk_map seen;         /* path → plain SHA-256 of the file (char *) */
    stk_map origins;      /* "step run" of results whose making was looked at */
    struct exec_sum *sum; /* threads for slow work; NULL: the caller's thread does it */
    bool trusts;          /* doesn't check artifacts that exist; their users do */
    const char *damage;   /* found in an artifact; stk_exec_note_damage reports it */
} exec_lookup;

typedef enum { EXEC_HIT, EXEC_MISS } exec_verdict;

void stk_exec_lookup_init(exec_lookup *lookup, stk_store *store, const stk_plan *plan,
                          stk_arena *arena);
void stk_exec_lookup_done(exec_lookup *lookup);
/* Outputs of a step by index; NULL digest where unknown. Used to find the digests of inputs. */
typedef const exec_ref *(*exec_outputs_fn)(void *arg, uint32_t i_step);
typedef struct exec_found {
    exec_verdict verdict;
    stk_cache_row row; /* HIT */
    exec_ref *outputs; /* HIT: by declared index */
    const char *key;   /* hex, or NULL when caching is off */
    const char *parts;
    const char *miss;   /* MISS: the reason */
    const char *inputs; /* JSON {name: digest} or NULL */
} exec_found;
/* Notes the damaged artifact that a look-up set aside. */
int stk_exec_note_damage(stk_exec *x, stk_err *err);
/* Checks that the artifact is here and unchanged. STK_E_NOT_FOUND: it is missing or damaged
 * (lookup->damage). */
int stk_exec_lookup_artifact(exec_lookup *lookup, const char *digest, stk_err *err);
/* Text lives in lookup->arena. */
int stk_exec_lookup_step(exec_lookup *lookup, uint32_t i_step, exec_outputs_fn outputs, void *arg,
                         bool use_cache, int64_t now_ms, exec_found *ret_found, stk_err *err);
/* Reads {name: ref, …} as refs by declared output. `check`: also checks that the artifacts exist.
 */
int stk_exec_parse_outputs(exec_lookup *lookup, const stk_step *step, const char *json, bool check,
                           exec_ref **ret_outputs, stk_err *err);
/* Makes a path of the document absolute, in `arena`; NULL: out of memory. */
const char *stk_exec_absolute(const stk_spec *spec, const char *path, stk_arena *arena);
/* The JSON of an input that is a value or a parameter, else NULL. */
const char *stk_exec_literal(const stk_spec *spec, const stk_input *in);
const char *stk_exec_file_digest(exec_lookup *lookup, const char *path,
                                 stk_err *err); /* NULL on error */
/* The digests of a step's settings.cache.files, in their order. */
int stk_exec_lookup_files(exec_lookup *lookup, const stk_step *step, const char **files,
                          stk_err *err);
/* The digest of a file, an artifact or a list of them; NULL on error. */
const char *stk_exec_input_digest(exec_lookup *lookup, const stk_input *in, stk_err *err);
/* {name: digest} of the inputs that have a digest; NULL: none has. */
const char *stk_exec_inputs_json(exec_lookup *lookup, const stk_step *step,
                                 const char *const *digests);
/* Finds the cache entry and checks that it still holds; in a graph that grows without its
 * artifacts. */
int stk_exec_lookup_key(exec_lookup *lookup, uint32_t i_step, const stk_key *key, bool use_cache,
                        int64_t now_ms, exec_found *ret_found, stk_err *err);

/* The sentence that a step's cached result, of the task of that run, was made without the devices
 * that the step asks for. NULL: it wasn't, or that isn't known, or the step and run had their
 * sentence. */
const char *stk_exec_origin(exec_lookup *lookup, uint32_t i_step, const char *run, uint32_t task);
/* The same as a note of this run. */
int stk_exec_note_origin(stk_exec *x, uint32_t i_step, const char *run, uint32_t task,
                         stk_err *err);

#endif
