#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "show/gpus.h"
#include "sys/clock.h"
#include "sys/file.h"

static void name_process(stk_arena *arena, stk_gpus_process *p)
{
    char path[64];
    STK_TEXT_AUTO name = NULL;
    size_t len = 0;
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)p->on.pid);
    if (stk_file_read(path, 4096, &name, &len, NULL) == 0) {
        name[strcspn(name, "\n")] = '\0';
        p->name = stk_arena_dup(arena, name);
    }
    if (stat(path, &st) == 0) {
        const struct passwd *user = getpwuid(st.st_uid);
        p->user = stk_arena_printf(arena, "%u", (unsigned)st.st_uid);
        if (user != NULL) {
            p->user = stk_arena_dup(arena, user->pw_name);
        }
    }
}

static void read_processes(stk_gpus *gpus, uint32_t i)
{
    stk_device_process found[STK_GPUS_PROCESSES];
    stk_gpus_row *row = &gpus->rows[i];
    int n = stk_accel_processes(gpus->accel, i, found, STK_GPUS_PROCESSES);
    row->n_processes = n;
    row->processes = stk_arena_array(gpus->arena, (size_t)MAX(n, 1), sizeof *row->processes);
    if (row->processes == NULL) {
        row->n_processes = -1;
    }
    for (int k = 0; k < row->n_processes; k++) {
        row->processes[k].on = found[k];
        name_process(gpus->arena, &row->processes[k]);
    }
}

static void note_xid(void *arg, const stk_device_event *event)
{
    stk_gpus *gpus = arg;
    if (event->i_device < stk_accel_n_devices(gpus->accel) && event->xid > 0) {
        gpus->xids[event->i_device] = event->xid;
    }
}

static void read_events(stk_gpus *gpus)
{
    stk_device_event event;
    while (stk_accel_next_event(gpus->accel, &event)) {
        note_xid(gpus, &event);
    }
}

int stk_gpus_open(stk_gpus *ret, stk_err *err)
{
    *ret = (stk_gpus){.arena = stk_arena_new(256u << 20)};
    memset(ret->xids, 0xff, sizeof ret->xids);
    STK_TRY(stk_err_if_null(ret->arena, err));
    STK_TRY(stk_accel_open(NULL, &ret->accel, err));
    stk_accel_history(ret->accel, note_xid, ret);
    return 0;
}

void stk_gpus_close(stk_gpus *gpus)
{
    stk_accel_close(gpus->accel);
    stk_arena_free(gpus->arena);
}

int stk_gpus_look(stk_gpus *gpus, stk_err *err)
{
    stk_arena_reset(gpus->arena);
    gpus->time_ms = stk_clock_wall_ms(&stk_clock_real);
    gpus->n = stk_accel_n_devices(gpus->accel);
    gpus->rows = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *gpus->rows);
    STK_TRY(stk_err_if_null(gpus->rows, err));
    int64_t *n_free = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *n_free);
    const char **outside = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *outside);
    if (n_free == NULL || outside == NULL ||
        stk_lease_free(gpus->accel, gpus->arena, n_free, outside, NULL) < 0) {
        outside = NULL;
    }
    read_events(gpus);
    for (uint32_t i = 0; i < gpus->n; i++) {
        stk_gpus_row *row = &gpus->rows[i];
        stk_err why = {0};
        row->xid = gpus->xids[i];
        row->device = stk_accel_device(gpus->accel, i);
        row->trouble = row->device->trouble;
        if (stk_accel_state(gpus->accel, i, &row->state, &why) < 0 && row->trouble == NULL) {
            row->trouble = stk_arena_dup(gpus->arena, why.text);
        }
        if (outside != NULL && row->trouble == NULL) {
            row->outside = outside[i];
        }
        row->holder = stk_lease_holder(gpus->accel, i, gpus->arena);
        row->claim = stk_lease_claimant(gpus->accel, i, gpus->arena);
        read_processes(gpus, i);
    }
    return 0;
}

const char *stk_gpus_status(const stk_gpus_row *row)
{
    const stk_device *d = row->device;
    if (d->n_slices > 0) {
        return "split";
    }
    if (row->trouble != NULL) {
        return "unusable";
    }
    if (row->holder != NULL) {
        return "leased";
    }
    if (row->outside != NULL) {
        return "in use";
    }
    return row->claim != NULL ? "claimed" : "free";
}

const char *stk_gpus_cuda(const stk_gpus *gpus)
{
    int32_t version = stk_accel_cuda_version(gpus->accel);
    if (version <= 0) {
        return NULL;
    }
    return stk_arena_printf(gpus->arena, "%d.%d", (int)version / 1000, (int)version % 1000 / 10);
}

const char *stk_gpus_link_word(stk_closeness link)
{
    static const char *const words[] = {
        [STK_LINK_UNKNOWN] = NULL, [STK_LINK_SYSTEM] = "system", [STK_LINK_NODE] = "node",
        [STK_LINK_HOST] = "host",  [STK_LINK_SWITCH] = "switch", [STK_LINK_FABRIC] = "fabric",
        [STK_LINK_SAME] = "same",
    };
    return words[link];
}
