/* A driver that runs nothing: for `stoker export slurm-script`, which lets the engine order every
 * step as in a run (run/run_export.h). Each job becomes a batch script in the share, and ends at
 * once. Its outputs are stand-ins: digests that belong to nothing, by which the orders of later
 * steps name them. The agent replaces them by what the step has made (agent_refs.c). */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/remote/remote_order.h"
#include "away/slurm/slurm.h"
#include "away/slurm/slurm_private.h"
#include "base/limits.h"
#include "base/text.h"

typedef struct export_job {
    uint32_t id, attempt;
} export_job;

typedef struct export_driver {
    stk_driver base;
    stk_driver_config config;
    stk_share *share;
    export_job *ended; /* not reported yet */
    uint32_t n, cap;
} export_driver;

/* refs/<digest> says whose output the digest stands for; an object at the artifact's key lets later
 * steps be ordered. */
static int put_stand_in(const export_driver *d, const char *key, const char *name, stk_buf *result,
                        stk_err *err)
{
    char digest[STK_DIGEST_HEX + 1];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO ref = STK_BUF_INIT(4096);
    const char *words = stk_arena_printf(arena, "stoker export %s/%s", key, name);
    STK_TRY(stk_err_if_null(words, err));
    stk_digest_of(words, strlen(words), digest);
    stk_json_open(&ref, NULL, '{');
    stk_json_put_text(&ref, "key", key);
    stk_json_put_text(&ref, "output", name);
    stk_json_close(&ref, '}');
    STK_TRY(stk_buf_check(&ref, err));
    const char *at = stk_arena_printf(arena, "refs/%s", digest);
    const char *artifact = stk_arena_printf(arena, "artifacts/%.2s/%s", digest, digest + 2);
    STK_TRY(stk_share_put(d->share, at, ref.data, ref.len, false, err));
    STK_TRY(stk_share_put(d->share, artifact, "", 0, false, err));
    stk_json_open(result, name, '{');
    stk_json_put_text(result, "path", stk_arena_printf(arena, "out/%s", name));
    stk_json_put_text(result, "digest", digest);
    stk_json_put_int(result, "size", 0);
    stk_json_close(result, '}');
    return 0;
}

static int put_result(const export_driver *d, const stk_remote_job *job, stk_arena *arena,
                      stk_buf *result, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    stk_remote_order order;
    const char *at = stk_arena_printf(arena, "%s/job.json", job->key);
    STK_TRY(stk_share_get(d->share, at, &text, err));
    STK_TRY(stk_remote_order_read(text.data, text.len, arena, &order, err));
    const stk_json *names = stk_json_get(stk_json_read(arena, order.task_json), "outputs");
    stk_json_open(result, NULL, '{');
    stk_json_put_int(result, "stoker", 1);
    stk_json_put_text(result, "status", "ok");
    stk_json_open(result, "outputs", '{');
    for (uint32_t i = 0; i < stk_json_n_items(names); i++) {
        const char *name = stk_json_text(stk_json_item(names, i));
        STK_TRY(put_stand_in(d, job->key, name, result, err));
    }
    stk_json_close(result, '}');
    stk_json_close(result, '}');
    return stk_buf_check(result, err);
}

static int put_end(const export_driver *d, const stk_remote_job *job, uint32_t node,
                   const stk_buf *result, stk_arena *arena, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    char name[32] = "end.json";
    const stk_remote_file file = {
        .name = "result.json", .data = result->data, .size = (int64_t)result->len};
    stk_remote_end end = {.host = "-",
                          .node = node,
                          .started_ms = -1,
                          .ended_ms = -1,
                          .outcome = STK_OUTCOME_UNKNOWN,
                          .files = &file,
                          .n_files = node == 0};
    end.outcome.ok = true;
    end.outcome.exit_status = 0;
    if (node > 0) {
        (void)snprintf(name, sizeof name, "end-%u.json", node);
    }
    STK_TRY(stk_remote_end_write(&end, &text, err));
    const char *at = stk_arena_printf(arena, "%s/%s", job->key, name);
    return stk_share_put(d->share, at, text.data, text.len, false, err);
}

static int write_job(stk_driver *self, const stk_remote_job *job, stk_err *err)
{
    export_driver *d = (export_driver *)self;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO result = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    const char *script = NULL;
    STK_TRY(stk_slurm_exported(&d->config, job, arena, &script, err));
    const char *at = stk_arena_printf(arena, "steps/%s.sh", job->step);
    STK_TRY(stk_share_put(d->share, at, script, strlen(script), false, err));
    STK_TRY(put_result(d, job, arena, &result, err));
    for (uint32_t node = job->nodes; node-- > 0;) {
        STK_TRY(put_end(d, job, node, &result, arena, err));
    }
    STK_TRY(stk_array_reserve(&d->ended, &d->cap, (uint64_t)d->n + 1, sizeof *d->ended));
    d->ended[d->n++] = (export_job){.id = job->id, .attempt = job->attempt};
    return 0;
}

static int report_ends(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    export_driver *d = (export_driver *)self;
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    (void)err;
    (void)poll(&fd, 1, d->n > 0 ? 0 : (int)MIN(timeout_ms, INT32_MAX));
    for (uint32_t i = 0; i < d->n; i++) {
        stk_remote_report r = {
            .state = STK_REMOTE_ENDED, .id = d->ended[i].id, .attempt = d->ended[i].attempt};
        d->base.say(d->base.say_arg, &r);
    }
    d->n = 0;
    return 0;
}

/* What has ended can't be stopped. */
static void let_end(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    (void)self, (void)id, (void)grace_ms, (void)why;
}

static void keep_exported(stk_driver *self, uint32_t id)
{
    (void)self, (void)id;
}

static void close_export(stk_driver *self)
{
    export_driver *d = (export_driver *)self;
    stk_share_close(d->share);
    free(d->ended);
    free(d);
}

static int open_export(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    static const stk_driver_ops ops = {.name = "slurm",
                                       .submit = write_job,
                                       .stop = let_end,
                                       .forget = keep_exported,
                                       .turn = report_ends,
                                       .close = close_export};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_slurm_options options;
    *ret = NULL;
    STK_TRY(stk_slurm_options_read(NULL, config->options, NULL, arena, &options, err));
    export_driver *d = calloc(1, sizeof *d);
    STK_TRY(stk_err_if_null(d, err));
    d->base.ops = &ops;
    d->config = *config;
    int rc = stk_share_open(config->share_url, &d->share, err);
    if (rc < 0) {
        free(d);
        return rc;
    }
    *ret = &d->base;
    return 0;
}

static int print_exported(const stk_driver_config *config, const stk_remote_job *job,
                          stk_arena *arena, const char ***ret_documents, uint32_t *ret_n,
                          stk_err *err)
{
    const char **documents = stk_arena_array(arena, 2, sizeof *documents);
    STK_TRY(stk_err_if_null(documents, err));
    STK_TRY(stk_slurm_exported(config, job, arena, &documents[0], err));
    *ret_documents = documents;
    *ret_n = 1;
    return 0;
}

const stk_driver_kind stk_driver_slurm_export = {
    .name = "slurm", .open = open_export, .manifest = print_exported, .check = stk_slurm_check};
