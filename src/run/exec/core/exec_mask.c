/* Secrets: finds their values, and replaces them by stars in shown text. Data isn't changed. */
#include <stdlib.h>
#include <string.h>

#include "host/runner/runner_mask.h"
#include "run/exec/core/exec_loop.h"
#include "sys/file.h"

enum { CODE_MOST = 32 << 20 }; /* bytes of a document; the front writes much less */

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

/* --- the code of the steps --- */

static int add_masked_code(stk_exec *x, const stk_mask *mask, const char *json, size_t n,
                           stk_artifact *ret, stk_err *err)
{
    STK_BUF_AUTO masked = STK_BUF_INIT((size_t)2 * CODE_MOST);
    if (mask == NULL) {
        return stk_store_add_bytes(x->config.store, json, n, ret, err);
    }
    if (!stk_mask_json(mask, json, n, &masked) || masked.failed) {
        return stk_err_set(err, STK_E_PROTOCOL, "the document of the steps' code isn't JSON");
    }
    return stk_store_add_bytes(x->config.store, masked.data, masked.len, ret, err);
}

/* The values of all steps' secrets, NULL-terminated; NULL: out of memory. */
static const char *const *all_hidden(const stk_exec *x)
{
    size_t n = 0, most = 1;
    for (uint32_t i = 0; i < stk_spec_n_steps(x->spec); i++) {
        most += stk_spec_step(x->spec, i)->settings->n_secrets;
    }
    const char **values = stk_arena_array(x->scratch, most, sizeof *values);
    for (uint32_t i = 0; values != NULL && i < stk_spec_n_steps(x->spec); i++) {
        const char *const *own = stk_exec_hidden(stk_spec_step(x->spec, i)->settings, x->scratch);
        for (; own != NULL && *own != NULL; own++) {
            values[n++] = *own;
        }
    }
    return values;
}

int stk_exec_keep_code(stk_exec *x, char ret_digest[STK_DIGEST_HEX + 1], stk_err *err)
{
    STK_TEXT_AUTO json = NULL;
    size_t len = 0;
    stk_mask *mask = NULL;
    stk_artifact kept;
    *ret_digest = '\0';
    if (x->config.code_fd < 0) {
        return 0;
    }
    STK_TRY(
        stk_file_read_fd(x->config.code_fd, "the code of the steps", CODE_MOST, &json, &len, err));
    stk_file_close(&x->config.code_fd); /* no task inherits it */
    const char *const *values = all_hidden(x);
    STK_TRY(stk_err_if_null(values, err));
    STK_TRY(stk_mask_new(values, &mask, err));
    int rc = add_masked_code(x, mask, json, len, &kept, err);
    stk_mask_free(mask);
    if (rc == 0) {
        memcpy(ret_digest, kept.digest, sizeof kept.digest);
    }
    return rc;
}
