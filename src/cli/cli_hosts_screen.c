/* The screens of all hosts of a stack. Each host has a screen of its own there, with its devices,
 * its table and its keys; this side shows them one below the other, or one alone, and passes keys
 * to the chosen one. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "cli/cli_cancelling.h"
#include "cli/cli_hosts_private.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "show/top/top.h"
#include "sys/clock.h"

enum { LEAST_ROWS_EACH = 6, SAID = 300, SAID_MS = 6000 };

typedef struct screens {
    stk_hosts *hosts;
    bool processes;
    uint32_t chosen;
    bool is_alone; /* the chosen host has the whole screen */
    stk_cli_cancelling cancelling;
    char said[SAID];
    bool is_bad;
    int64_t said_ms;
    stk_cli_frame frame;
} screens;

static void say(screens *s, const char *text, bool is_bad)
{
    (void)snprintf(s->said, sizeof s->said, "%s", text);
    s->is_bad = is_bad;
    s->said_ms = stk_clock_mono_ms(&stk_clock_real);
}

/* --- asking; all need the lock --- */

static bool is_alone(const screens *s)
{
    return s->is_alone || (s->frame.rows - 1) / (int)s->hosts->n - 1 < LEAST_ROWS_EACH;
}

static int rows_of_host(const screens *s)
{
    if (is_alone(s)) {
        return MAX(s->frame.rows - 2, 1); /* beside the hosts' names and our last line */
    }
    return (s->frame.rows - 1) / (int)s->hosts->n - 1;
}

/* `key` below 0: none, but a new look at the host. */
static void ask_screen(const screens *s, stk_seat *seat, int key)
{
    stk_hosts_ask_screen(seat, &(stk_screen_ask){.columns = s->frame.columns,
                                                 .rows = rows_of_host(s),
                                                 .processes = s->processes,
                                                 .looks = key < 0,
                                                 .key = key});
}

/* A run whose engine isn't on the host: one of our store, else of the share. */
static void cancel_away(screens *s, const char *run)
{
    stk_err err = {0};
    char text[SAID];
    (void)snprintf(text, sizeof text, "cancelling run %s", run);
    if (stk_cli_cancelling_begin(&s->cancelling, NULL, s->hosts->stack, run, &err) < 0) {
        say(s, err.text, true);
    } else {
        say(s, text, false);
    }
}

/* What keys have done meanwhile: a run to cancel here, after a yes. Returns true to end. */
static bool hear_hosts(screens *s)
{
    bool ends = false;
    for (uint32_t i = 0; i < s->hosts->n; i++) {
        stk_seat *seat = &s->hosts->seats[i];
        ends = ends || seat->quits;
        if (seat->said_yes && seat->cancel[0] != '\0') {
            cancel_away(s, seat->cancel);
        }
        seat->said_yes = seat->said_yes && seat->n_keys + seat->n_sent > 0;
        seat->cancel[0] = '\0';
    }
    return ends;
}

/* --- drawing --- */

static void put_names(const screens *s, const stk_style *style, stk_buf *out)
{
    STK_BUF_AUTO names = STK_BUF_INIT(1 << 16);
    for (uint32_t i = 0; i < s->hosts->n; i++) {
        const char *around[] = {" ", " "};
        if (i == s->chosen) {
            around[0] = "[";
            around[1] = "]";
        }
        stk_buf_printf(&names, "%s%s%s", around[0], s->hosts->seats[i].name, around[1]);
    }
    STK_BUF_AUTO line = STK_BUF_INIT(1 << 16);
    stk_text_fit(&line, stk_text_or(names.data, ""), style->columns, false, style->utf8);
    stk_text_ink(out, style, STK_INK_BOLD, stk_text_or(line.data, ""));
    stk_buf_char(out, '\n');
}

static void put_name(const screens *s, uint32_t i, const stk_style *style, stk_buf *out)
{
    static const char *const marks[] = {"  ", "> "};
    static const stk_ink inks[] = {STK_INK_DIM, STK_INK_BOLD};
    bool is_chosen = i == s->chosen;
    STK_BUF_AUTO line = STK_BUF_INIT(4096);
    stk_buf_text(out, marks[is_chosen]);
    stk_text_fit(&line, s->hosts->seats[i].name, style->columns - 2, false, style->utf8);
    stk_text_ink(out, style, inks[is_chosen], stk_text_or(line.data, ""));
    stk_buf_char(out, '\n');
}

