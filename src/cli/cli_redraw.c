#include "cli/cli_redraw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli_screen.h"
#include "sys/clock.h"

enum { KEYS = 64, LEAST_ROWS = 3, LEAST_COLUMNS = 20 };

bool stk_cli_has_screen(void)
{
    return isatty(STDOUT_FILENO) && strcmp(stk_text_or(getenv("TERM"), "dumb"), "dumb") != 0;
}

static void read_size(stk_cli_frame *frame)
{
    struct winsize size = {0};
    frame->rows = 24;
    frame->columns = 80;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
        frame->rows = MAX(size.ws_row, LEAST_ROWS);
        frame->columns = MAX(size.ws_col, LEAST_COLUMNS);
    }
}

static int draw_once(const stk_cli_picture *p, stk_cli_frame *frame, stk_err *err)
{
    STK_BUF_AUTO picture = STK_BUF_INIT(64u << 20);
    if (frame->is_screen) {
        read_size(frame);
    }
    int rc = p->draw(p->arg, frame, &picture, err);
    if (rc != 0) {
        return rc;
    }
    STK_TRY(stk_buf_check(&picture, err));
    if (frame->is_screen) {
        stk_cli_screen_put(&picture, frame->rows);
        return 0;
    }
    (void)fwrite(picture.data, 1, picture.len, stdout);
    return fflush(stdout) != 0;
}

/* Passes the keys on. Returns true to end. */
static bool pass_keys(const stk_cli_picture *p, const int *keys, int n)
{
    for (int i = 0; i < n; i++) {
        bool ends = p->key == NULL ? keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 4
                                   : p->key(p->arg, keys[i]);
        if (ends) {
            return true;
        }
    }
    return false;
}

/* Waits until the next picture is due, and draws meanwhile what has changed. Returns 1: the end. */
static int pause_or_end(const stk_cli_picture *p, stk_cli_frame *frame, int64_t until_ms,
                        stk_err *err)
{
    int keys[KEYS];
    frame->is_due = false;
    for (int64_t left; (left = until_ms - stk_clock_mono_ms(&stk_clock_real)) > 0;) {
        int n = stk_cli_screen_wait(left, keys, KEYS);
        if (stk_cli_screen_has_ended() || pass_keys(p, keys, n)) {
            return 1;
        }
        int rc = 0;
        if (frame->is_screen && stk_clock_mono_ms(&stk_clock_real) < until_ms) {
            rc = draw_once(p, frame, err);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return stk_cli_screen_has_ended();
}

int stk_cli_redraw(const stk_cli *cli, int64_t period_ms, int64_t n_times,
                   const stk_cli_picture *picture, stk_err *err)
{
    stk_cli_frame frame = {.is_screen = n_times != 1 && !stk_cli_json(cli) && stk_cli_has_screen()};
    int rc = 0;
    if (n_times != 1) {
        stk_cli_screen_open(frame.is_screen);
    }
    for (int64_t i = 0; rc == 0 && !stk_cli_screen_has_ended() && (n_times == 0 || i < n_times);
         i++) {
        int64_t next_ms = stk_clock_mono_ms(&stk_clock_real) + period_ms;
        frame.is_due = true;
        rc = draw_once(picture, &frame, err);
        if (rc == 0 && (n_times == 0 || i + 1 < n_times)) {
            rc = pause_or_end(picture, &frame, next_ms, err);
        }
    }
    stk_cli_screen_close();
    return MIN(rc, 0);
}
