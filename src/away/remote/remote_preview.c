/* What a job would be submitted as, without submitting it. */
#include <string.h>

#include "away/remote/remote_private.h"

int stk_remote_preview(const stk_remote_config *config, const stk_job *job, stk_arena *arena,
                       const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    stk_backend *opened = NULL;
    remote_task *t = NULL;
    int rc = stk_remote_open(config, &opened, err); /* asks nothing */
    if (rc < 0) {
        return rc;
    }
    remote_backend *b = (remote_backend *)opened;
    rc = stk_remote_task_new(b, job, &t, err);
    const char **secret = NULL;
    uint32_t n = 0;
    if (rc == 0) {
        while (t->job.secret != NULL && t->job.secret[n] != NULL) {
            n++;
        }
        secret = stk_arena_array(arena, (size_t)n + 1, sizeof *secret);
        rc = secret == NULL ? stk_err_nomem(err) : 0;
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) { /* their values are nobody's to see */
        const char *pair = t->job.secret[i];
        secret[i] = stk_arena_printf(arena, "%.*s=(secret)", (int)strcspn(pair, "="), pair);
        rc = secret[i] == NULL ? stk_err_nomem(err) : 0;
    }
    if (rc == 0) {
        t->job.secret = secret;
        rc = config->kind->manifest(&b->config.driver, &t->job, arena, ret_documents, ret_n, err);
    }
    stk_remote_task_free(t);
    opened->ops->close(opened);
    return rc;
}
