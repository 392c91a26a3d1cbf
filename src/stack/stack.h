/* stack: where do steps run, and in which image? `stoker.yaml` and the choice for one step.
 */
#ifndef STK_STACK_H
#define STK_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "spec/spec.h"

typedef enum { STK_PLACE_LOCAL, STK_PLACE_DOCKER } stk_place_kind;

typedef struct stk_stack {
    const char *name; /* "local", "docker", or as in the file */
    const char *file; /* stoker.yaml, or NULL: a stack of defaults */
    stk_place_kind kind;
    const char *default_image; /* or NULL */
    const stk_pair *image_map; /* prefix → replacement, longest prefix first */
    uint32_t n_image_map;
    const char *registry; /* built images are pushed there, or NULL */
    const char *socket;   /* of the container engine, or NULL */
} stk_stack;

/* The stack of this name for a project: `stoker.yaml` in `folder` or above it, else the built-in
 * ones. NULL: "local". STK_E_NOT_FOUND with a did-you-mean and what there is; STK_E_SPEC with
 * file:line for a wrong file. Texts live in `arena`. */
int stk_stack_find(const char *folder, const char *name, stk_arena *arena, stk_stack *ret,
                   stk_err *err);

/* Where one step runs. */
typedef struct stk_place {
    stk_place_kind kind;
    const char *image;   /* mapped; NULL: local, or its own dockerfile is built */
    const char *written; /* as the user wrote it */
    const char *source;  /* "the step", "stack 'x'": who named it */
    const char *docker;  /* the step's docker setting (JSON), or NULL */
    const char *options; /* its options for the backend (JSON object), or NULL */
    const char *note; /* a sentence for the user, or NULL ("… has no image, it runs locally") */
} stk_place;

/* Pure. STK_E_SPEC: the step names a backend that isn't there, or docker without any image. */
int stk_stack_place(const stk_stack *stack, const char *step, const stk_settings *settings,
                    stk_arena *arena, stk_place *ret, stk_err *err);
/* The longest prefix that fits, replaced; `image` itself where none does. */
const char *stk_stack_map(const stk_stack *stack, const char *image, stk_arena *arena);

#endif
