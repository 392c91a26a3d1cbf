/* While a pilot's programs run: their output and checkpoints are followed, their orphans reaped. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "away/agent/agent_pilot.h"
#include "store/metrics/metrics.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/guard.h"
#include "sys/proc.h"
/* last */
#include "sys/faults.h"

enum {
    LOG_MS = 1000, /* the output of programs that run so long is followed */
    REAP_MS = 1000,
    RUNNING = 4096
};

static void copy_output(const pilot *p, piece *one, int i)
{
    char from[PATH_MAX], to[PATH_MAX], data[64 << 10];
    (void)snprintf(from, sizeof from, "%s/%s", one->a.order.dir,
                   i == 0 ? "stdout.log" : "stderr.log");
    (void)snprintf(to, sizeof to, "%s/%s/slurm.log", stk_share_folder(p->a->share), one->a.key);
    STK_FD_AUTO in = stk_file_open_regular(from, O_RDONLY, 0);
    ssize_t n = in < 0 ? 0 : pread(in, data, sizeof data, one->log_at[i]);
    if (n <= 0) {
        return;
    }
    STK_FD_AUTO out = stk_file_open_regular(to, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (out >= 0 && stk_file_write_all(out, data, (size_t)n) == 0) {
        one->log_at[i] += n;
    }
}

static bool has_live(const piece *one)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", one->a.order.dir, STK_METRICS_FILE);
    return one->log_at[0] > 0 || one->log_at[1] > 0 || stk_file_exists(path);
}

/* What ends sooner has its output in end.json. */
void stk_pilot_follow(pilot *p)
{
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    if (now < p->next_log_ms) {
        return;
    }
    p->next_log_ms = now + LOG_MS / 2;
    for (piece *one = p->first; one != NULL; one = one->next) {
        if (one->phase != PIECE_RUNS || now < one->began_ms + LOG_MS) {
            continue;
        }
        copy_output(p, one, 0);
        copy_output(p, one, 1);
        if (one->a.order.checkpoints != NULL && !one->a.checkpoints.is_running &&
            stk_file_exists(one->a.order.checkpoints)) {
            stk_agent_checkpoints_begin(&one->a);
        }
        if (!one->a.live.is_running && has_live(one)) {
            stk_agent_live_begin(&one->a);
        }
    }
}

void stk_pilot_reap(pilot *p)
{
    pid_t known[RUNNING], orphans[64];
    uint32_t n = 0;
    if (stk_clock_mono_ms(&stk_clock_real) < p->reap_ms) {
        return;
    }
    p->reap_ms = stk_clock_mono_ms(&stk_clock_real) + REAP_MS;
    for (const piece *one = p->first; one != NULL; one = one->next) {
        if (one->phase == PIECE_RUNS && one->pid <= 0) {
            return; /* its number isn't known yet */
        }
        if (one->phase == PIECE_RUNS && n < RUNNING) {
            known[n++] = one->pid;
        }
    }
    (void)stk_proc_orphans(known, n, n + STK_GUARD_N, orphans, 64);
}
