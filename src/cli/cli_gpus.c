/* `stoker gpus`: the accelerators of this host, their state and their users. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli_hosts.h"
#include "cli/cli_live.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "cli/cli_run.h"
#include "show/gpus.h"

typedef struct showing {
    const stk_cli *cli;
    stk_gpus *gpus;
    bool lines; /* --watch without a terminal */
} showing;

/* Finds a device by its UUID or a unique prefix of it. */
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
                       n_found == 0
                           ? "no device '%s' on this host; 'stoker gpus --json' lists the UUIDs"
                           : "several devices have UUIDs that begin with '%s'; give the whole UUID",
                       uuid);
}

static int put_gpus(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    const showing *how = arg;
    stk_gpus *gpus = how->gpus;
    if (frame->is_due) {
        STK_TRY(stk_gpus_look(gpus, err));
    }
    stk_style style = stk_cli_style(stdout);
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

static int clear_quarantine(stk_accel *accel, const char *uuid, stk_buf *out, stk_err *err)
{
    uint32_t i = 0;
    STK_TRY(find_device(accel, uuid, &i, err));
    STK_TRY(stk_accel_clear_quarantine(accel, i, err));
    const stk_device *d = stk_accel_device(accel, i);
    stk_buf_printf(out, "%s %d (%s) is in the pool again", d->noun, (int)d->index, d->uuid);
    return 0;
}

static int check_words(const stk_cli *cli, double *ret_seconds, stk_err *err)
{
    bool watching = stk_cli_flag(cli, "watch");
    bool prometheus = stk_cli_flag(cli, "prometheus");
    const char *word = stk_cli_arg(cli, 0);
    char *end = NULL;
    STK_TRY(stk_cli_at_most(cli, watching, err));
    if (prometheus && (watching || stk_cli_json(cli))) {
        return stk_cli_usage(cli, err,
                             "--prometheus is a format of its own and prints once; leave out %s",
                             watching ? "--watch" : "--json");
    }
    if (word == NULL) {
        return 0;
    }
    *ret_seconds = strtod(word, &end);
    if (end == word || *end != '\0' || !(*ret_seconds >= 0.1) || *ret_seconds > 86400) {
        return stk_cli_usage(cli, err, "--watch '%s' is not a number of seconds from 0.1 to 86400",
                             word);
    }
    return 0;
}

static bool has_live_form(const stk_cli *cli)
{
    return stk_cli_has_screen() && !stk_cli_json(cli) && !stk_cli_flag(cli, "topology");
}

/* The devices of a stack's hosts. */
static int show_hosts(const stk_cli *cli, const char *stack, double seconds, stk_err *err)
{
    static const char *const others[] = {"prometheus", "simulate", "clear"};
    bool watching = stk_cli_flag(cli, "watch");
    stk_cli_look look = {
        .op = "gpus", .form = "text", .period_ms = (int64_t)(seconds * 1000), .n_times = !watching};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (stk_cli_flag(cli, others[i])) {
            return stk_cli_usage(
                cli, err, "--%s is of one machine: leave out --stack, and run it on the host",
                others[i]);
        }
    }
    if (watching && has_live_form(cli)) {
        return stk_cli_hosts_screen(cli, stack, true, look.period_ms, 0, err);
    }
    if (stk_cli_json(cli)) {
        look.form = "json";
    } else if (watching && !isatty(fileno(stdout))) {
        look.form = "lines";
    }
    if (stk_cli_flag(cli, "topology")) {
        look.topology = "yes";
    }
    return stk_cli_hosts(cli, stack, &look, err);
}

static int run_gpus(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    double seconds = 1;
    bool watching = stk_cli_flag(cli, "watch");
    const char *uuid = stk_cli_value(cli, "clear"), *stack = stk_cli_value(cli, "stack");
    STK_TRY(check_words(cli, &seconds, err));
    if (stack != NULL) {
        return show_hosts(cli, stack, seconds, err);
    }
    STK_TRY(stk_cli_simulate(cli, err));
    if (watching && uuid == NULL && has_live_form(cli)) {
        return stk_cli_live(cli, true, (int64_t)(seconds * 1000), 0, err);
    }
    __attribute__((cleanup(stk_gpus_close))) stk_gpus gpus = {0};
    STK_TRY(stk_gpus_open(&gpus, err));
    if (uuid != NULL) {
        return clear_quarantine(gpus.accel, uuid, out, err);
    }
    showing how = {.cli = cli, .gpus = &gpus, .lines = watching && !isatty(fileno(stdout))};
    const stk_cli_picture picture = {.draw = put_gpus, .arg = &how};
    return stk_cli_redraw(cli, (int64_t)(seconds * 1000), !watching, &picture, err);
}

static const stk_option options[] = {
    {"watch", 'w', NULL,
     "repeat every second, or every SECONDS; without a terminal one line per device"},
    {"topology", 't', NULL, "also how near devices are to each other, to memory and to CPUs"},
    {"prometheus", 0, NULL, "as text for Prometheus, with dcgm-exporter's names"},
    {"stack", 0, "STACK", "of all hosts of a stack of machines over SSH"},
    {"simulate", 0, "SPEC", "a machine that isn't here: 8xH100, 2xA100,mig=1g.10gb*7, v5e-8 …"},
    {"clear", 0, "UUID", "put a device that is in quarantine back into the pool"},
    {NULL}};

const stk_command stk_cmd_gpus = {
    .name = "gpus",
    .summary = "the accelerators of this host, what they do and who has them",
    .usage = "[options] [--watch [SECONDS]]",
    .text = "GPUs of NVIDIA, AMD and Intel, AWS Neuron devices and Google TPU chips: memory, load, "
            "temperature and power as\ntheir drivers report them ('-': not reported), which run "
            "and step leases each, which other program uses it, and why\none can't be used. An "
            "inherited mask (CUDA_VISIBLE_DEVICES and the like) limits what is shown.\n\n"
            "--watch on a terminal is a screen with the last minutes of each device and the "
            "programs on it; its keys are those of\n'stoker top'.\n\n"
            "--stack shows the hosts of a stack of stoker.yaml whose backend is ssh, one below the "
            "other. A host that is away\nhas a line that says so; exit status 3: none has "
            "answered.\n\n"
            "--simulate takes parts joined by '+': COUNTxMODEL or a TPU slice, each with "
            "mig=PROFILE*N, memory=SIZE,\nbusy=PERCENT after commas. The same option of 'stoker "
            "plan' and 'stoker run' plans and runs on such a machine.",
    .options = options,
    .max_args = -1,
    .run = run_gpus};
