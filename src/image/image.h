/* image: resolves an image, checks that it fits the step and the host, and builds it. Names,
 * registries, checks, Dockerfiles.
 *
 * Before the first task of a run, stk_image_make_ready prepares each image. It parses the name and
 * looks for the image in the container engine. If the image isn't there, it checks the registry's
 * manifest and configuration before it pulls a layer. If the step asks for packages, it writes a
 * Dockerfile and builds it, unless an image exists whose tag is the digest of all inputs. For steps
 * with devices it also looks inside the image for what the configuration can't say (how torch is
 * built, for example), and keeps the answer by the image's id below ~/.cache/stoker/images. Before
 * a build it runs the resolver in a container of the parent, to learn what the installation would
 * replace. */
#ifndef STK_IMAGE_H
#define STK_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "host/preflight/preflight.h"
#include "image/contain/contain.h"

/* --- a reference (image_ref.c, pure) --- */

/* "pytorch/pytorch:2.9" → registry "docker.io", repository "pytorch/pytorch", tag "2.9";
 * "ubuntu" → library/ubuntu:latest; "localhost:5000/x@sha256:…". */
typedef struct stk_image_ref {
    const char *registry, *repository;
    const char *tag;    /* NULL if there is a digest */
    const char *digest; /* "sha256:…", or NULL */
} stk_image_ref;
int stk_image_parse(const char *text, stk_arena *arena, stk_image_ref *ret, stk_err *err);
const char *stk_image_text(const stk_image_ref *ref, stk_arena *arena);

/* --- what an image contains --- */

/* A line of progress, for people. */
typedef void stk_image_say(void *arg, const char *line);

typedef struct stk_image_config {
    const char *id;                /* "sha256:…" of the config */
    const char *digest;            /* of the manifest, or NULL */
    const char *arch, *os;         /* "amd64", "linux" */
    const char *const *env;        /* "K=V", NULL-terminated */
    const char *const *entrypoint; /* NULL-terminated */
    const char *user, *workdir;
    const char *const *labels; /* "k=v" */
    const char *const *layers; /* digests; NULL: unknown */
    int64_t size_bytes;        /* -1: unknown; compressed if only the registry has it */
} stk_image_config;

/* What the name and the configuration say, without a look inside (tbl/images.def). */
typedef struct stk_image_facts {
    const char *family;    /* "PyTorch", "NGC": the publisher; NULL: unknown */
    const char *framework; /* "torch", "tensorflow", "jax"; NULL none or unknown */
    const char *version;   /* of the framework */
    const char *python;    /* "3.12" */
    int32_t cuda;          /* 12080 for 12.8; -1: unknown */
    enum {
        STK_IMAGE_FOR_UNKNOWN,
        STK_IMAGE_FOR_CPU,
        STK_IMAGE_FOR_NVIDIA,
        STK_IMAGE_FOR_AMD,
        STK_IMAGE_FOR_INTEL,
        STK_IMAGE_FOR_AWS,
        STK_IMAGE_FOR_GOOGLE
    } made_for;
    const char *source; /* source of `made_for` and `cuda`: "its name", "its environment" */
} stk_image_facts;
/* `config` may be NULL: uses the name alone. Returns 0, STK_E_SPEC (not an image name) or
 * STK_E_NOMEM. */
int stk_image_facts_of(const char *name, const stk_image_config *config, stk_arena *arena,
                       stk_image_facts *ret, stk_err *err);
/* Suggests a replacement with a CUDA that the driver runs (`major`: 12; 0: any): an image of the
 * same family and registry, else one with `framework`. NULL: none known. */
const char *stk_image_suggest(const char *name, const char *framework, int32_t major,
                              stk_arena *arena);

/* Reads the configuration from the container engine. STK_E_NOT_FOUND: the engine doesn't have the
 * image. */
int stk_image_local(const stk_engine *engine, const char *text, stk_arena *arena,
                    stk_image_config *ret, stk_err *err);
/* Reads the manifest and the configuration from the registry; pulls no layer. Uses the credentials
 * of Docker and Podman (config.json, credsStore, credHelpers, REGISTRY_AUTH_FILE, Podman's
 * auth.json); at a cloud's registry without any, a short log-in (image_cloud.c). 401, 404 and 429
 * are separate errors, each with a remedy. */
int stk_image_remote(const stk_image_ref *ref, const char *arch, stk_arena *arena,
                     stk_image_config *ret, stk_err *err);
