/* What a container gets of the machine besides the step's own files: `volumes`, `mounts`, `tmpfs`
 * and `devices`, in the forms of docker-py and of Docker's command line. */
#include <ctype.h>
#include <string.h>

#include "base/text.h"
#include "model/spec/spec_read.h"

static const char no_memory[] = "short enough for this machine's memory";

static const char *append_volume(stk_spec_volumes *list, stk_arena *arena, stk_spec_volume one)
{
    stk_spec_volume *items = stk_arena_grow(arena, list->items, list->n, sizeof *items, &list->cap);
    if (items == NULL) {
        return no_memory;
    }
    list->items = items;
    items[list->n++] = one;
    return NULL;
}

/* Words of a volume's mode. Labels of SELinux (z, Z) have no effect: containers run without them.
 */
static bool read_mode(const char *mode, bool *ret_write)
{
    static const char *const known[] = {"rw", "ro", "z", "Z", "cached", "delegated", "consistent"};
    while (*mode != '\0') {
        size_t n = strcspn(mode, ","), i = 0;
        while (i < sizeof known / sizeof *known &&
               (strlen(known[i]) != n || strncmp(known[i], mode, n) != 0)) {
            i++;
        }
        if (i == sizeof known / sizeof *known) {
            return false;
        }
        *ret_write = i == 1 ? false : *ret_write;
        mode += n + (mode[n] == ',');
    }
    return true;
}

