#include "run/run_standing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "host/fit/fit.h"
#include "run/run_again.h"
#include "run/run_check.h"
#include "sys/clock.h"

static const char *of_host(const stk_view_run *run, const char *key, stk_arena *arena)
{
    return stk_json_get_text(stk_json_read(arena, run->host), key);
}

static bool is_in(const stk_json *pool, const char *uuid)
{
    for (size_t k = 0; uuid != NULL && k < stk_json_n_items(pool); k++) {
        const char *one = stk_json_text(stk_json_item(pool, k));
        if (one != NULL && strcmp(one, uuid) == 0) {
            return true;
        }
    }
    return false;
}

/* Opens the devices that the run may use, which its record lists: those in its own visible-device
 * masks, without the ones that it found broken at its start. */
static int open_pool(const stk_view_run *run, stk_arena *arena, stk_accel **ret_accel, stk_err *err)
{
    static const char *const masks[] = {
#define X(id, shown, variable, numbers) variable,
#include "tbl/vendors.def"
    };
    const stk_json *pool = stk_json_read(arena, run->pool);
    for (size_t i = 0; pool != NULL && i < sizeof masks / sizeof masks[0]; i++) {
        (void)unsetenv(masks[i]);
    }
    const char *simulated = of_host(run, "accel", arena);
    STK_TRY(stk_accel_open(stk_text_or(simulated, getenv("STOKER_ACCEL")), ret_accel, err));
    for (uint32_t i = 0; pool != NULL && i < stk_accel_n_devices(*ret_accel); i++) {
        const stk_device *device = stk_accel_device(*ret_accel, i);
        if (device->n_slices == 0 && !is_in(pool, device->uuid)) {
            stk_accel_exclude(*ret_accel, i, "it is not in the pool of the run");
        }
    }
    return 0;
}

/* Finds the places by the run's stack as stoker.yaml has it now; none if the stack is gone. */
static void find_places(const stk_view_run *run, const stk_spec *spec, stk_arena *arena,
                        stk_run_standing *s)
{
    const stk_run_options options = {.with = of_host(run, "stack", arena)};
    stk_err ignored = {0};
    if (stk_run_places(spec, &options, arena, &s->containers, &ignored) == 0 &&
        stk_run_elsewhere_find(spec, s->containers.places, NULL, arena, &s->elsewhere, &ignored) ==
            0) {
        stk_run_elsewhere_tell(&s->elsewhere, &s->capacity);
    }
}

int stk_run_standing_open(stk_store *store, const stk_view *view, stk_arena *arena,
                          stk_run_standing *s, stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    const stk_spec *spec = stk_view_spec(view);
    bool strict = run->policy != NULL && strcmp(run->policy, "strict") == 0;
    const int64_t *peaks = NULL;
    const bool *settled = NULL;
    bool any = false, is_new = false;
    STK_TRY(open_pool(run, arena, &s->accel, err));
    STK_TRY(stk_fit_capacity(s->accel, "this machine", arena, &s->capacity, err));
    find_places(run, spec, arena, s);
    STK_TRY(stk_run_gpu_peaks(spec, arena, &peaks, err));
    STK_TRY(stk_run_settled(spec, view, arena, &settled, err));
    STK_TRY(stk_plan_new_rest(spec, &s->capacity, peaks,
                              strict ? STK_POLICY_STRICT : STK_POLICY_FIT, settled, &s->plan, err));
    STK_TRY(stk_exec_refold(store, run->id, s->plan, &s->capacity, s->accel, &s->sched, err));
    STK_TRY(stk_exec_fold_outside(s->accel, s->sched, &any, &is_new, err));
    /* Advances to what the engine was told last: due retries, reservations. */
    stk_action actions[64];
    uint32_t n = 0;
    int64_t wake_ms = -1;
    return stk_sched_next(s->sched, stk_clock_wall_ms(&stk_clock_real), actions, 64, &n, &wake_ms);
}

void stk_run_standing_close(stk_run_standing *s)
{
    stk_sched_free(s->sched);
    stk_plan_free(s->plan);
    stk_accel_close(s->accel);
}

bool stk_run_is_of_this_host(const stk_view_run *run, stk_arena *arena)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    const char *its = of_host(run, "name", arena);
    return its == NULL || strcmp(its, name) == 0;
}
