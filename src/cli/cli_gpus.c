/* `stoker gpus`: the accelerators of this host, what they do, and who has them. */
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "cli/cli_run.h"
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
        p->user = user != NULL ? stk_arena_dup(arena, user->pw_name)
                               : stk_arena_printf(arena, "%u", (unsigned)st.st_uid);
    }
}

static void look_at_processes(stk_gpus *gpus, uint32_t i)
{
    stk_device_process found[STK_GPUS_PROCESSES];
    stk_gpus_row *row = &gpus->rows[i];
    int n = stk_accel_processes(gpus->accel, i, found, STK_GPUS_PROCESSES);
    row->processes = n > 0 ? stk_arena_array(gpus->arena, (size_t)n, sizeof *row->processes) : NULL;
    row->n_processes = n > 0 && row->processes == NULL ? -1 : n;
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

static void look_at_events(stk_gpus *gpus)
{
    stk_device_event event;
    while (stk_accel_next_event(gpus->accel, &event)) {
        note_xid(gpus, &event);
    }
}

/* One look at everything; the texts live until the arena is reset. */
static int look(stk_gpus *gpus, stk_err *err)
{
    gpus->time_ms = stk_clock_wall_ms(&stk_clock_real);
    gpus->n = stk_accel_n_devices(gpus->accel);
    gpus->rows = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *gpus->rows);
    if (gpus->rows == NULL) {
        return stk_err_nomem(err);
    }
    int64_t *n_free = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *n_free);
    const char **outside = stk_arena_array(gpus->arena, gpus->n + 1, sizeof *outside);
    if (n_free == NULL || outside == NULL ||
        stk_lease_free(gpus->accel, gpus->arena, n_free, outside, NULL) < 0) {
        outside = NULL;
    }
    look_at_events(gpus);
    for (uint32_t i = 0; i < gpus->n; i++) {
        stk_gpus_row *row = &gpus->rows[i];
        stk_err why = {0};
        row->xid = gpus->xids[i];
        row->device = stk_accel_device(gpus->accel, i);
        row->trouble = row->device->trouble;
        if (stk_accel_state(gpus->accel, i, &row->state, &why) < 0 && row->trouble == NULL) {
            row->trouble = stk_arena_dup(gpus->arena, why.text);
        }
        row->outside = outside != NULL && row->trouble == NULL ? outside[i] : NULL;
        row->holder = stk_lease_holder(gpus->accel, i, gpus->arena);
        row->claim = stk_lease_claimant(gpus->accel, i, gpus->arena);
        look_at_processes(gpus, i);
    }
    return 0;
}

const char *stk_gpus_status(const stk_gpus_row *row)
{
    const stk_device *d = row->device;
    return d->n_slices > 0        ? "split"
           : row->trouble != NULL ? "unusable"
           : row->holder != NULL  ? "leased"
           : row->outside != NULL ? "in use"
           : row->claim != NULL   ? "claimed"
                                  : "free";
}

const char *stk_gpus_cuda(const stk_gpus *gpus)
{
    int32_t version = stk_accel_cuda_version(gpus->accel);
    return version <= 0 ? NULL
                        : stk_arena_printf(gpus->arena, "%d.%d", (int)version / 1000,
                                           (int)version % 1000 / 10);
}

const char *stk_gpus_link_word(stk_link link)
{
    static const char *const words[] = {
        [STK_LINK_UNKNOWN] = NULL, [STK_LINK_SYSTEM] = "system", [STK_LINK_NODE] = "node",
        [STK_LINK_HOST] = "host",  [STK_LINK_SWITCH] = "switch", [STK_LINK_FABRIC] = "fabric",
        [STK_LINK_SAME] = "same",
    };
    return words[link];
}

/* --- printing --- */

typedef struct showing {
    const stk_cli *cli;
    stk_gpus *gpus;
    bool lines; /* watched where the output is no terminal */
} showing;

static int show(void *arg, int rows, stk_buf *out, stk_err *err)
{
    const showing *how = arg;
    stk_gpus *gpus = how->gpus;
    (void)rows;
    stk_arena_reset(gpus->arena);
    int rc = look(gpus, err);
    if (rc < 0) {
        return rc;
    }
    stk_style style = stk_style_of(stdout, stk_cli_colour(how->cli, fileno(stdout)));
    if (stk_cli_flag(how->cli, "prometheus")) {
        stk_gpus_prometheus(gpus, out);
    } else if (stk_cli_json(how->cli)) {
        stk_gpus_json(gpus, out);
    } else if (how->lines) {
        stk_gpus_lines(gpus, out);
    } else {
        stk_gpus_table(gpus, &style, out);
        if (stk_cli_flag(how->cli, "topology")) {
            stk_gpus_topology(gpus, out);
        }
    }
    return 0;
}

/* --- the command --- */

