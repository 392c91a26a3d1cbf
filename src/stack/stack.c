/* Where steps run: `stoker.yaml`, and the choice for one step. */
#include "stack/stack.h"

#include <stdlib.h>
#include <string.h>

#include "spec/spec_read.h"
#include "spec/spec_yaml.h"
#include "sys/file.h"

enum { FILE_BYTES = 1 << 20, FILE_NODES = 20000, STACKS_MAX = 256, FILE_VERSION = 1 };

static const stk_json_limits file_limits = {FILE_BYTES, FILE_NODES, STK_LIMIT_DEPTH};
static const stk_json_limits setting_limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                               STK_LIMIT_DEPTH};

static const char *const built_in[] = {"local", "docker"};

static int no_memory(stk_err *err)
{
    return stk_err_set(err, STK_E_NOMEM, "out of memory");
}

/* --- the file --- */

enum { K_BACKEND, K_IMAGE, K_MAP, K_REGISTRY, K_SOCKET, K_N };
static const char *const stack_keys[K_N] = {[K_BACKEND] = "backend",
                                            [K_IMAGE] = "default_image",
                                            [K_MAP] = "image_map",
                                            [K_REGISTRY] = "registry",
                                            [K_SOCKET] = "socket"};

static int longer_first(const void *a, const void *b)
{
    size_t x = strlen(((const stk_pair *)a)->key);
    size_t y = strlen(((const stk_pair *)b)->key);
    return x != y ? (x > y ? -1 : 1)
                  : strcmp(((const stk_pair *)a)->key, ((const stk_pair *)b)->key);
}

static int read_map(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    int rc = stk_spec_read_map(r, node, "image_map");
    stk_pair *pairs = rc < 0 ? NULL : stk_arena_array(r->arena, node->n + 1, sizeof *pairs);
    if (rc < 0 || pairs == NULL) {
        return rc < 0 ? rc : no_memory(r->err);
    }
    for (uint32_t i = 0; i < node->n && rc == 0; i++) {
        const char *to = NULL;
        const stk_json *key = stk_json_key(node, i);
        rc = key->n == 0 ? stk_spec_fail(r, key, "image_map: an empty name fits every image")
                         : stk_spec_read_text(r, stk_json_value(node, i), key->text, &to);
        pairs[i] = (stk_pair){.key = key->text, .value = to};
    }
    if (rc == 0) {
        qsort(pairs, node->n, sizeof *pairs, longer_first);
        stack->image_map = pairs;
        stack->n_image_map = node->n;
    }
    return rc;
}

static int read_backend(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    if (stk_json_is(node, "docker")) {
        stack->kind = STK_PLACE_DOCKER;
    } else if (!stk_json_is(node, "local")) {
        return stk_spec_wrong(r, node, "backend", "docker or local");
    }
    return 0;
}

static int read_stack(stk_spec_reader *r, const stk_json *name, const stk_json *map, stk_stack *ret)
{
    stk_stack stack = {.name = name->text, .file = r->path};
    const stk_json *backend = stk_json_get(map, "backend");
    int rc = stk_spec_read_map(r, map, name->text);
    if (rc == 0 && (backend == NULL || backend->kind == STK_JSON_NULL)) {
        if (strcmp(name->text, "docker") != 0 && strcmp(name->text, "local") != 0) {
            return stk_spec_fail(r, name,
                                 "stack '%.80s' doesn't say its backend; add `backend: docker` "
                                 "or `backend: local`",
                                 name->text);
        }
        stack.kind = strcmp(name->text, "docker") == 0 ? STK_PLACE_DOCKER : STK_PLACE_LOCAL;
    }
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), stack_keys, K_N, name->text);
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        const char **texts[K_N] = {[K_IMAGE] = &stack.default_image,
                                   [K_REGISTRY] = &stack.registry,
                                   [K_SOCKET] = &stack.socket};
        rc = key == K_BACKEND ? read_backend(r, value, &stack)
             : key == K_MAP   ? read_map(r, value, &stack)
                              : stk_spec_read_text(r, value, stack_keys[key], texts[key]);
    }
    if (rc == 0) {
        *ret = stack;
    }
    return rc;
}

