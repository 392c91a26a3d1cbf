/* An image of one layer that Stoker makes itself, and how it gets to a registry or an engine. */
#ifndef STK_IMAGE_BUNDLE_H
#define STK_IMAGE_BUNDLE_H

#include "image/image_private.h"

#define STK_IMAGE_MANIFEST "application/vnd.oci.image.manifest.v1+json"

typedef struct stk_image_blob {
    const unsigned char *data;
    size_t len;
    const char *digest; /* "sha256:…" */
} stk_image_blob;

typedef struct stk_image_bundle {
    stk_image_blob plain;  /* the layer's tar archive */
    stk_image_blob layer;  /* as it is pushed: with gzip where zlib is here */
    stk_image_blob config; /* its digest is the image's id */
    stk_image_blob manifest;
} stk_image_bundle;

/* Makes the image of the archive `tar`, for this machine's architecture. The same archive gives the
 * same image. In `arena`. */
int stk_image_bundle_make(const char *tar, const char *const *entrypoint, stk_arena *arena,
                          stk_image_bundle *ret, stk_err *err);
/* Writes it as `docker save` does, which `docker load`, `podman load`, `ctr images import` and
 * `kind load image-archive` read. */
int stk_image_bundle_save(const stk_image_bundle *bundle, const char *name, const char *path,
                          stk_err *err);
/* image_upload.c: pushes it straight to its registry, without what is there already. */
int stk_image_bundle_push(const stk_image_bundle *bundle, const stk_image_ref *ref,
                          stk_arena *arena, stk_err *err);

#endif
