/* The parts of a build: the docker setting, requirements, context, Dockerfile. */
#ifndef STK_IMAGE_RECIPE_H
#define STK_IMAGE_RECIPE_H

#include "image/image_private.h"

/* --- the docker setting (image_settings.c) --- */

typedef struct stk_image_settings {
    const char *parent_image, *image_tag, *dockerfile, *build_context_root, *target_repository;
    const char *cache_mount, *pyproject_path, *requirements_file, *local_install, *user;
    const char *dockerignore; /* path, or NULL */
    bool skip_build, prevent_build_reuse, uses_uv, detects;
    const char *installer_args; /* quoted for a shell, with a blank before each; "": none */
    const char *source_args;    /* those that set package sources */
    const char *const *requirements, *const *integrations,
                                         *const *apt_packages; /* NULL-terminated */
    const stk_json *replicate;                                 /* boolean, text or list; or NULL */
    const stk_json *export_command;                            /* list, or NULL */
    const stk_json *environment;                               /* map, or NULL */
    const stk_json *build_options;                             /* map, or NULL */
} stk_image_settings;
/* `docker` may be NULL. STK_E_SPEC: a key of the wrong kind, or skip_build without parent_image. */
int stk_image_settings_read(const char *docker, stk_arena *arena, stk_image_settings *ret,
                            stk_err *err);
/* Does this line of requirements name ZenML itself, which the front replaces? */
bool stk_image_is_zenml(const char *line, size_t n);

/* --- requirements (image_requirements.c) --- */

typedef struct stk_image_packages {
    const char *file;  /* "requirements.txt" in the context */
    const char *title; /* "requirements", "the local environment": for a comment */
    const char *text;
} stk_image_packages;
enum { STK_IMAGE_PACKAGES = 8 };
/* Collects the packages in the order of installation. `notes` gets a line for each requirement left
 * out. Runs a program of the user's only if a setting names one. */
int stk_image_gather(const stk_image_recipe *recipe, const stk_image_settings *settings,
                     stk_arena *arena, stk_image_packages ret[STK_IMAGE_PACKAGES], uint32_t *ret_n,
                     stk_buf *notes, stk_err *err);

/* --- the context of a build (image_context.c) --- */

typedef struct stk_image_file {
    const char *name;   /* in the tar */
    const char *path;   /* on this host; NULL: see `text` */
    const char *text;   /* the content, if there is no path */
    const char *target; /* of a symbolic link, or NULL */
    uint32_t mode;      /* S_IFREG, S_IFDIR or S_IFLNK with 0644, 0755, 0777; private: 0600, 0700 */
    int64_t size;
} stk_image_file;
typedef struct stk_image_context {
    stk_arena *arena;
    stk_image_file *files; /* sorted by name */
    uint32_t n, cap;
    const char *left_out; /* names of the private files left out, at most STK_IMAGE_NAMED */
    uint32_t n_left_out;
} stk_image_context;
enum { STK_IMAGE_NAMED = 5 };
int stk_image_context_text(stk_image_context *context, const char *name, const char *text,
                           stk_err *err);
/* A program of this machine. */
int stk_image_context_program(stk_image_context *context, const char *name, const char *path,
                              stk_err *err);
/* Adds everything below `folder` under `prefix` ("" or "x/"), except what `ignore` matches (a file
 * of .dockerignore's patterns; NULL: the folder's own .dockerignore). Unless `with_private`, also
 * leaves out private files (sys/private.h) that no '!' pattern names. */
int stk_image_context_tree(stk_image_context *context, const char *folder, const char *prefix,
                           const char *ignore, bool with_private, stk_err *err);
void stk_image_context_sort(stk_image_context *context);
/* Adds names, modes and contents to `sha`. */
int stk_image_context_digest(const stk_image_context *context, stk_sha256 *sha, stk_err *err);
/* Writes a tar without times and owners to an unnamed file, and rewinds it. */
int stk_image_context_tar(const stk_image_context *context, int *ret_fd, stk_err *err);

/* .dockerignore (image_ignore.c). */
typedef struct stk_image_ignore {
    const char *const *patterns; /* normalised, '!' kept, NULL-terminated */
    bool has_exceptions;
} stk_image_ignore;
int stk_image_ignore_read(const char *text, stk_arena *arena, stk_image_ignore *ret, stk_err *err);
bool stk_image_is_ignored(const stk_image_ignore *ignore, const char *path);
/* Does a '!' pattern that starts its last part with no wildcard name the path or a folder above
 * it? */
bool stk_image_is_named(const stk_image_ignore *ignore, const char *path);

/* --- a parent without pip (image_uv.c) --- */

/* Lets uv of this machine install what the recipe names: found in PATH, or beside the user's
 * interpreter. An error with the code of `why`: there is none. */
int stk_image_take_uv(stk_image_recipe *recipe, const stk_err *why, stk_arena *arena, stk_err *err);

/* --- the whole recipe (image_dockerfile.c) --- */

/* The user's own Dockerfile in the context of the image built on it, so both builds share their
 * layers. */
#define STK_IMAGE_OWN ".stoker/Dockerfile"

struct stk_image_make {
    stk_image_settings settings;
    stk_buf dockerfile;        /* the caller frees it */
    stk_image_context context; /* includes the Dockerfile */
    stk_image_packages packages[STK_IMAGE_PACKAGES];
    uint32_t n_packages;
    const char *own;   /* the user's Dockerfile, if packages are added on top; or NULL */
    const char *tag;   /* 40 digits */
    bool adds_nothing; /* the parent itself is the result */
};
int stk_image_make_read(const stk_image_recipe *recipe, stk_arena *arena, stk_image_make *ret,
                        stk_err *err);
/* Quotes text for a shell: 'text'. */
const char *stk_image_quote(const char *text, stk_arena *arena);

#endif
