/* Secrets: finds their values, and replaces them by stars in shown text. Data isn't changed. */
#include <stdlib.h>

#include "host/runner/runner_mask.h"
#include "run/exec/core/exec_loop.h"

const char *const *stk_exec_hidden(const stk_settings *settings, stk_arena *arena)
{
    const char **values = NULL;
    uint32_t n = 0;
    if (settings->n_secrets > 0) {
        values = stk_arena_array(arena, (size_t)settings->n_secrets + 1, sizeof *values);
    }
    for (uint32_t i = 0; values != NULL && i < settings->n_secrets; i++) {
        const char *name = stk_arena_printf(arena, "STOKER_SECRET_%s", settings->secrets[i]);
        const char *value = name == NULL ? NULL : getenv(name);
        if (value != NULL) {
            values[n++] = value;
        }
    }
    return n > 0 ? values : NULL;
}

const char *stk_exec_hide(const stk_settings *settings, const char *text, stk_arena *arena)
{
    stk_mask *mask = NULL;
    const char *hidden = NULL;
    if (text == NULL || settings->n_secrets == 0) {
        return text;
    }
    const char *const *values = stk_exec_hidden(settings, arena);
    if (values == NULL) {
        return stk_arena_dup(arena, text);
    }
    if (stk_mask_new(values, &mask, NULL) == 0) {
        hidden = stk_mask_text(mask, text, arena);
    }
    stk_mask_free(mask);
    return hidden;
}

void stk_exec_hide_in_cards(const stk_settings *settings, const char *dir, stk_arena *arena)
{
    const char *const *values = stk_exec_hidden(settings, arena);
    stk_mask *mask = NULL;
    if (values != NULL && stk_mask_new(values, &mask, NULL) == 0) {
        (void)stk_mask_in_cards(mask, dir, arena, NULL); /* an unreadable card isn't shown */
    }
    stk_mask_free(mask);
}
