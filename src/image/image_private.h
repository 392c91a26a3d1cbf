/* What the files of the image room share. */
#ifndef STK_IMAGE_PRIVATE_H
#define STK_IMAGE_PRIVATE_H

#include "base/json.h"
#include "image/image.h"

/* The front runs in it (python/stoker/_worker.py). */
#define STK_IMAGE_OLDEST_PYTHON "3.7"

/* --- names and configurations --- */

/* "sha256:<64 digits>" alone: an id, not a name. */
bool stk_image_is_id(const char *text);
/* The value of a variable of its environment, or NULL. */
const char *stk_image_env(const stk_image_config *config, const char *name);

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
