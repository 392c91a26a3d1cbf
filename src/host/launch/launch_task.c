/* Reads a task's gang from its task.json. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "host/launch/launch.h"
#include "host/runner/runner_mask.h"
#include "sys/file.h"

/* The secrets' values are in our environment, which the ranks inherit. */
static int hide_secrets(const stk_json *names, stk_arena *arena, stk_launch_config *config,
                        stk_err *err)
{
    uint32_t n = stk_json_n_items(names), k = 0;
    const char **values = stk_arena_array(arena, (size_t)n + 1, sizeof *values);
    stk_mask *mask = NULL;
    if (values == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for a step's secrets");
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *name = stk_json_text(&names->items[i]);
        if (name != NULL && getenv(name) != NULL) {
            values[k++] = getenv(name);
        }
    }
    int rc = stk_mask_new(values, &mask, err); /* never freed: needed until we exit */
    config->mask = mask;
    return rc;
}

int stk_launch_read_task(const char *path, stk_arena *arena, stk_launch_config *config,
                         stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json task;
    STK_TRY(stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, err));
    STK_TRY(stk_json_parse(text, len, path, &limits, arena, &task, err));
    const stk_json *gang = stk_json_get(&task, "gang");
    int64_t ranks = stk_json_get_whole(gang, "ranks", 0);
    int64_t min = stk_json_get_whole(gang, "min_ranks", ranks);
    if (ranks < 1 || ranks > STK_LAUNCH_MAX_RANKS || min < 1 || min > ranks) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s: its \"gang\" is invalid", path);
    }
    STK_TEXT_AUTO real = realpath(path, NULL);
    config->dir = NULL;
    if (real != NULL) {
        config->dir = stk_arena_dupn(arena, real, (size_t)(strrchr(real, '/') - real));
    }
    config->ranks = (uint32_t)ranks;
    config->min_ranks = (uint32_t)min;
    const stk_json *granted = stk_json_get(&task, "granted");
    const stk_json *devices = stk_json_get(granted, "devices");
    config->devices = stk_json_n_items(devices);
    config->nodes = (uint32_t)stk_json_get_whole(gang, "nodes", 1);
    config->max_restarts = (uint32_t)stk_json_get_whole(gang, "restarts", 0);
    config->port = (int32_t)stk_json_get_whole(gang, "port", 0);
    config->hang_ms = stk_json_get_whole(gang, "hang_ms", 0);
    config->grace_ms = stk_json_get_whole(gang, "grace_ms", config->grace_ms);
    config->notice_ms = stk_json_get_whole(gang, "notice_ms", 0);
    config->split = (uint32_t)stk_json_get_whole(granted, "threads", 0);
    config->run_id = stk_text_or(stk_json_get_text(&task, "run"), config->run_id);
    stk_launch_device *own = NULL;
    if (config->devices > 0 && config->devices <= STK_LAUNCH_MAX_DEVICES) {
        own = stk_arena_array(arena, config->devices, sizeof *own);
    }
    for (uint32_t i = 0; own != NULL && i < devices->n; i++) {
        own[i].cpus = stk_json_get_text(&devices->items[i], "cpus");
        config->seen = own;
        config->n_seen = devices->n;
    }
    STK_TRY(hide_secrets(stk_json_get(&task, "secrets"), arena, config, err));
    config->is_task = true;
    config->is_python = stk_json_is(stk_json_get(&task, "kind"), "python");
    if (config->dir == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "%s: out of memory", path);
    }
    return 0;
}
