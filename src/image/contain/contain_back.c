/* Cleans up after a task of another user whose container was killed: its runner died before it
 * could give the files back to their owner. A container of the same image does it instead. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "image/contain/contain_private.h"
#include "sys/clock.h"

enum { WAIT_MS = 10 * 60 * 1000, LOOK_MS = 50 };

/* Waits for the end of the container; the engine removes it afterwards. */
static int wait_for_end(const stk_engine *engine, const char *id, stk_err *err)
{
    char path[256];
    int64_t until_ms = stk_clock_mono_ms(&stk_clock_real) + WAIT_MS;
    (void)snprintf(path, sizeof path, "/containers/%s/json", id);
    while (stk_clock_mono_ms(&stk_clock_real) < until_ms) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_json root = {0};
        STK_TRY(stk_err_if_null(arena, err));
        int rc = stk_engine_get(engine, path, arena, &root, err);
        if (rc == STK_E_NOT_FOUND ||
            stk_json_is_false(stk_json_get(stk_json_get(&root, "State"), "Running"))) {
            return 0;
        }
        STK_TRY(rc);
        struct pollfd cancel = {.fd = -1, .events = POLLIN};
        if (engine->cancel_fd > 0) {
            cancel.fd = engine->cancel_fd;
        }
        if (poll(&cancel, 1, LOOK_MS) > 0) {
            return stk_err_set(err, STK_E_CANCELLED, "told to end");
        }
    }
    return stk_err_set(err, STK_E_ENV, "it takes longer than %d s", WAIT_MS / 1000);
}

int stk_contain_take_back(const contain_spec *spec, const stk_engine *engine, stk_arena *arena,
                          stk_err *err)
{
    contain_files files = {.listen_fd = -1};
    stk_engine own = *engine;
    contain_spec back = *spec;
    const char *id = NULL;
    char path[256];
    uint32_t n = 0;
    const char **argv = stk_arena_array(arena, (size_t)spec->n_mounts + 3, sizeof *argv);
    back.name = stk_arena_printf(arena, "%s-back", spec->name);
    if (argv == NULL || back.name == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "container %s", spec->name);
    }
    argv[n++] = CONTAIN_BACK;
    argv[n++] = spec->owner;
    for (uint32_t i = 0; i < spec->n_mounts; i++) {
        if (spec->mounts[i].write) {
            argv[n++] = stk_arena_printf(arena, "w%s", spec->mounts[i].to);
        }
    }
    argv[n] = NULL;
    back.own = argv;
    back.n_devices = back.n_gpus = 0;
    back.cwd = "/";
    back.network = "none";
    int rc = stk_contain_files_make(spec->dir, &files, err);
    if (rc == 0) {
        rc = stk_contain_create(&back, &own, &files, arena, &id, err);
    }
    if (rc == 0) {
        (void)snprintf(path, sizeof path, "/containers/%s/start", id);
        rc = stk_engine_call(&own, "POST", path, NULL, NULL, NULL, err);
        if (rc == 0) {
            rc = wait_for_end(&own, id, err);
        }
        (void)stk_contain_delete(&own, id, NULL);
    }
    stk_contain_files_remove(&files);
    return rc;
}
