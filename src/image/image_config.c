/* An image's configuration, as OCI's document and Docker's API have it. */

#include "image/image_private.h"

static const char *config_text(const stk_json *map, const char *key, stk_arena *arena)
{
    return stk_arena_dup(arena, stk_json_get_text(map, key));
}

/* NULL where it isn't there. */
static const char *const *config_list(const stk_json *map, const char *key, stk_arena *arena)
{
    const stk_json *list = stk_json_get(map, key);
    if (!stk_json_is_list(list)) {
        return NULL;
    }
    const char **texts = stk_arena_array(arena, (size_t)list->n + 1, sizeof *texts);
    uint32_t n = 0;
    for (uint32_t i = 0; texts != NULL && i < list->n; i++) {
        const char *text = stk_json_text(&list->items[i]);
        if (text != NULL) {
            texts[n++] = stk_arena_dup(arena, text);
        }
    }
    return texts;
}

static const char *const *pairs_of(const stk_json *map, const char *key, stk_arena *arena)
{
    const stk_json *pairs = stk_json_get(map, key);
    uint32_t n = 0, k = 0;
    if (stk_json_is_map(pairs)) {
        n = pairs->n;
    }
    const char **texts = stk_arena_array(arena, (size_t)n + 1, sizeof *texts);
    for (uint32_t i = 0; texts != NULL && i < n; i++) {
        const char *value = stk_json_text(stk_json_value(pairs, i));
        if (value != NULL) {
            texts[k++] = stk_arena_printf(arena, "%s=%s", stk_json_key(pairs, i)->text, value);
        }
    }
    return texts;
}

int stk_image_config_read(const stk_json *outer, const stk_json *config, stk_arena *arena,
                          stk_image_config *ret, stk_err *err)
{
    bool docker = stk_json_get(outer, "Architecture") != NULL;
    const char *const *env = config_list(config, "Env", arena);
    ret->arch = config_text(outer, docker ? "Architecture" : "architecture", arena);
    ret->os = config_text(outer, docker ? "Os" : "os", arena);
    ret->env = env;
    if (env == NULL) {
        ret->env = stk_arena_alloc(arena, sizeof *env);
    }
    ret->entrypoint = config_list(config, "Entrypoint", arena);
    ret->user = config_text(config, "User", arena);
    ret->workdir = config_text(config, "WorkingDir", arena);
    ret->labels = pairs_of(config, "Labels", arena);
    STK_TRY(stk_err_need(ret->env, "for an image's configuration", err));
    return stk_err_need(ret->labels, "for an image's configuration", err);
}