/* The device of a UUID, which may be cut short as long as it is unique. */
static int find_device(stk_accel *accel, const char *uuid, uint32_t *ret_i, stk_err *err)
{
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        const char *own = stk_accel_device(accel, i)->uuid;
        if (own != NULL && strcmp(own, uuid) == 0) {
            *ret_i = i;
            return 0;
        }
        if (own != NULL && *uuid != '\0' && strncmp(own, uuid, strlen(uuid)) == 0) {
            *ret_i = i;
            n_found++;
        }
    }
    if (n_found == 1) {
        return 0;
    }
    return stk_err_set(err, STK_E_NOT_FOUND,
                       n_found == 0 ? "no device '%s' on this host; 'stoker gpus --json' names them"
                                    : "'%s' begins the UUIDs of several devices; write it out",
                       uuid);
}

static int clear(stk_accel *accel, const char *uuid, stk_err *err)
{
    uint32_t i = 0;
    int rc = find_device(accel, uuid, &i, err);
    rc = rc < 0 ? rc : stk_accel_clear_quarantine(accel, i, err);
    if (rc == 0) {
        const stk_device *d = stk_accel_device(accel, i);
        printf("%s %d (%s) is in the pool again\n", d->noun, (int)d->index, d->uuid);
    }
    return rc;
}

static int check_words(const stk_cli *cli, double *ret_seconds)
{
    bool watching = stk_cli_flag(cli, "watch");
    bool prometheus = stk_cli_flag(cli, "prometheus");
    const char *word = stk_cli_arg(cli, 0);
    int status = stk_cli_at_most(cli, watching ? 1 : 0);
    if (status != 0) {
        return status;
    }
    if (prometheus && (watching || stk_cli_json(cli))) {
        return stk_cli_usage(cli,
                             "--prometheus is a format of its own and prints once; leave out %s",
                             watching ? "--watch" : "--json");
    }
    char *end = NULL;
    *ret_seconds = word != NULL ? strtod(word, &end) : 1;
    if (word != NULL &&
        (end == word || *end != '\0' || !(*ret_seconds >= 0.1) || *ret_seconds > 86400)) {
        return stk_cli_usage(cli, "--watch '%s': seconds from 0.1 to 86400 are expected", word);
    }
    return 0;
}

static int run_gpus(stk_cli *cli)
{
    stk_err err = {0};
    double seconds = 1;
    int status = check_words(cli, &seconds);
    if (status != 0) {
        return status;
    }
    stk_gpus gpus = {.arena = stk_arena_new(256u << 20)};
    memset(gpus.xids, 0xff, sizeof gpus.xids);
    int rc = gpus.arena == NULL ? stk_err_nomem(&err) : 0;
    rc = rc < 0 ? rc : stk_cli_simulate(cli, &err);
    rc = rc < 0 ? rc : stk_accel_open(NULL, &gpus.accel, &err);
    const char *uuid = stk_cli_value(cli, "clear");
    if (rc == 0 && uuid != NULL) {
        rc = clear(gpus.accel, uuid, &err);
    }
    status = rc < 0 ? stk_cli_fail(cli, &err) : 0;
    if (rc == 0 && uuid == NULL) {
        bool watching = stk_cli_flag(cli, "watch");
        stk_accel_history(gpus.accel, note_xid, &gpus);
        showing how = {.cli = cli, .gpus = &gpus, .lines = watching && !isatty(fileno(stdout))};
        status = stk_cli_redraw(cli, (int64_t)(seconds * 1000), watching ? 0 : 1, show, &how);
    }
    stk_accel_close(gpus.accel);
    stk_arena_free(gpus.arena);
    return status;
}

static const stk_option options[] = {
    {"watch", 'w', NULL,
     "again every second, or every SECONDS; a line a device where the output is no terminal",
     false},
    {"topology", 't', NULL, "also how near devices are to each other, to memory and to CPUs",
     false},
    {"prometheus", 0, NULL, "as text for Prometheus, with dcgm-exporter's names", false},
    {"simulate", 0, "SPEC", "a machine that isn't here: 8xH100, 2xA100,mig=1g.10gb*7, v5e-8 …",
     false},
    {"clear", 0, "UUID", "put a device that is in quarantine back into the pool", false},
    {NULL}};

const stk_command stk_cmd_gpus = {
    .name = "gpus",
    .summary = "the accelerators of this host, what they do and who has them",
    .usage = "[options] [--watch [SECONDS]]",
    .text = "GPUs of NVIDIA, AMD and Intel, AWS Neuron devices and Google TPU chips: memory, load, "
            "temperature and power as\n"
            "their drivers tell them, '-' where they don't; which run and step leases each, which "
            "other program is on it, and why\n"
            "one can't be used. An inherited mask (CUDA_VISIBLE_DEVICES and its like) limits what "
            "is shown.\n"
            "\n"
            "--simulate takes parts joined by '+': COUNTxMODEL or a TPU slice, each with "
            "mig=PROFILE*N, memory=SIZE,\n"
            "busy=PERCENT after commas. The same option of 'stoker plan' and 'stoker run' plans "
            "and runs on such a machine.",
    .options = options,
    .run = run_gpus};
