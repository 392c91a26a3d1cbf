/* Tasks in containers: `stoker contain` is our child, but we measure the processes that it started
 * (docs/decisions/0007). It names them in the attempt's container.json. */
#include <limits.h>
#include <stdio.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "host/backend/backend_local.h"
#include "sys/file.h"

enum { FILE_BYTES = 64 << 10, FILE_NODES = 2000 };

/* The current contents of container.json. Unknown numbers are -1. */
typedef struct container {
    int64_t pid, peak_bytes, cpu_us, signal, shm_bytes, shm_free_bytes;
    bool oom;
    char ended_by[320]; /* who made the container engine end it, "" unknown */
    char failed[512];   /* why it never ran, or who ended it; "" neither */
} container;

static bool read_container(const local_task *task, container *ret)
{
    static const stk_json_limits limits = {FILE_BYTES, FILE_NODES, STK_LIMIT_DEPTH};
    STK_ARENA_AUTO arena = stk_arena_new(1 << 20);
    STK_TEXT_AUTO text = NULL;
    char path[PATH_MAX];
    size_t len = 0;
    stk_json root;
    (void)snprintf(path, sizeof path, "%s/container.json", task->dir);
    if (arena == NULL || !stk_file_exists(path) ||
        stk_file_read_untrusted(path, FILE_BYTES, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, arena, &root, NULL) < 0) {
        return false;
    }
    const char *failed = stk_json_get_text(&root, "failed");
    const char *ended_by = stk_json_get_text(&root, "ended_by");
    *ret = (container){.pid = stk_json_get_whole(&root, "pid", -1),
                       .peak_bytes = stk_json_get_whole(&root, "peak_bytes", -1),
                       .cpu_us = stk_json_get_whole(&root, "cpu_us", -1),
                       .signal = stk_json_get_whole(&root, "signal", 0),
                       .shm_bytes = stk_json_get_whole(&root, "shm_bytes", -1),
                       .shm_free_bytes = stk_json_get_whole(&root, "shm_free_bytes", -1),
                       .oom = stk_json_is_true(stk_json_get(&root, "oom"))};
    (void)snprintf(ret->failed, sizeof ret->failed, "%s", stk_text_or(failed, ""));
    (void)snprintf(ret->ended_by, sizeof ret->ended_by, "%s", stk_text_or(ended_by, ""));
    return true;
}

void stk_local_contained_look(local_task *task)
{
    container c;
    if (task->contained && !task->followed && read_container(task, &c) && c.pid > 1 &&
        c.pid <= INT_MAX) {
        task->followed = true;
        stk_watch_follow(&task->watch, (pid_t)c.pid);
    }
}

void stk_local_contained_ended(local_task *task, stk_ending *ending, stk_outcome *outcome)
{
    container c = {.peak_bytes = -1, .cpu_us = -1, .shm_bytes = -1};
    bool known = read_container(task, &c);
    outcome->peak_memory_bytes = outcome->cpu_us = -1;
    if (task->followed) {
        outcome->peak_memory_bytes = task->watch.peak_bytes;
        outcome->cpu_us = task->watch.cpu_us;
    }
    outcome->cpu_us = MAX(c.cpu_us, outcome->cpu_us);
    outcome->peak_memory_bytes = MAX(task->used_bytes, outcome->peak_memory_bytes);
    ending->used_bytes = outcome->peak_memory_bytes;
    ending->cgroup_oom = known && c.oom && task->memory_bytes > 0;
    if (ending->cgroup_oom || outcome->peak_memory_bytes < 0) { /* includes cached files */
        ending->used_bytes = MAX(c.peak_bytes, ending->used_bytes);
        outcome->peak_memory_bytes = ending->used_bytes;
    }
    stk_watch *w = &task->watch;
    if (!task->followed) { /* discard the host's /dev/shm: the container has another */
        w->is_followed = true;
        w->shm_free_bytes = w->shm_bytes = -1;
    }
    if (c.shm_bytes > 0 && (w->shm_free_bytes < 0 || c.shm_free_bytes < w->shm_free_bytes)) {
        w->shm_bytes = c.shm_bytes;
        w->shm_free_bytes = c.shm_free_bytes;
    }
    ending->contained = true;
    if (known && c.ended_by[0] != '\0') {
        (void)snprintf(task->ended_by, sizeof task->ended_by, "%s", c.ended_by);
        ending->ended_by = task->ended_by;
    }
    if (known && c.failed[0] != '\0' && c.signal == 0) { /* a start that failed */
        (void)snprintf(task->failed, sizeof task->failed, "%s", c.failed);
    }
}
