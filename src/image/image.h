/* image: which image is that, does it fit this step and this host, and how is it made? Names,
 * registries, checks, Dockerfiles.
 */
#ifndef STK_IMAGE_H
#define STK_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "contain/contain.h"
#include "preflight/preflight.h"

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

typedef struct stk_image_config {
    const char *id;                             /* "sha256:…" of the config */
    const char *digest;                         /* of the manifest, or NULL */
    const char *arch, *os;                      /* "amd64", "linux" */
    const char *const *env;                     /* "K=V", NULL-terminated */
    const char *const *entrypoint, *const *cmd; /* NULL-terminated */
    const char *user, *workdir;
    const char *const *labels; /* "k=v" */
    const char *const *layers; /* digests, NULL where unknown */
    int64_t size_bytes;        /* -1 unknown; compressed where it is still in the registry */
} stk_image_config;

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
int stk_image_pull(const stk_engine *engine, const stk_image_ref *ref,
                   void (*say)(void *arg, const char *line), void *arg, stk_err *err);
int stk_image_push(const stk_engine *engine, const stk_image_ref *ref,
                   void (*say)(void *arg, const char *line), void *arg, const char **ret_digest,
                   stk_arena *arena, stk_err *err);

/* --- does it fit (image_check.c, image_require.c; pure) --- */

/* NVIDIA_REQUIRE_CUDA: "cuda>=12.8 brand=tesla,driver>=535,driver<536 …": blanks are OR, commas
 * AND. -1: can't be told (something isn't known); 0 no, 1 yes. `why`: the sentence where no. */
int stk_image_require(const char *text, const char *cuda, const char *driver, const char *brand,
                      const char *arch, char *why, size_t size);
/* Architecture, CUDA_VERSION and NVIDIA_REQUIRE_CUDA against the host's driver (minor-version and
 * forward compatibility), CPU-only images for a step with devices, known families with the CUDA
 * that would fit (tbl/images.def). `wants_devices`: the step was granted some. */
int stk_image_check(const stk_image_config *image, const char *name, const stk_accel *accel,
                    bool wants_devices, stk_findings *findings, stk_err *err);

/* --- how it is made (image_dockerfile.c, image_build.c) --- */

typedef struct stk_image_recipe {
    const char *docker; /* the setting, JSON (docs/contracts.md: DockerSettings' keys) */
    const char *parent; /* mapped reference the Dockerfile begins with; NULL: its own dockerfile */
    const char *folder; /* of the spec: relative paths are below it */
    const char *python; /* the user's, for replicate_local_python_environment; or NULL */
} stk_image_recipe;
/* Does this setting ask for anything to be built (packages, a dockerfile …)? */
bool stk_image_builds(const char *docker);
/* The Dockerfile, readable, into `buf`; *ret_tag: digest of all that goes in (40 hex digits). */
int stk_image_dockerfile(const stk_image_recipe *recipe, stk_arena *arena, stk_buf *buf,
                         const char **ret_tag, stk_err *err);
/* Builds it unless it is there; log to `log_path`, its lines to `say`. A requirement that would
 * replace the parent's CUDA build of torch, TensorFlow or JAX is refused (STK_E_RESOURCES). */
int stk_image_build(const stk_engine *engine, const stk_image_recipe *recipe, const char *log_path,
                    void (*say)(void *arg, const char *line), void *arg, stk_arena *arena,
                    const char **ret_id, stk_err *err);

#endif
