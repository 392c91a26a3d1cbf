/* stoker top: the running steps of all runs on this host, and the state of its devices. */
#include <unistd.h>

#include "base/units.h"
#include "cli/cli_hosts.h"
#include "cli/cli_live.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "show/top/top.h"

typedef struct showing {
    const stk_cli *cli;
    stk_top *top;
} showing;

static int draw_top(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    const showing *s = arg;
    stk_style style = stk_cli_style(stdout);
    (void)frame;
    if (!isatty(STDOUT_FILENO)) { /* a file or pipe has no width to fit */
        style.columns = 1075;
    }
    return stk_top_draw(s->top, stk_cli_json(s->cli) ? NULL : &style, 0, out, err);
}

static int read_period(const stk_cli *cli, int64_t *ret_ms, int64_t *ret_times, stk_err *err)
{
    const char *period = stk_cli_value(cli, "interval");
    if (period != NULL) {
        STK_TRY(stk_units_parse_duration(period, ret_ms, err));
    }
    if (*ret_ms < 100) {
        return stk_err_set(err, STK_E_USAGE, "--interval '%s' is shorter than 100ms", period);
    }
    return stk_cli_number(cli, "count", 1, INT32_MAX, ret_times, err);
}

/* How many pictures the user wants; 0: until they end it. Elsewhere than on a terminal, only who
 * asks for more than one gets them. */
static int64_t count_pictures(const stk_cli *cli, bool is_of_stack)
{
    bool repeats = stk_cli_value(cli, "interval") != NULL || stk_cli_has_screen() ||
                   (is_of_stack && isatty(STDOUT_FILENO));
    return stk_cli_flag(cli, "once") || stk_cli_json(cli) || !repeats;
}

static int run_top(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    int64_t period_ms = 1000;
    const char *stack = stk_cli_value(cli, "stack"), *form = "text";
    int64_t n_times = count_pictures(cli, stack != NULL);
    showing s = {.cli = cli};
    const stk_cli_picture picture = {.draw = draw_top, .arg = &s};
    (void)out;
    STK_TRY(read_period(cli, &period_ms, &n_times, err));
    if (stk_cli_json(cli)) {
        form = "json";
    }
    if (stack != NULL && n_times != 1 && !stk_cli_json(cli) && stk_cli_has_screen()) {
        return stk_cli_hosts_screen(cli, stack, false, period_ms, n_times, err);
    }
    if (stack != NULL) {
        const stk_cli_look look = {
            .op = "top", .form = form, .period_ms = period_ms, .n_times = n_times};
        return stk_cli_hosts(cli, stack, &look, err);
    }
    if (n_times != 1 && !stk_cli_json(cli) && stk_cli_has_screen()) {
        return stk_cli_live(cli, false, period_ms, n_times, err);
    }
    int rc = stk_top_open(&s.top, err);
    if (rc == 0) {
        rc = stk_cli_redraw(cli, period_ms, n_times, &picture, err);
    }
    stk_top_close(s.top);
    return rc;
}

static const stk_option options[] = {
    {"once", '1', NULL, "one picture, then end"},
    {"count", 'n', "N", "N pictures, then end"},
    {"interval", 'i', "TIME", "time between pictures, as 2s or 500ms (default 1s)"},
    {"stack", 0, "STACK", "of all hosts of a stack of machines over SSH"},
    {NULL}};

const stk_command stk_cmd_top = {
    .name = "top",
    .summary = "what runs on this host now, and what its devices do",
    .usage = "[options]",
    .text = "Shows every running step of this host, whatever its run and store, with its CPU, "
            "memory and devices, and every device with its holder, its use and memory now and "
            "over the last minutes. Only root sees steps of other users.\n\n"
            "On a terminal it goes on until q or Ctrl-C. Keys choose a step, open its log, cancel "
            "its run, sort and filter; ? lists them. Elsewhere it prints one picture, or several "
            "with --count or --interval. With --json: one picture as one line.\n\n"
            "--stack shows the hosts of a stack of stoker.yaml whose backend is ssh, one below the "
            "other; on a terminal left and right choose the one that gets the keys, and z shows it "
            "alone. A host that is away has a line that says so; exit status 3: none has answered.",
    .options = options,
    .run = run_top};
