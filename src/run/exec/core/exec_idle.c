/* An engine that waits for its tasks reads artifacts that weren't read for long, to find damage on
 * the disk before the artifacts are needed. It reads one at a time, slowly, with the lowest
 * priority, and stops when the engine ends. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_sum.h"

enum { FIRST_MS = 10000, N_AT_ONCE = 256, IOPRIO_WHO_PROCESS = 1, IOPRIO_IDLE = 3 << 13 };

struct exec_idle {
    exec_sum *sum;
    stk_arena *arena;
    const char **digests;
    uint32_t n, at;
    int64_t next_ms;    /* monotonic: next check */
    int64_t left_bytes; /* it may read so many */
    bool has_listed, runs;
    pthread_t thread;
    stk_store_work *work;
    atomic_bool is_done;
    int rc;
};

static void *read_artifact(void *arg)
{
    exec_idle *idle = arg;
    struct sched_param none = {.sched_priority = 0};
    stk_err ignored;
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE);
    idle->rc = stk_store_work_run(idle->work, &ignored);
    atomic_store(&idle->is_done, true);
    stk_exec_sum_wake(idle->sum);
    return NULL;
}

static int finish_one(stk_exec *x, exec_idle *idle, stk_err *err)
{
    stk_err why = {0};
    char hex[STK_DIGEST_HEX + 1];
    int64_t size = 0;
    (void)pthread_join(idle->thread, NULL);
    idle->runs = false;
    int rc = 0;
    if (idle->rc >= 0) {
        rc = stk_store_work_checked(x->config.store, idle->work, &why);
    }
    stk_store_work_summed(idle->work, hex, &size);
    stk_store_work_free(idle->work);
    idle->work = NULL;
    idle->left_bytes -= size;
    if (rc == STK_E_STORE) {
        return stk_exec_emit_note(x, why.text, err);
    }
    if (rc != STK_E_NOMEM) {
        return 0;
    }
    return stk_err_nomem(err);
}

static int list(stk_exec *x, exec_idle *idle, stk_err *err)
{
    idle->has_listed = true;
    int64_t before_ms = stk_clock_wall_ms(x->config.clock) - x->config.idle_read_ms;
    return stk_store_list_unverified(x->config.store, before_ms, N_AT_ONCE, idle->arena,
                                     &idle->digests, &idle->n, err);
}

static void begin_one(stk_exec *x, exec_idle *idle)
{
    if (idle->at == idle->n || idle->left_bytes <= 0 ||
        stk_store_work_verify(x->config.store, idle->digests[idle->at], &idle->work, NULL) < 0) {
        idle->next_ms = INT64_MAX;
        return;
    }
    idle->at++;
    atomic_store(&idle->is_done, false);
    idle->runs = pthread_create(&idle->thread, NULL, read_artifact, idle) == 0;
    if (!idle->runs) {
        stk_store_work_free(idle->work);
        idle->work = NULL;
        idle->next_ms = INT64_MAX;
    }
}

static int open_idle(stk_exec *x, int64_t now, stk_err *err)
{
    exec_idle *idle = calloc(1, sizeof *idle);
    if (idle == NULL || (idle->arena = stk_arena_new(0)) == NULL) {
        free(idle);
        return stk_err_nomem(err);
    }
    int64_t age = x->config.idle_read_ms;
    idle->sum = x->sum;
    idle->left_bytes = STK_LIMIT_IDLE_READ_BYTES;
    idle->next_ms = now + MIN(age, FIRST_MS);
    x->idle = idle;
    return 0;
}

int stk_exec_idle(stk_exec *x, int64_t *wake_ms, stk_err *err)
{
    if (x->config.idle_read_ms <= 0 || stk_sched_is_cancelling(x->sched)) {
        return 0;
    }
    int64_t now = stk_clock_mono_ms(x->config.clock);
    if (x->idle == NULL) {
        STK_TRY(open_idle(x, now, err));
    }
    exec_idle *idle = x->idle;
    if (idle->runs && atomic_load(&idle->is_done)) {
        STK_TRY(finish_one(x, idle, err));
    }
    if (!idle->runs && now >= idle->next_ms) {
        if (!idle->has_listed) {
            STK_TRY(list(x, idle, err));
        }
        begin_one(x, idle);
    }
    if (!idle->runs && idle->next_ms < INT64_MAX && (*wake_ms < 0 || idle->next_ms < *wake_ms)) {
        *wake_ms = idle->next_ms;
    }
    return 0;
}

void stk_exec_idle_close(exec_idle *idle)
{
    if (idle == NULL) {
        return;
    }
    if (idle->runs) {
        stk_store_work_stop(idle->work);
        (void)pthread_join(idle->thread, NULL);
    }
    stk_store_work_free(idle->work);
    stk_arena_free(idle->arena);
    free(idle);
}