/* A file of blanks and comments only marks the project's folder. */
static bool says_nothing(const char *text)
{
    for (text += strspn(text, " \t\r\n"); *text == '#'; text += strspn(text, " \t\r\n")) {
        text += strcspn(text, "\n");
    }
    return *text == '\0';
}

/* All of it is read, whichever stack is asked for: a mistake is seen when it is made. */
static int read_file(stk_spec_reader *r, const stk_json *root, stk_stack *stacks, uint32_t *ret_n)
{
    static const char *const keys[] = {"stoker", "stacks"};
    int64_t version = FILE_VERSION;
    const stk_json *list = NULL;
    *ret_n = 0;
    if (root->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, root, "stoker.yaml is a mapping with `stacks`, not %s",
                             stk_json_kind_words(root->kind));
    }
    for (uint32_t i = 0; i < root->n; i++) {
        const stk_json *value = stk_json_value(root, i);
        int key = stk_spec_key(r, stk_json_key(root, i), keys, 2, NULL);
        int rc = key < 0                        ? key
                 : value->kind == STK_JSON_NULL ? 0
                 : key == 0 ? stk_spec_read_int(r, value, "stoker", 1, INT32_MAX, &version)
                            : stk_spec_read_map(r, value, "stacks");
        if (rc < 0) {
            return rc;
        }
        if (version > FILE_VERSION) {
            return stk_spec_fail_code(r, STK_E_VERSION, value,
                                      "the file is of format %lld; this Stoker reads format %d and "
                                      "older; upgrade Stoker",
                                      (long long)version, FILE_VERSION);
        }
        list = key == 1 && value->kind == STK_JSON_MAP ? value : list;
    }
    if (list != NULL && list->n > STACKS_MAX) {
        return stk_spec_fail_code(r, STK_E_LIMIT, list, "more than %d stacks", STACKS_MAX);
    }
    for (uint32_t i = 0; list != NULL && i < list->n; i++) {
        const stk_json *name = stk_json_key(list, i);
        int rc = read_stack(r, name, stk_json_value(list, i), &stacks[i]);
        if (rc < 0) {
            return rc;
        }
        *ret_n = i + 1;
    }
    return 0;
}

/* The nearest stoker.yaml at or above `folder`; *ret NULL: there is none. */
static int find_file(const char *folder, stk_arena *arena, const char **ret, stk_err *err)
{
    char *at = stk_arena_dup(arena, folder);
    *ret = NULL;
    while (at != NULL && *at != '\0') {
        char *slash = strrchr(at, '/');
        const char *path =
            stk_arena_printf(arena, "%s/stoker.yaml", strcmp(at, "/") == 0 ? "" : at);
        if (path == NULL) {
            return no_memory(err);
        }
        if (stk_file_exists(path)) {
            *ret = path;
            return 0;
        }
        if (slash == NULL) {
            break;
        }
        *slash = '\0';
    }
    return at == NULL ? no_memory(err) : 0;
}

static int not_there(const char *name, const char *file, const stk_stack *stacks, uint32_t n,
                     stk_arena *arena, stk_err *err)
{
    const char *names[STACKS_MAX + 2];
    STK_BUF_AUTO list = STK_BUF_INIT(400);
    uint32_t n_names = 0;
    for (uint32_t i = 0; i < n; i++) {
        names[n_names++] = stacks[i].name;
    }
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
        names[n_names++] = built_in[i];
    }
    for (uint32_t i = 0; i < n_names; i++) {
        stk_buf_printf(&list, "%s%.80s", i > 0 ? ", " : "", names[i]);
    }
    stk_err_set(err, STK_E_NOT_FOUND, "there is no stack '%.80s'; there are %.300s%s%.200s", name,
                list.data != NULL ? list.data : "local, docker", file != NULL ? " (of " : "",
                file != NULL ? stk_arena_printf(arena, "%s)", file) : "");
    stk_spec_reader r = {.arena = arena, .err = err};
    stk_spec_did_you_mean(&r, name, names, n_names);
    if (err != NULL && err->hint[0] == '\0') {
        stk_err_hint(err, "name one of these, or add it under `stacks` of a stoker.yaml");
    }
    return STK_E_NOT_FOUND;
}