static bool is_name(const char *text)
{
    return isalnum((unsigned char)text[0]) != 0 &&
           text[strspn(
               text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] == '\0';
}

static const char *add_bind(stk_spec_volumes *list, stk_arena *arena, const char *from,
                            const char *to, const char *mode)
{
    stk_spec_volume one = {.kind = "bind", .from = from, .to = to, .how = "", .write = true};
    if (from == NULL || (from[0] != '/' && !is_name(from))) {
        return "an absolute path or a volume's name, then where it is inside";
    }
    if (from[0] != '/') {
        one.kind = "volume";
    }
    if (to == NULL || to[0] != '/' || to[1] == '\0') {
        return "a place inside that is an absolute path below /";
    }
    if (mode != NULL && !read_mode(mode, &one.write)) {
        return "of mode ro or rw";
    }
    return append_volume(list, arena, one);
}

/* "FROM:TO[:MODE]" */
static const char *add_written(stk_spec_volumes *list, stk_arena *arena, const char *text)
{
    char *from = stk_arena_dup(arena, stk_text_or(text, ""));
    if (from == NULL) {
        return no_memory;
    }
    char *to = strchr(from, ':');
    if (to == NULL) {
        return "written as FROM:TO or FROM:TO:ro";
    }
    *to++ = '\0';
    char *mode = strchr(to, ':');
    if (mode != NULL) {
        *mode++ = '\0';
    }
    return add_bind(list, arena, from, to, mode);
}

/* {FROM: TO}, {FROM: {bind: TO, mode: ro}}, ["FROM:TO:ro"] */
static const char *add_volumes(stk_spec_volumes *list, stk_arena *arena, const stk_json *value)
{
    const char *wrong = NULL;
    if (!stk_json_is_map(value) && !stk_json_is_list(value)) {
        return "a list of texts like FROM:TO:ro, or a mapping";
    }
    for (uint32_t i = 0; i < stk_json_n_items(value) && wrong == NULL; i++) {
        wrong = add_written(list, arena, stk_json_text(&value->items[i]));
    }
    for (uint32_t i = 0; i < stk_json_n_members(value) && wrong == NULL; i++) {
        const stk_json *one = stk_json_value(value, i);
        const char *to = stk_json_text(one);
        to = to != NULL ? to : stk_json_get_text(one, "bind");
        wrong =
            add_bind(list, arena, stk_json_key(value, i)->text, to, stk_json_get_text(one, "mode"));
    }
    return wrong;
}

static const stk_json *either(const stk_json *map, const char *a, const char *b)
{
    const stk_json *value = stk_json_get(map, a);
    return value != NULL ? value : stk_json_get(map, b);
}

/* docker-py's Mount is a mapping with Docker's own words. */
static const char *add_mounts(stk_spec_volumes *list, stk_arena *arena, const stk_json *value)
{
    const char *wrong = NULL;
    if (!stk_json_is_list(value)) {
        return "a list of mappings like {source: /data, target: /data, type: bind}";
    }
    for (uint32_t i = 0; i < value->n && wrong == NULL; i++) {
        const stk_json *one = &value->items[i];
        const char *type = stk_json_text(either(one, "type", "Type"));
        const char *to = stk_json_text(either(one, "target", "Target"));
        const char *from = stk_json_text(either(one, "source", "Source"));
        bool reads = stk_json_is_true(either(one, "read_only", "ReadOnly"));
        type = stk_text_or(type, from != NULL && from[0] == '/' ? "bind" : "volume");
        if (strcmp(type, "tmpfs") == 0 && to != NULL && to[0] == '/') {
            wrong =
                append_volume(list, arena, (stk_spec_volume){.kind = "tmpfs", .to = to, .how = ""});
        } else if (strcmp(type, "bind") == 0 || strcmp(type, "volume") == 0) {
            wrong = add_bind(list, arena, from, to, reads ? "ro" : NULL);
        } else {
            wrong = "a list of mappings like {source: /data, target: /data, type: bind}";
        }
    }
    return wrong;
}

/* {TO: "size=64m"}, [TO, "TO:size=64m"] */
static const char *add_tmpfs(stk_spec_volumes *list, stk_arena *arena, const stk_json *value)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_is_map(value) ? value->n : stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *to = items == NULL ? stk_json_key(value, i)->text : stk_json_text(&items[i]);
        const char *how = items == NULL ? stk_json_text(stk_json_value(value, i)) : "";
        if (to == NULL || to[0] != '/') {
            return "absolute paths inside, like {/scratch: size=1g}";
        }
        const char *colon = items == NULL ? NULL : strchr(to, ':');
        if (colon != NULL) {
            how = colon + 1;
            to = stk_arena_dupn(arena, to, (size_t)(colon - to));
        }
        const char *wrong = to == NULL ? no_memory : NULL;
        if (wrong == NULL) {
            wrong = append_volume(
                list, arena,
                (stk_spec_volume){.kind = "tmpfs", .to = to, .how = stk_text_or(how, "")});
        }
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

/* "/dev/x", "/dev/x:/dev/y", "/dev/x:/dev/y:r", "vendor.com/class=name" */
static const char *add_devices(stk_spec_volumes *list, stk_arena *arena, const stk_json *value)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = stk_json_text(&items[i]);
        char *from = text == NULL ? NULL : stk_arena_dup(arena, text);
        stk_spec_volume one = {.kind = "device", .from = from, .to = from, .how = "rwm"};
        if (from == NULL || (from[0] != '/' && (strchr(from, '/') == NULL ||
                                                strchr(strchr(from, '/'), '=') == NULL))) {
            return "a list of devices like /dev/fuse, /dev/x:/dev/y:rw or nvidia.com/gpu=0";
        }
        char *colon = strchr(from, ':');
        if (from[0] != '/') {
            one.kind = "cdi";
            one.to = NULL;
        } else if (colon != NULL) {
            *colon = '\0';
            one.to = colon + 1;
            colon = strchr(colon + 1, ':');
        }
        if (one.to != NULL && colon != NULL && *colon == ':') {
            *colon = '\0';
            one.how = colon + 1;
        }
        if (one.to != NULL && (one.to[0] != '/' || one.how[strspn(one.how, "rwm")] != '\0')) {
            return "a list of devices like /dev/fuse, /dev/x:/dev/y:rw or nvidia.com/gpu=0";
        }
        const char *wrong = append_volume(list, arena, one);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

typedef const char *(*add_of)(stk_spec_volumes *list, stk_arena *arena, const stk_json *value);

static const struct {
    const char *key;
    add_of add;
} keys[] = {{"volumes", add_volumes},
            {"mounts", add_mounts},
            {"tmpfs", add_tmpfs},
            {"devices", add_devices}};

const char *stk_spec_add_volumes(const char *key, const stk_json *value, stk_arena *arena,
                                 stk_spec_volumes *list)
{
    size_t i = 0;
    while (strcmp(keys[i].key, key) != 0) {
        i++;
    }
    if (value == NULL) {
        return NULL;
    }
    return keys[i].add(list, arena, value);
}

int stk_spec_check_mounted(stk_spec_reader *r, const stk_json *node, const char *key)
{
    stk_spec_volumes list = {0};
    const char *wrong = stk_spec_add_volumes(key, node, r->arena, &list);
    if (wrong == NULL) {
        return 0;
    }
    return stk_spec_wrong(r, node, key, wrong);
}

const stk_json *stk_spec_docker_option(const stk_json *options, const char *key)
{
    const stk_json *own = stk_json_get(options, key);
    if (own == NULL || own->kind == STK_JSON_NULL) {
        own = stk_json_get(stk_json_get(options, "run_args"), key);
    }
    return own == NULL || own->kind == STK_JSON_NULL ? NULL : own;
}

bool stk_spec_all_volumes(const stk_json *options, stk_arena *arena, stk_spec_volumes *ret)
{
    bool has_tmp = false;
    *ret = (stk_spec_volumes){0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const stk_json *value = stk_spec_docker_option(options, keys[i].key);
        if (value != NULL && keys[i].add(ret, arena, value) != NULL) {
            return false;
        }
    }
    for (uint32_t i = 0; i < ret->n; i++) {
        has_tmp |= ret->items[i].to != NULL && strcmp(ret->items[i].to, "/tmp") == 0;
    }
    if (has_tmp || !stk_json_is_true(stk_spec_docker_option(options, "read_only"))) {
        return true;
    }
    /* every step may write to /tmp */
    return append_volume(ret, arena,
                         (stk_spec_volume){.kind = "tmpfs", .to = "/tmp", .how = "mode=1777"}) ==
           NULL;
}
