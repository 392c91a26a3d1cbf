/* What the files of the image room share. */
#ifndef STK_IMAGE_PRIVATE_H
#define STK_IMAGE_PRIVATE_H

#include "base/digest.h"
#include "base/json.h"
#include "image/image.h"
#include "sys/spawn.h"

/* The front runs in it (python/stoker/_worker/attempt.py). */
#define STK_IMAGE_OLDEST_PYTHON "3.7"

typedef struct stk_image_make stk_image_make;

/* --- names and configurations --- */

/* "sha256:<64 digits>" alone: an id, not a name. */
bool stk_image_is_id(const char *text);
/* The value of a variable of its environment, or NULL. */
const char *stk_image_env(const stk_image_config *config, const char *name);

/* Architecture, environment … from a node with keys as Docker and OCI have them ("Env"); `outer`
 * has "architecture" and "os", in Docker's API with capitals. */
int stk_image_config_read(const stk_json *outer, const stk_json *config, stk_arena *arena,
                          stk_image_config *ret, stk_err *err);

/* --- registries (image_auth.c, image_registry.c) --- */

typedef struct stk_image_login {
    const char *user, *secret; /* or … */
    const char *token;         /* … an identity token */
    const char *source;        /* the file or helper, for messages; NULL: no credentials */
} stk_image_login;
/* For "registry" or "registry/repository", as Docker and Podman keep them. No credentials is no
 * error; a helper that is named and doesn't work is STK_E_ENV. */
int stk_image_login_find(const char *where, stk_arena *arena, stk_image_login *ret, stk_err *err);
const char *stk_image_base64(const char *text, size_t n, bool url_safe, stk_arena *arena);
/* `Bearer realm="…",service="…",scope="…"` → the value of one parameter, or NULL. */
const char *stk_image_challenge(const char *header, const char *name, stk_arena *arena);
/* The manifest for this architecture in an index: its digest; NULL: there is none, and `have` lists
 * those that are there. */
const char *stk_image_pick(const stk_json *index, const char *arch, stk_arena *arena,
                           const char **have);
/* What it says of a registry's refusal, as an error with the way out. */
int stk_image_refused(const stk_image_ref *ref, int status, const char *words, const char *retry,
                      const stk_image_login *login, stk_err *err);
/* The digest under which the registry has it now. */
int stk_image_remote_digest(const stk_image_ref *ref, stk_arena *arena, const char **ret,
                            stk_err *err);
/* [[registry]] of registries.conf: may this one be asked without TLS? */
bool stk_image_conf_insecure(const char *conf, const char *registry);

/* --- the container engine (image_local.c, image_look.c) --- */

/* An answer's JSON, in `arena`. */
int stk_image_ask(const stk_engine *engine, const char *method, const char *path, const char *body,
                  stk_arena *arena, stk_json *ret, stk_err *err);
#define STK_IMAGE_UNREACHED                                                                        \
    "is the registry reachable from here? image_map in stoker.yaml names a mirror"

/* image_capture.c: what the program prints, and its status as of waitpid. `spawn` says argv, cwd,
 * stdin and stderr. STK_E_ENV: not within timeout_ms (-1: any time), or more than `out` takes. */
int stk_image_capture(const stk_spawn *spawn, int64_t timeout_ms, stk_buf *out, int *ret_status,
                      stk_err *err);

/* A program of the host or of the image, run in a container of it that is removed again. */
typedef struct stk_image_try {
    const char *id;           /* of the image */
    const char *const *argv;  /* NULL-terminated */
    const char *const *binds; /* "from:to:ro", NULL-terminated */
    const char *network;      /* "none", "host" */
    bool all_gpus;            /* where the engine can pass them */
} stk_image_try;
/* Both streams into `out` (stdout) and `log` (stderr; may be NULL). *ret_status: exit status. */
int stk_image_run(const stk_engine *engine, const stk_image_try *what, stk_arena *arena,
                  stk_buf *out, stk_buf *log, int *ret_status, stk_err *err);

/* --- what an installation would replace (image_plan.c) --- */

/* One distribution of a resolver's plan. */
typedef struct stk_image_planned {
    const char *name, *version;
} stk_image_planned;
/* From pip's report (JSON) or what uv prints (" + torch==2.9.0"); *ret_n of `n_max`. False: it is
 * neither. */
bool stk_image_plan_read(const char *text, stk_arena *arena, stk_image_planned *ret, uint32_t n_max,
                         uint32_t *ret_n);
/* The first that would replace a build for devices in `inside`: the sentence and the way out in
 * `err` (STK_E_RESOURCES); 0: none does. */
int stk_image_plan_judge(const stk_image_planned *planned, uint32_t n,
                         const stk_image_contents(*contents), const char *parent, stk_err *err);
/* Has what was built on an image another build of a framework than the image, which nobody named
 * ("+cu126")? STK_E_RESOURCES, as above. */
int stk_image_plan_compare(const stk_image_contents *parent, const stk_image_contents *built,
                           const char *name, stk_err *err);
/* Asks the resolver in a container of the parent. */
int stk_image_plan_check(const stk_engine *engine, const stk_image_make *make, const char *parent,
                         const char *parent_id, stk_arena *arena, stk_err *err);

/* --- checks --- */

/* What an image is held against. */
typedef struct stk_image_host {
    const char *arch;       /* "amd64" */
    const char *vendors[8]; /* of its usable devices, NULL-terminated */
    const char *driver;     /* NVIDIA's, or NULL */
    int32_t cuda;           /* newest that the driver runs, -1 unknown */
    const char *brand;      /* as NVIDIA's tools say it: "tesla", "geforcertx"; NULL unknown */
    const char *capability; /* "9.0" of the first NVIDIA device, or NULL */
} stk_image_host;
void stk_image_judge(const stk_image_config *image, const stk_image_facts *facts, const char *name,
                     const stk_image_host *host, const stk_image_use *use, stk_findings *findings);
/* "NVIDIA GeForce RTX 3090" → "geforcertx"; NULL: can't be told. */
const char *stk_image_brand(const char *model);
/* This host, or the engine's where it has another architecture. */
void stk_image_host_of(const stk_accel *accel, const char *arch, stk_arena *arena,
                       stk_image_host *ret);

#endif
