/* Makes the documents of a job without submitting it. */
#include <string.h>

#include "away/remote/remote_private.h"

static int hide_values(stk_arena *arena, stk_remote_job *job, stk_err *err)
{
    uint32_t n = 0;
    while (job->secret != NULL && job->secret[n] != NULL) {
        n++;
    }
    const char **secret = stk_arena_array(arena, (size_t)n + 1, sizeof *secret);
    STK_TRY(stk_err_if_null(secret, err));
    for (uint32_t i = 0; i < n; i++) {
        const char *pair = job->secret[i];
        secret[i] = stk_arena_printf(arena, "%.*s=(secret)", (int)strcspn(pair, "="), pair);
        STK_TRY(stk_err_if_null(secret[i], err));
    }
    job->secret = secret;
    return 0;
}

int stk_remote_preview(const stk_remote_config *config, const stk_job *job, stk_arena *arena,
                       const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    stk_backend *opened = NULL;
    remote_task *t = NULL;
    STK_TRY(stk_remote_open(config, &opened, err)); /* makes no requests */
    remote_backend *b = (remote_backend *)opened;
    int rc = stk_remote_task_new(b, job, &t, err);
    if (rc == 0) {
        rc = hide_values(arena, &t->job, err);
    }
    if (rc == 0) {
        rc = config->kind->manifest(&b->config.driver, &t->job, arena, ret_documents, ret_n, err);
    }
    stk_remote_task_free(t);
    opened->ops->close(opened);
    return rc;
}