int stk_stack_find(const char *folder, const char *name, stk_arena *arena, stk_stack *ret,
                   stk_err *err)
{
    const char *file = NULL;
    const char *want = name == NULL ? "local" : name;
    stk_stack *stacks = stk_arena_array(arena, STACKS_MAX, sizeof *stacks);
    uint32_t n = 0;
    int rc = stacks == NULL ? no_memory(err) : find_file(folder, arena, &file, err);
    if (rc == 0 && file != NULL) {
        STK_TEXT_AUTO text = NULL;
        size_t len = 0;
        stk_json root = {0};
        stk_spec_reader r = {.arena = arena, .path = file, .err = err};
        rc = stk_file_read(file, FILE_BYTES, &text, &len, err);
        if (rc == 0 && !says_nothing(text)) {
            rc = stk_spec_document_parse(text, len, file, &file_limits, arena, &root, err);
            rc = rc < 0 ? rc : read_file(&r, &root, stacks, &n);
        }
    }
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(stacks[i].name, want) == 0) {
            *ret = stacks[i];
            return 0;
        }
    }
    if (strcmp(want, "local") == 0 || strcmp(want, "docker") == 0) {
        *ret = (stk_stack){.name = stk_arena_dup(arena, want),
                           .kind = want[0] == 'd' ? STK_PLACE_DOCKER : STK_PLACE_LOCAL};
        return ret->name == NULL ? no_memory(err) : 0;
    }
    return not_there(want, file, stacks, n, arena, err);
}

/* --- one step --- */

const char *stk_stack_map(const stk_stack *stack, const char *image, stk_arena *arena)
{
    for (uint32_t i = 0; i < stack->n_image_map; i++) {
        const stk_pair *p = &stack->image_map[i];
        size_t n = strlen(p->key);
        bool part = strchr("/:@", p->key[n - 1]) != NULL || strchr("/:@", image[n]) != NULL;
        if (strncmp(image, p->key, n) == 0 && part) { /* `python` is no part of `pythonista` */
            return stk_arena_printf(arena, "%s%s", p->value, image + n);
        }
    }
    return image;
}

/* What a step says about its place and image. */
typedef struct wish {
    stk_json backend, docker; /* NULL nodes: nothing */
    const char *name;         /* its backend as a plain name */
    bool local, container;    /* it names them itself */
} wish;

static int parse(const char *json, stk_arena *arena, stk_json *ret, stk_err *err)
{
    return json == NULL
               ? 0
               : stk_json_parse(json, strlen(json), NULL, &setting_limits, arena, ret, err);
}

