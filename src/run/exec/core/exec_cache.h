/* Cache keys and look-ups. */
#ifndef STK_EXEC_CACHE_H
#define STK_EXEC_CACHE_H

#include "base/map.h"
#include "model/plan/plan.h"
#include "run/exec/exec.h"

/* An output that exists: its digest and its ref (tbl/events.def) as JSON text. */
typedef struct exec_ref {
    const char *digest; /* NULL: not there */
    const char *json;
} exec_ref;

/* What the cache lookup of a pipeline shares: digests of files already read. */
typedef struct exec_lookup {
    stk_store *store;
    const stk_plan *plan;
    stk_arena *arena;     /* as long as the run */
    stk_map files;        /* path → artifact digest (char *) */
    stk_map seen;         /* path → plain SHA-256 of the file (char *) */
    struct exec_sum *sum; /* what takes long is asked of it; NULL: done at once */
    bool trusts;          /* artifacts that are there are not looked at: who uses them does it */
    const char *damage;   /* of an artifact that it found; told by stk_exec_note_damage */
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
/* Notes what a look-up found damaged, and set aside. */
int stk_exec_note_damage(stk_exec *x, stk_err *err);
/* Is the artifact here, and what it was? STK_E_NOT_FOUND; or it is damaged (lookup->damage). */
int stk_exec_lookup_artifact(exec_lookup *lookup, const char *digest, stk_err *err);
/* Text lives in lookup->arena. */
int stk_exec_lookup_step(exec_lookup *lookup, uint32_t i_step, exec_outputs_fn outputs, void *arg,
                         bool use_cache, int64_t now_ms, exec_found *ret_found, stk_err *err);
/* {name: ref, …} → refs by declared output; also checks that the artifacts are there when `check`.
 */
int stk_exec_parse_outputs(exec_lookup *lookup, const stk_step *step, const char *json, bool check,
                           exec_ref **ret_outputs, stk_err *err);
/* A path as written in the document → absolute, in `arena`; NULL: out of memory. */
const char *stk_exec_absolute(const stk_spec *spec, const char *path, stk_arena *arena);
/* JSON of an input that is a value or a parameter; NULL: it is neither. */
const char *stk_exec_literal(const stk_spec *spec, const stk_input *in);
const char *stk_exec_file_digest(exec_lookup *lookup, const char *path,
                                 stk_err *err); /* NULL on error */
/* Of a step's settings.cache.files, in their order. */
int stk_exec_lookup_files(exec_lookup *lookup, const stk_step *step, const char **files,
                          stk_err *err);
/* Of a file, artifact or list of such; NULL on error. */
const char *stk_exec_input_digest(exec_lookup *lookup, const stk_input *in, stk_err *err);
/* {name: digest} of those inputs that have one; NULL: none have. */
const char *stk_exec_inputs_json(exec_lookup *lookup, const stk_step *step,
                                 const char *const *digests);
/* Is there an entry, and is it still true? Of a graph that grows, but for its artifacts. */
int stk_exec_lookup_key(exec_lookup *lookup, uint32_t i_step, const stk_key *key, bool use_cache,
                        int64_t now_ms, exec_found *ret_found, stk_err *err);

#endif
