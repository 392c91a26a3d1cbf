/* image: which image is that, does it fit this step and this host, and how is it made? Names,
 * registries, checks, Dockerfiles.
 *
 * Before the first task of a run each image is made ready (stk_image_make_ready): its name is
 * parsed, and it is looked for here. What isn't here is checked by the registry's manifest and
 * configuration before a layer is pulled. Where packages are asked for, a Dockerfile is written and
 * built, unless the tag that is the digest of all inputs is there. What a configuration can't tell
 * (how is its torch built?) a look inside tells, for steps with devices only; its answer is kept by
 * the image's id below ~/.cache/stoker/images. What an installation would replace is asked of the
 * resolver in a container of the parent.
 */
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
    const char *tag;    /* or NULL where a digest is given */
    const char *digest; /* "sha256:…", or NULL */
} stk_image_ref;
int stk_image_parse(const char *text, stk_arena *arena, stk_image_ref *ret, stk_err *err);
const char *stk_image_text(const stk_image_ref *ref, stk_arena *arena);

/* --- what it holds --- */

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
    const char *const *layers; /* digests, NULL where unknown */
    int64_t size_bytes;        /* -1 unknown; compressed where it is still in the registry */
} stk_image_config;

/* What its name and its configuration tell, without looking into it (tbl/images.def). */
typedef struct stk_image_facts {
    const char *family;    /* "PyTorch", "NGC": whose images these are; NULL unknown */
    const char *framework; /* "torch", "tensorflow", "jax"; NULL none or unknown */
    const char *version;   /* of the framework */
    const char *python;    /* "3.12" */
    int32_t cuda;          /* 12080 for 12.8; -1 unknown */
    enum {
        STK_IMAGE_FOR_UNKNOWN,
        STK_IMAGE_FOR_CPU,
        STK_IMAGE_FOR_NVIDIA,
        STK_IMAGE_FOR_AMD,
        STK_IMAGE_FOR_INTEL,
        STK_IMAGE_FOR_AWS,
        STK_IMAGE_FOR_GOOGLE
    } made_for;
    const char *source; /* where `made_for` and `cuda` are from: "its name", "its environment" */
} stk_image_facts;
/* `config` may be NULL: the name alone. 0, STK_E_SPEC (no name of an image), STK_E_NOMEM. */
int stk_image_facts_of(const char *name, const stk_image_config *config, stk_arena *arena,
                       stk_image_facts *ret, stk_err *err);
/* The image to take instead, with a CUDA that the driver runs (`major`: 12, 0 any): one of the same
 * family and registry, else one with `framework`; NULL: none known. */
const char *stk_image_suggest(const char *name, const char *framework, int32_t major,
                              stk_arena *arena);

/* From the container engine; STK_E_NOT_FOUND: it isn't here. */
int stk_image_local(const stk_engine *engine, const char *text, stk_arena *arena,
                    stk_image_config *ret, stk_err *err);
/* From its registry, by manifest and config, no layer pulled. Credentials as Docker keeps them
 * (config.json, credsStore, credHelpers, REGISTRY_AUTH_FILE, Podman's auth.json). 401, 404 and 429
 * are told apart, each with its way out. */
int stk_image_remote(const stk_image_ref *ref, const char *arch, stk_arena *arena,
                     stk_image_config *ret, stk_err *err);
/* The value of X-Registry-Auth for this registry, or NULL where there are no credentials. */
int stk_image_auth(const char *registry, stk_arena *arena, const char **ret, stk_err *err);
/* Pulls; lines of progress to `say` (may be NULL). */
int stk_image_pull(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, stk_err *err);
int stk_image_push(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, const char **ret_digest, stk_arena *arena, stk_err *err);

/* --- does it fit (image_check.c, image_require.c; pure) --- */

/* NVIDIA_REQUIRE_CUDA: "cuda>=12.8 brand=tesla,driver>=535,driver<536 …": blanks are OR, commas
 * AND. -1: can't be told (something isn't known); 0 no, 1 yes. `why`: the sentence where no. */
int stk_image_require(const char *text, const char *cuda, const char *driver, const char *brand,
                      const char *arch, char *why, size_t size);

/* This host's architecture in Docker's words: "amd64", "arm64". */
const char *stk_image_arch(void);

/* What steps do with an image. */
typedef struct stk_image_use {
    bool devices;            /* one of them was granted some */
    bool python;             /* one of them is a Python function */
    const char *const *uses; /* frameworks that they were seen to import */
    uint32_t n_uses;
    const char *arch; /* of the engine's host: "amd64"; NULL: this one's */
} stk_image_use;
/* Architecture, Python, CUDA_VERSION and NVIDIA_REQUIRE_CUDA against the host's driver
 * (minor-version and forward compatibility), images made for no device or another vendor's; what
 * keeps a step with devices from them is an ERROR, its remedy names an image that would fit. */
int stk_image_check(const stk_image_config *image, const char *name, const stk_accel *accel,
                    const stk_image_use *use, stk_findings *findings, stk_err *err);

/* --- how it is made (image_dockerfile.c, image_build.c) --- */