static int read_wish(const char *step, const stk_settings *settings, stk_arena *arena, wish *ret,
                     stk_err *err)
{
    /* Those that steps may name although only later versions have them: such a step runs where the
     * run does. */
    static const char *const later[] = {"kubernetes", "batch", "slurm"};
    wish w = {0};
    int rc = parse(settings->backend, arena, &w.backend, err);
    rc = rc < 0 ? rc : parse(settings->docker, arena, &w.docker, err);
    if (rc < 0) {
        return rc;
    }
    w.name = stk_json_text(&w.backend);
    w.container = stk_json_is(&w.backend, "docker") || stk_json_get(&w.backend, "docker") != NULL;
    w.local = !w.container &&
              (stk_json_is(&w.backend, "local") || stk_json_get(&w.backend, "local") != NULL);
    bool known = w.name == NULL || w.container || w.local;
    for (size_t i = 0; !known && i < sizeof later / sizeof *later; i++) {
        known = strcmp(w.name, later[i]) == 0;
    }
    if (!known) {
        static const char *const all[] = {"local", "docker", "kubernetes", "batch", "slurm"};
        stk_spec_reader r = {.arena = arena, .err = err};
        stk_err_set(err, STK_E_SPEC,
                    "step '%s': there is no backend '%.80s'; there are local and docker", step,
                    w.name);
        stk_spec_did_you_mean(&r, w.name, all, sizeof all / sizeof *all);
        return STK_E_SPEC;
    }
    *ret = w;
    return 0;
}

/* The image as somebody wrote it; NULL: nobody did. */
static const char *written_image(const wish *w, const stk_stack *stack, stk_arena *arena,
                                 const char **ret_source)
{
    static const char *const holders[] = {"docker", "kubernetes", "batch"};
    const char *image = stk_json_text(stk_json_get(&w->docker, "parent_image"));
    *ret_source = "the step";
    if (stk_json_text(stk_json_get(&w->docker, "dockerfile")) != NULL) {
        return NULL; /* which names its own parent */
    }
    for (size_t i = 0; image == NULL && i < sizeof holders / sizeof *holders; i++) {
        image = stk_json_text(stk_json_get(stk_json_get(&w->backend, holders[i]), "image"));
    }
    if (image == NULL && stack->default_image != NULL) {
        image = stack->default_image;
        *ret_source = stk_arena_printf(arena, "stack '%s'", stack->name);
    }
    return image;
}

int stk_stack_place(const stk_stack *stack, const char *step, const stk_settings *settings,
                    stk_arena *arena, stk_place *ret, stk_err *err)
{
    wish w = {0};
    int rc = read_wish(step, settings, arena, &w, err);
    if (rc < 0) {
        return rc;
    }
    stk_place place = {.docker = settings->docker};
    bool wanted = w.container || (!w.local && stack->kind == STK_PLACE_DOCKER);
    if (!wanted) {
        *ret = place;
        return 0;
    }
    place.written = written_image(&w, stack, arena, &place.source);
    bool builds = stk_json_text(stk_json_get(&w.docker, "dockerfile")) != NULL;
    if (place.written == NULL && !builds && w.container) {
        stk_err_set(err, STK_E_SPEC, "step '%s' is to run in a container, but no image is named",
                    step);
        stk_err_hint(err, "give it `docker: {parent_image: …}`, or its stack a default_image");
        return STK_E_SPEC;
    }
    const stk_json *options = stk_json_get(&w.backend, "docker");
    if (options != NULL && options->kind == STK_JSON_MAP && options->n > 0) {
        place.options = stk_json_dump_in(options, arena);
        rc = place.options == NULL ? no_memory(err) : 0;
    }
    const char *unused = stk_spec_unused_run_arg(stk_json_get(options, "run_args"));
    if (unused != NULL) {
        place.note =
            stk_arena_printf(arena, "step '%s': run_args: '%s' has no effect here", step, unused);
        rc = place.note == NULL ? no_memory(err) : rc;
    }
    if (place.written == NULL && !builds) {
        place = (stk_place){.docker = settings->docker};
        place.note = stk_arena_printf(arena,
                                      "step '%s' names no image and stack '%s' has no "
                                      "default_image: it runs on this machine itself",
                                      step, stack->name);
        rc = place.note == NULL ? no_memory(err) : 0;
    } else {
        place.kind = STK_PLACE_DOCKER;
        place.image = place.written == NULL ? NULL : stk_stack_map(stack, place.written, arena);
        rc = place.written != NULL && place.image == NULL ? no_memory(err) : rc;
    }
    if (rc == 0) {
        *ret = place;
    }
    return rc;
}
