/* stoker top: the running steps of all runs on this host, and the state of its devices. */
#include <unistd.h>

#include "base/units.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "show/top.h"

typedef struct showing {
    const stk_cli *cli;
    stk_top *top;
} showing;

static int draw_top(void *arg, int max_lines, stk_buf *out, stk_err *err)
{
    const showing *s = arg;
    stk_style style = stk_cli_style(stdout);
    if (!isatty(STDOUT_FILENO)) { /* a file or pipe has no width to fit */
        style.columns = 1075;
    }
    return stk_top_draw(s->top, stk_cli_json(s->cli) ? NULL : &style, max_lines, out, err);
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

static int run_top(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    int64_t period_ms = 1000;
    int64_t n_times = stk_cli_flag(cli, "once") || stk_cli_json(cli);
    showing s = {.cli = cli};
    (void)out;
    STK_TRY(read_period(cli, &period_ms, &n_times, err));
    int rc = stk_top_open(&s.top, err);
    if (rc == 0) {
        rc = stk_cli_redraw(cli, period_ms, n_times, draw_top, &s, err);
    }
    stk_top_close(s.top);
    return rc;
}

static const stk_option options[] = {
    {"once", '1', NULL, "one picture, then end"},
    {"count", 'n', "N", "N pictures, then end"},
    {"interval", 'i', "TIME", "time between pictures, as 2s or 500ms (default 1s)"},
    {NULL}};

const stk_command stk_cmd_top = {
    .name = "top",
    .summary = "what runs on this host now, and what its devices do",
    .usage = "[options]",
    .text = "Shows every running step of this host, whatever its run and store, with its CPU, "
            "memory and devices, and every device with its holder. Only root sees steps of other "
            "users. Ends with q or Ctrl-C. With --json: one picture as one line.",
    .options = options,
    .run = run_top};