typedef struct stk_image_recipe {
    const char *docker; /* the setting, JSON (docs/formats/spec.md, "Images") */
    const char *parent; /* mapped reference the Dockerfile begins with; NULL: its own dockerfile */
    const char *parent_id; /* "sha256:…": what that is now, part of the tag; NULL: unknown */
    const char *folder;    /* of the spec: relative paths are below it */
    const char *python;    /* the user's, for replicate_local_python_environment; or NULL */
    const char *registry;  /* the stack's: built images are pushed there; or NULL */
    bool without_mounts;   /* Docker's own API builds without BuildKit: no cache mounts */
} stk_image_recipe;
/* Does this setting (NULL: none) ask for anything to be built: packages, a dockerfile …? `zenml`
 * among the requirements asks for nothing. */
bool stk_image_builds(const char *docker);
/* The Dockerfile, readable, into `buf`; *ret_tag: digest of all that goes in (40 hex digits).
 * STK_E_SPEC: a setting that makes no sense; STK_E_NOT_FOUND: a file that it names. */
int stk_image_dockerfile(const stk_image_recipe *recipe, stk_arena *arena, stk_buf *buf,
                         const char **ret_tag, stk_err *err);
typedef struct stk_image_result {
    const char *id;
    const char *pinned; /* "registry/repository@sha256:…" where it was pushed, else NULL */
    const char *note;   /* what was left out of it as private (sys/private.h), or NULL */
    bool was_built;     /* just now */
} stk_image_result;
/* Builds it unless it is there; log to `log_path`, its lines to `say`. A requirement that would
 * replace the parent's CUDA build of torch, TensorFlow or JAX is refused (STK_E_RESOURCES). */
int stk_image_build(const stk_engine *engine, const stk_image_recipe *recipe, const char *log_path,
                    stk_image_say *say, void *arg, stk_arena *arena, stk_image_result *ret,
                    stk_err *err);

/* What these inputs were built to earlier; STK_E_NOT_FOUND: they weren't. `ret_note` as the note of
 * a build, also where they weren't: what stays out of it as private. */
int stk_image_built(const stk_engine *engine, const stk_image_recipe *recipe, stk_arena *arena,
                    stk_image_config *ret, const char **ret_note, stk_err *err);

/* --- what is in it (image_look.c): a container of it that reads files, no program of it runs ---
 */

typedef struct stk_image_contents {
    const char *python; /* version, "3.11.2"; NULL: none in its PATH */
    const char *python_path;
    stk_framework frameworks[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n_frameworks;
    const char *nvcc;    /* CUDA's release as its toolkit says: "12.8"; NULL: no toolkit */
    const char *libcuda; /* path of the driver's library in the container; NULL: none */
    bool compat;         /* NVIDIA's forward compatibility package is in it */
} stk_image_contents;
/* Kept per image id, since what an id means never changes; `with_gpus`: looked at anew, in a
 * container that gets all of NVIDIA's devices (an error where the engine can't pass them). The
 * engine must have the image. */
int stk_image_look_inside(const stk_engine *engine, const char *id, bool with_gpus,
                          stk_arena *arena, stk_image_contents *ret, stk_err *err);
/* The same for where we are: what `stoker doctor --facts` prints, one line of JSON, into `out`. */
int stk_image_facts_here(stk_arena *arena, stk_buf *out, stk_err *err);

/* --- before the first task (image_prepare.c) --- */

/* An image of a run: once for every different (image, docker setting). */
typedef struct stk_image_want {
    const char *step;      /* the first step that runs in it, for sentences */
    const char *image;     /* mapped reference (stk_place.image), or NULL: its own dockerfile */
    const char *docker;    /* the docker setting (JSON), or NULL */
    stk_image_use use;     /* of all steps that run in it; `arch` may be NULL */
    bool allows_cpu_build; /* STOKER_ALLOW_CPU_BUILD: errors about devices become warnings */
    /* results, in the arena of `findings` */
    const char *id;     /* "sha256:…", what task.json's container.image is */
    const char *pinned; /* "registry/repository@sha256:…" where a registry knows it, else NULL */
    const char *workdir, *user;    /* of the image, "" where it says none */
    const char *const *env;        /* of the image, NULL-terminated */
    const char *const *entrypoint; /* of the image, NULL-terminated, or NULL */
    bool was_pulled, was_built;
} stk_image_want;

typedef struct stk_image_prepare {
    const char *folder;   /* of the spec */
    const char *python;   /* the user's interpreter, or NULL */
    const char *registry; /* the stack's, or NULL */
    const char *logs;     /* folder for build logs (build-<tag>.log), made when needed */
    stk_image_say *say;   /* lines of progress, or NULL */
    void *arg;
} stk_image_prepare;
/* For each: is it here? Else its registry is asked, it is checked and pulled. Built where packages
 * are asked for. Findings as preflight's, all of them; the first ERROR is also the error
 * (STK_E_RESOURCES, "step 'x': …"), before anything is pulled where that can be told. */
int stk_image_make_ready(const stk_engine *engine, const stk_image_prepare *how,
                         stk_image_want *wants, uint32_t n, stk_accel *accel,
                         stk_findings *findings, stk_err *err);

#endif
