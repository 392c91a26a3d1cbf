/* What the files of the image room share. */
#ifndef STK_IMAGE_PRIVATE_H
#define STK_IMAGE_PRIVATE_H

#include "base/digest.h"
#include "base/json.h"
#include "image/image.h"
#include "sys/spawn.h"

/* The front's worker must run inside (python/stoker/_worker/attempt.py). */
#define STK_IMAGE_OLDEST_PYTHON "3.7"

typedef struct stk_image_make stk_image_make;

/* --- names and configurations --- */

/* True for "sha256:<64 digits>" alone: an id, not a name. */
bool stk_image_is_id(const char *text);
/* The value of a variable of the image's environment, or NULL. */
const char *stk_image_env(const stk_image_config *config, const char *name);

/* Reads architecture, environment … from a node with the keys of Docker and OCI ("Env"). `outer`
 * has "architecture" and "os"; Docker's API capitalises them. */
int stk_image_config_read(const stk_json *outer, const stk_json *config, stk_arena *arena,
                          stk_image_config *ret, stk_err *err);

/* --- registries (image_auth.c, image_registry.c) --- */

typedef struct stk_image_login {
    const char *user, *secret; /* either these two … */
    const char *token;         /* … or an identity token */
    const char *source;        /* the file or helper, for messages; NULL: no credentials */
} stk_image_login;
/* `where`: "registry" or "registry/repository". Finds credentials where Docker and Podman keep
 * them. Missing credentials are no error; a configured helper that fails is STK_E_ENV. */
int stk_image_login_find(const char *where, stk_arena *arena, stk_image_login *ret, stk_err *err);
/* image_cloud.c: asks the cloud whose registry `where` is. 0 with ret->source NULL: it isn't one,
 * or this machine has no credentials of that cloud. */
int stk_image_cloud_login(const char *where, stk_arena *arena, stk_image_login *ret, stk_err *err);
const char *stk_image_base64(const char *text, size_t n, bool url_safe, stk_arena *arena);
/* `Bearer realm="…",service="…",scope="…"` → the value of one parameter, or NULL. */
const char *stk_image_challenge(const char *header, const char *name, stk_arena *arena);
/* The digest of this architecture's manifest in an index; NULL: there is none, and `have` lists the
 * platforms of the index. */
const char *stk_image_pick(const stk_json *index, const char *arch, stk_arena *arena,
                           const char **have);
/* Turns a registry's refusal of a pull (`pushes`: a push) into an error with a remedy. Of a missing
 * log-in or right (401, 403), err->sys is EACCES. */
int stk_image_refused(const stk_image_ref *ref, int status, const char *words, const char *retry,
                      const stk_image_login *login, bool pushes, stk_err *err);
/* The manifest digest that the registry has for this reference now. */
int stk_image_remote_digest(const stk_image_ref *ref, stk_arena *arena, const char **ret,
                            stk_err *err);
/* Does a [[registry]] table of registries.conf allow this registry without TLS? */
bool stk_image_conf_insecure(const char *conf, const char *registry);

/* --- the container engine (image_local.c, image_look.c) --- */

/* Calls the engine and parses the JSON of its answer into `arena`. */
int stk_image_ask(const stk_engine *engine, const char *method, const char *path, const char *body,
                  stk_arena *arena, stk_json *ret, stk_err *err);
#define STK_IMAGE_UNREACHED                                                                        \
    "is the registry reachable from here? image_map in stoker.yaml names a mirror"

/* image_capture.c: runs a program and reads its standard output; *ret_status is that of waitpid.
 * `spawn` has argv, cwd, stdin and stderr. STK_E_ENV: the program took longer than timeout_ms (-1:
 * no limit), or printed more than `out` takes. */
int stk_image_capture(const stk_spawn *spawn, int64_t timeout_ms, stk_buf *out, int *ret_status,
                      stk_err *err);

/* A program of the host or of the image, run in a temporary container of the image. */
typedef struct stk_image_try {
    const char *id;           /* of the image */
    const char *const *argv;  /* NULL-terminated */
    const char *const *binds; /* "from:to:ro", NULL-terminated */
    const char *network;      /* "none", "host" */
    bool all_gpus;            /* if the engine can pass them */
} stk_image_try;
/* `out` gets stdout, `log` stderr (may be NULL). *ret_status: the exit status. */
int stk_image_run(const stk_engine *engine, const stk_image_try *what, stk_arena *arena,
                  stk_buf *out, stk_buf *log, int *ret_status, stk_err *err);

/* --- what an installation would replace (image_plan.c) --- */

/* One distribution of a resolver's plan. */
typedef struct stk_image_planned {
    const char *name, *version;
} stk_image_planned;
/* Reads pip's report (JSON) or uv's output (" + torch==2.9.0"); *ret_n of `n_max`. Returns false if
 * it is neither. */
bool stk_image_plan_read(const char *text, stk_arena *arena, stk_image_planned *ret, uint32_t n_max,
                         uint32_t *ret_n);
/* Finds the first distribution that would replace a device build in `inside`; `err` has the reason
 * and the remedy (STK_E_RESOURCES). Returns 0 if there is none. */
int stk_image_plan_judge(const stk_image_planned *planned, uint32_t n,
                         const stk_image_contents(*contents), const char *parent, stk_err *err);
/* Compares the frameworks of a built image with its parent's: STK_E_RESOURCES, as above, if the
 * build of one has changed and no requirement names a build ("+cu126"). */
int stk_image_plan_compare(const stk_image_contents *parent, const stk_image_contents *built,
                           const char *name, stk_err *err);
/* Runs the resolver in a container of the parent and judges its plan. */
int stk_image_plan_check(const stk_engine *engine, const stk_image_make *make, const char *parent,
                         const char *parent_id, stk_arena *arena, stk_err *err);

/* --- checks --- */

/* The host's properties that an image is checked against. */
typedef struct stk_image_host {
    const char *arch;       /* "amd64" */
    const char *vendors[8]; /* of the usable devices, NULL-terminated */
    const char *driver;     /* NVIDIA's, or NULL */
    int32_t cuda;           /* newest version that the driver runs; -1: unknown */
    const char *brand;      /* as NVIDIA's tools spell it: "tesla", "geforcertx"; NULL: unknown */
    const char *capability; /* "9.0" of the first NVIDIA device, or NULL */
} stk_image_host;
void stk_image_judge(const stk_image_config *image, const stk_image_facts *facts, const char *name,
                     const stk_image_host *host, const stk_image_use *use, stk_findings *findings);
/* "NVIDIA GeForce RTX 3090" → "geforcertx"; NULL: unknown. */
const char *stk_image_brand(const char *model);
/* Describes this host, or the engine's if that has another architecture. */
void stk_image_host_of(const stk_accel *accel, const char *arch, stk_arena *arena,
                       stk_image_host *ret);

#endif
