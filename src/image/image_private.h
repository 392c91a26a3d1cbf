/* What the files of the image room share. */
#ifndef STK_IMAGE_PRIVATE_H
#define STK_IMAGE_PRIVATE_H

#include "base/digest.h"
#include "base/json.h"
#include "image/image.h"

/* The front runs in it (python/stoker/_worker.py). */
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
/* The error that a stream of JSON ended with: whose words say what went wrong. */
#define STK_IMAGE_UNREACHED                                                                        \
    "is the registry reachable from here? image_map in stoker.yaml names a mirror"
int stk_image_said(const stk_image_ref *ref, const char *doing, const char *words, stk_err *err);

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
                         const stk_image_inside *inside, const char *parent, stk_err *err);
/* Has what was built on an image another build of a framework than the image, which nobody named
 * ("+cu126")? STK_E_RESOURCES, as above. */
int stk_image_plan_compare(const stk_image_inside *parent, const stk_image_inside *built,
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

/* --- the docker setting (image_settings.c) --- */

typedef struct stk_image_settings {
    const char *parent_image, *image_tag, *dockerfile, *build_context_root, *target_repository;
    const char *cache_mount, *pyproject_path, *requirements_file, *local_install, *user;
    const char *dockerignore; /* path, or NULL */
    bool skip_build, prevent_build_reuse, uses_uv, detects;
    const char *installer_args; /* quoted for a shell, with a blank before each, "" for none */
    const char *source_args;    /* those of them that say where packages come from */
    const char *const *requirements, *const *integrations,
                                         *const *apt_packages; /* NULL-terminated */
    const stk_json *replicate;                                 /* truth, text or list; or NULL */
    const stk_json *export_command;                            /* list, or NULL */
    const stk_json *environment;                               /* map, or NULL */
    const stk_json *build_options;                             /* map, or NULL */
} stk_image_settings;
/* `docker` may be NULL. STK_E_SPEC: a key of the wrong kind, skip_build without parent_image. */
int stk_image_settings_read(const char *docker, stk_arena *arena, stk_image_settings *ret,
                            stk_err *err);
/* Is this line of requirements ZenML itself, whose place is taken by the front? */
bool stk_image_is_zenml(const char *line, size_t n);

/* --- what is to be installed (image_requirements.c) --- */

typedef struct stk_image_packages {
    const char *file;  /* "requirements.txt" in the context */
    const char *title; /* "requirements", "the local environment": for a comment */
    const char *text;
} stk_image_packages;
enum { STK_IMAGE_PACKAGES = 8 };
/* In the order of installation. Notes (what was left out) go to `notes`, a line each. Runs a
 * program of the user's only where a setting names one. */
int stk_image_gather(const stk_image_recipe *recipe, const stk_image_settings *settings,
                     stk_arena *arena, stk_image_packages ret[STK_IMAGE_PACKAGES], uint32_t *ret_n,
                     stk_buf *notes, stk_err *err);

/* --- the context of a build (image_context.c) --- */

typedef struct stk_image_file {
    const char *name;   /* in the tar */
    const char *path;   /* on this host, or NULL: */
    const char *text;   /* … this content */
    const char *target; /* a symbolic link's, or NULL */
    uint32_t mode;      /* S_IFREG, S_IFDIR or S_IFLNK with 0644, 0755, 0777; what is only for its
                           owner 0600, 0700 */
    int64_t size;
} stk_image_file;
typedef struct stk_image_context {
    stk_arena *arena;
    stk_image_file *files; /* sorted by name */
    uint32_t n, cap;
    const char *left_out; /* names of private files, the first STK_IMAGE_NAMED */
    uint32_t n_left_out;
} stk_image_context;
enum { STK_IMAGE_NAMED = 5 };
int stk_image_context_text(stk_image_context *context, const char *name, const char *text,
                           stk_err *err);
/* Everything below `folder` under `prefix` ("" or "x/"), but what `ignore` (a file of
 * .dockerignore's patterns; NULL: the folder's own .dockerignore) leaves out, and unless
 * `with_private` what is private (sys/private.h) and isn't named by a '!' pattern. */
int stk_image_context_tree(stk_image_context *context, const char *folder, const char *prefix,
                           const char *ignore, bool with_private, stk_err *err);
void stk_image_context_sort(stk_image_context *context);
/* Names, modes and contents into `sha`. */
int stk_image_context_digest(const stk_image_context *context, stk_sha256 *sha, stk_err *err);
/* A tar without times and owners in an unnamed file, at its beginning. */
int stk_image_context_tar(const stk_image_context *context, int *ret_fd, stk_err *err);

/* .dockerignore (image_ignore.c). */
typedef struct stk_image_ignore {
    const char *const *patterns; /* cleaned, '!' kept, NULL-terminated */
    bool has_exceptions;
} stk_image_ignore;
int stk_image_ignore_read(const char *text, stk_arena *arena, stk_image_ignore *ret, stk_err *err);
bool stk_image_is_ignored(const stk_image_ignore *ignore, const char *path);
/* By a '!' pattern whose last part begins with no wildcard: itself, or a folder that holds it. */
bool stk_image_is_named(const stk_image_ignore *ignore, const char *path);

/* --- the whole recipe (image_dockerfile.c) --- */

/* The user's Dockerfile by itself, in the context of what is built on it: so the layers are the
 * same ones. */
#define STK_IMAGE_OWN ".stoker/Dockerfile"

struct stk_image_make {
    stk_image_settings settings;
    stk_buf dockerfile;        /* done by the caller */
    stk_image_context context; /* the Dockerfile among it */
    stk_image_packages packages[STK_IMAGE_PACKAGES];
    uint32_t n_packages;
    const char *own;   /* the user's Dockerfile alone, on which packages are put; or NULL */
    const char *tag;   /* 40 digits */
    bool adds_nothing; /* the parent is the image */
};
int stk_image_make_read(const stk_image_recipe *recipe, stk_arena *arena, stk_image_make *ret,
                        stk_err *err);
/* 'text' for a shell. */
const char *stk_image_quote(const char *text, stk_arena *arena);

#endif
