/* Secrets that a step let out: which values they are (runner_mask.c). */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_private.h"

void stk_exec_mask(const stk_settings *settings, const char *dir, stk_arena *arena)
{
    const char **values = settings->n_secrets == 0
                              ? NULL
                              : stk_arena_array(arena, settings->n_secrets, sizeof *values);
    uint32_t n = 0;
    for (uint32_t i = 0; values != NULL && i < settings->n_secrets; i++) {
        const char *name = stk_arena_printf(arena, "STOKER_SECRET_%s", settings->secrets[i]);
        const char *value = name == NULL ? NULL : getenv(name);
        if (value != NULL && strlen(value) >= STK_RUNNER_SHORTEST_SECRET) {
            values[n++] = value;
        }
    }
    stk_runner_mask(dir, values, n, arena);
}