/* Asks AWS for a log-in at a registry of ECR; STK_E_NOT_FOUND: there are no credentials of AWS.
 * Set once, when the program starts (away/aws has it, which stands below this room); NULL: nobody
 * asks. */
typedef int stk_image_cloud(const char *host, stk_arena *arena, const char **ret_user,
                            const char **ret_secret, stk_err *err);
extern stk_image_cloud *stk_image_ecr;
/* The value of X-Registry-Auth for this registry; NULL: no credentials. */
int stk_image_auth(const char *registry, stk_arena *arena, const char **ret, stk_err *err);
/* Pulls the image; passes lines of progress to `say` (may be NULL). */
int stk_image_pull(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, stk_err *err);
int stk_image_push(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, const char **ret_digest, stk_arena *arena, stk_err *err);

/* --- an image that Stoker makes itself (image_send.c) --- */

typedef struct stk_image_send_how {
    const char *tar;               /* the archive that is its only layer */
    const char *const *entrypoint; /* NULL-terminated */
    const char *name;              /* of the image; no digest */
    /* What pushes it: "engine", "podman", "docker" or "registry" (straight to it, by OCI's
     * distribution protocol); NULL: an engine, straight where none answers. */
    const char *by;
    const char *archive; /* write it there, as `docker save` does, and push nothing; or NULL */
} stk_image_send_how;
typedef struct stk_image_sent {
    const char *name;   /* in full: "docker.io/library/x:latest" */
    const char *id;     /* "sha256:…" of its configuration */
    const char *pinned; /* "registry/repository@sha256:…"; NULL: it wasn't pushed */
    const char *by;     /* "Podman 5.4.2", for people */
    int64_t bytes;      /* of the layer */
} stk_image_sent;
int stk_image_send(const stk_image_send_how *how, stk_arena *arena, stk_image_sent *ret,
                   stk_err *err);

/* --- compatibility (image_check.c, image_require.c; pure) --- */

/* NVIDIA_REQUIRE_CUDA: "cuda>=12.8 brand=tesla,driver>=535,driver<536 …": blanks mean OR, commas
 * AND. Returns 1: fits, 0: doesn't, with the reason in `why`, -1: some value isn't known. */
int stk_image_require(const char *text, const char *cuda, const char *driver, const char *brand,
                      const char *arch, char *why, size_t size);

/* This host's architecture in Docker's words: "amd64", "arm64". */
const char *stk_image_arch(void);

/* What the steps that use an image need from it. */
typedef struct stk_image_use {
    bool devices;            /* at least one step has devices */
    bool python;             /* at least one step is a Python function */
    const char *const *uses; /* frameworks that the steps import */
    uint32_t n_uses;
    const char *arch; /* of the engine's host: "amd64"; NULL: this host's */
} stk_image_use;
/* Checks architecture, Python, CUDA_VERSION and NVIDIA_REQUIRE_CUDA against the host's driver
 * (minor-version and forward compatibility), and images built for no device or for another vendor.
 * If a step with devices couldn't use them, the finding is an ERROR whose remedy names an image
 * that would fit. */
int stk_image_check(const stk_image_config *image, const char *name, const stk_accel *accel,
                    const stk_image_use *use, stk_findings *findings, stk_err *err);

/* --- builds (image_dockerfile.c, image_build.c) --- */

typedef struct stk_image_recipe {
    const char *docker;    /* the setting, JSON (docs/formats/spec.md, "Images") */
    const char *parent;    /* mapped reference in FROM; NULL: the user's own dockerfile */
    const char *parent_id; /* "sha256:…" of the parent, part of the tag; NULL: unknown */
    const char *folder;    /* of the spec; relative paths start here */
    const char *python;    /* the user's, for replicate_local_python_environment; or NULL */
    const char *registry;  /* the stack's, where built images are pushed; or NULL */
    bool without_mounts;   /* no mounts in RUN: Docker's API builds without BuildKit */
    const char *uv; /* this machine's, which installs because the parent has no pip; or NULL */
} stk_image_recipe;
/* Does this setting (NULL: none) need a build: packages, a dockerfile …? `zenml` among the
 * requirements doesn't. */
bool stk_image_builds(const char *docker);
/* Writes a readable Dockerfile into `buf`; *ret_tag: digest of all inputs (40 hex digits).
 * STK_E_SPEC: the setting is invalid; STK_E_NOT_FOUND: a file that it names doesn't exist. */
