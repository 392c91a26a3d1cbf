/* What a build is made of: the docker setting, requirements, its context, the Dockerfile. */
#ifndef STK_IMAGE_RECIPE_H
#define STK_IMAGE_RECIPE_H

#include "image/image_private.h"

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