static void put_last_line(const screens *s, const stk_style *style, stk_buf *out)
{
    STK_BUF_AUTO line = STK_BUF_INIT(4096);
    static const char *const sizes[] = {"alone", "all hosts"};
    stk_ink ink = STK_INK_DIM;
    char text[SAID];
    (void)snprintf(text, sizeof text, "left, right: another host  z %s  other keys go to %s",
                   sizes[s->is_alone], s->hosts->seats[s->chosen].name);
    const char *said = text;
    const stk_seat *seat = &s->hosts->seats[s->chosen];
    if (seat->n_keys + seat->n_sent > 0) {
        (void)snprintf(text, sizeof text, "waiting for %s, %u keys", seat->name,
                       seat->n_keys + seat->n_sent);
        ink = STK_INK_PLAIN;
    } else if (s->said[0] != '\0' && stk_clock_mono_ms(&stk_clock_real) - s->said_ms < SAID_MS) {
        said = s->said;
        ink = s->is_bad ? STK_INK_BAD : STK_INK_GOOD;
    }
    stk_text_fit(&line, said, style->columns, false, style->utf8);
    stk_text_ink(out, style, ink, stk_text_or(line.data, ""));
}

static int draw_screens(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    screens *s = arg;
    stk_hosts *h = s->hosts;
    stk_style style = stk_cli_style(stdout);
    char said[SAID];
    bool is_done = false;
    (void)err;
    if (stk_cli_cancelling_hear(&s->cancelling, said, sizeof said, &is_done)) {
        say(s, said, !is_done);
    }
    (void)pthread_mutex_lock(&h->lock);
    bool is_other_size = frame->rows != s->frame.rows || frame->columns != s->frame.columns;
    s->frame = *frame;
    style.columns = frame->columns;
    if (frame->is_due || is_other_size) {
        for (uint32_t i = 0; i < h->n; i++) {
            ask_screen(s, &h->seats[i], -1);
        }
        stk_hosts_wait(h, NULL, EACH_MS);
    }
    bool ends = hear_hosts(s);
    if (is_alone(s)) {
        put_names(s, &style, out);
        stk_hosts_put_screen(&h->seats[s->chosen], &style, rows_of_host(s), out);
    }
    int used = is_alone(s) ? frame->rows - 1 : 0;
    for (uint32_t i = 0; i < h->n && !is_alone(s); i++) {
        put_name(s, i, &style, out);
        stk_hosts_put_screen(&h->seats[i], &style, rows_of_host(s), out);
        used += rows_of_host(s) + 1;
    }
    for (; used < frame->rows - 1; used++) {
        stk_buf_char(out, '\n');
    }
    put_last_line(s, &style, out);
    (void)pthread_mutex_unlock(&h->lock);
    return ends;
}

/* --- keys --- */

/* Passes the key on, and waits for what it does unless others wait already. Returns true to end. */
static bool pass_key(screens *s, int key)
{
    stk_hosts *h = s->hosts;
    stk_seat *seat = &h->seats[s->chosen];
    char buf[64];
    bool is_away = stk_hosts_say_away(seat, buf, sizeof buf) != NULL;
    if (is_away && (key == 'q' || key == 'Q' || key == 4)) {
        return true;
    }
    if (is_away && !seat->is_late) { /* it has no screen for a key */
        return false;
    }
    seat->said_yes = seat->said_yes || stk_hosts_is_yes(key);
    ask_screen(s, seat, key);
    stk_hosts_wait(h, seat, EACH_MS);
    return hear_hosts(s);
}

/* It may do so once it has got the keys that wait for it. */
static bool takes_text(const stk_seat *seat)
{
    return seat->types || seat->n_keys + seat->n_sent > 0;
}

static bool press_screens(void *arg, int key)
{
    screens *s = arg;
    stk_hosts *h = s->hosts;
    bool ends = false;
    s->said[0] = '\0';
    (void)pthread_mutex_lock(&h->lock);
    if (key == STK_KEY_LEFT || key == STK_KEY_RIGHT) {
        s->chosen = (s->chosen + h->n + (key == STK_KEY_RIGHT) - (key == STK_KEY_LEFT)) % h->n;
    } else if (key == 'z' && !takes_text(&h->seats[s->chosen])) {
        s->is_alone = !s->is_alone;
        s->frame.rows = 0; /* all are asked again */
    } else {
        ends = pass_key(s, key);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return ends;
}

int stk_cli_hosts_screen(const stk_cli *cli, const char *name, bool processes, int64_t period_ms,
                         int64_t n_times, stk_err *err)
{
    screens s = {.processes = processes, .cancelling = STK_CLI_CANCELLING_NONE};
    const stk_cli_look look = {.op = "screen", .form = "text", .n_times = n_times};
    const stk_cli_picture picture = {.draw = draw_screens, .key = press_screens, .arg = &s};
    int rc = stk_hosts_open(cli, name, &look, &s.hosts, err);
    if (rc == 0) {
        rc = stk_cli_redraw(cli, period_ms, n_times, &picture, err);
    }
    if (rc == 0 && !s.hosts->has_heard) {
        rc = 3;
    }
    stk_hosts_close(s.hosts);
    stk_cli_cancelling_done(&s.cancelling);
    return rc;
}