int stk_image_dockerfile(const stk_image_recipe *recipe, stk_arena *arena, stk_buf *buf,
                         const char **ret_tag, stk_err *err);
typedef struct stk_image_result {
    const char *id;
    const char *pinned; /* "registry/repository@sha256:…" if it was pushed, else NULL */
    const char *note;   /* which private files were left out (sys/private.h), or NULL */
    bool was_built;     /* by this call */
} stk_image_result;
/* Builds the image unless it exists; writes the log to `log_path` and passes its lines to `say`.
 * Refuses a requirement that would replace the parent's CUDA build of torch, TensorFlow or JAX
 * (STK_E_RESOURCES). */
int stk_image_build(const stk_engine *engine, const stk_image_recipe *recipe, const char *log_path,
                    stk_image_say *say, void *arg, stk_arena *arena, stk_image_result *ret,
                    stk_err *err);

/* Finds the image of an earlier build with the same inputs; STK_E_NOT_FOUND: there is none.
 * `ret_note` is the note that a build returns, set in both cases. */
int stk_image_built(const stk_engine *engine, const stk_image_recipe *recipe, stk_arena *arena,
                    stk_image_config *ret, const char **ret_note, stk_err *err);

/* --- a look inside (image_look.c): our own program reads files in a container of the image; no
 * program of the image runs --- */

typedef struct stk_image_contents {
    const char *python; /* version, "3.11.2"; NULL: none in the image's PATH */
    const char *python_path;
    stk_framework frameworks[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n_frameworks;
    const char *nvcc;    /* release of the CUDA toolkit: "12.8"; NULL: no toolkit */
    const char *libcuda; /* path of the driver's library in the container; NULL: none */
    bool compat;         /* has NVIDIA's forward compatibility package */
} stk_image_contents;
/* The result is cached per image id, since an id always means the same content. `with_gpus`:
 * ignores the cache and uses a container that gets all NVIDIA devices (an error if the engine can't
 * pass them). The engine must have the image. */
int stk_image_look_inside(const stk_engine *engine, const char *id, bool with_gpus,
                          stk_arena *arena, stk_image_contents *ret, stk_err *err);
/* The same for the container or host that we run in, as one line of JSON in `out`: `stoker doctor
 * --facts` prints it. */
int stk_image_facts_here(stk_arena *arena, stk_buf *out, stk_err *err);

/* --- before the first task (image_prepare.c) --- */

/* An image of a run: one entry for each distinct (image, docker setting). */
typedef struct stk_image_want {
    const char *step;      /* the first step that uses it, for messages */
    const char *image;     /* mapped reference (stk_place.image); NULL: the user's own dockerfile */
    const char *docker;    /* the docker setting (JSON), or NULL */
    stk_image_use use;     /* of all steps that use it; `arch` may be NULL */
    bool allows_cpu_build; /* STOKER_ALLOW_CPU_BUILD: errors about devices become warnings */
    /* results, in the arena of `findings` */
    const char *id;     /* "sha256:…", what task.json's container.image is */
    const char *pinned; /* "registry/repository@sha256:…" if a registry has it, else NULL */
    const char *workdir, *user;    /* of the image; "": not set */
    const char *const *env;        /* of the image, NULL-terminated */
    const char *const *entrypoint; /* of the image, NULL-terminated, or NULL */
    bool was_pulled, was_built;
} stk_image_want;

typedef struct stk_image_prepare {
    const char *folder;   /* of the spec */
    const char *python;   /* the user's interpreter, or NULL */
    const char *registry; /* the stack's, or NULL */
    const char *logs;     /* folder for build logs (build-<tag>.log), created on demand */
    stk_image_say *say;   /* lines of progress, or NULL */
    void *arg;
} stk_image_prepare;
/* Makes each image available: checks it against the registry and pulls it if the engine doesn't
 * have it, and builds it if packages are requested. Reports all findings, as preflight does. The
 * first ERROR also becomes the error (STK_E_RESOURCES, "step 'x': …"), before the pull if the
 * registry's data suffices. */
int stk_image_make_ready(const stk_engine *engine, const stk_image_prepare *how,
                         stk_image_want *wants, uint32_t n, stk_accel *accel,
                         stk_findings *findings, stk_err *err);

#endif
