/* The screen: its parts, and what keys do to them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/top/top_private.h"
#include "sys/clock.h"

enum { FILTER = 64, SAID = 300, SAID_MS = 6000, SIZES = 3 };
enum { PROCESSES_BY_DEVICE = 2 }; /* the column that this table begins with */

typedef enum { SEES_TABLE, SEES_HELP, SEES_LOG, TYPES_FILTER, IS_ASKED } mode;

struct stk_top_screen {
    stk_top *top;
    stk_arena *arena; /* of the table */
    mode mode;
    bool processes;
    int size; /* of devices: 0 as large as they fit, 1 a line each, 2 none */
    stk_top_sort sorts[2];
    char filter[FILTER];
    stk_top_table table; /* as it was drawn last */
    pid_t chosen;
    uint32_t at, first, page;
    char said[SAID];
    bool is_bad;
    int64_t said_ms;
    stk_top_log log;
    char asked_store[1024], asked_run[128], question[SAID];
};

stk_top_screen *stk_top_screen_new(stk_top *top, bool processes)
{
    stk_top_screen *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->top = top;
    s->processes = processes;
    s->sorts[0].column = STK_TOP_BY_TIME;
    s->sorts[1].column = PROCESSES_BY_DEVICE;
    s->arena = stk_arena_new(0);
    if (s->arena == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

void stk_top_screen_free(stk_top_screen *s)
{
    if (s != NULL) {
        stk_arena_free(s->arena);
        free(s);
    }
}

void stk_top_screen_say(stk_top_screen *s, const char *text, bool is_bad)
{
    (void)snprintf(s->said, sizeof s->said, "%s", text);
    s->is_bad = is_bad;
    s->said_ms = stk_clock_mono_ms(&stk_clock_real);
}

void stk_top_screen_asked(const stk_top_screen *s, const char **ret_store, const char **ret_run)
{
    *ret_store = s->asked_store;
    *ret_run = s->asked_run;
}

bool stk_top_screen_types(const stk_top_screen *s)
{
    return s->mode == TYPES_FILTER || s->mode == IS_ASKED;
}

/* --- keys --- */

/* The attempt of the chosen line, or NULL and a message. */
static const stk_live_task *get_chosen(stk_top_screen *s)
{
    char text[SAID];
    if (s->at >= s->table.n) {
        stk_top_screen_say(s, "no step is chosen", true);
        return NULL;
    }
    const stk_top_line *line = &s->table.lines[s->at];
    if (line->row == NULL) {
        (void)snprintf(text, sizeof text, "process %d is no step of a run", (int)line->pid);
        stk_top_screen_say(s, text, true);
        return NULL;
    }
    return line->row->task;
}

static void open_log(stk_top_screen *s)
{
    const stk_live_task *task = get_chosen(s);
    char step[160];
    if (task != NULL) {
        s->log = (stk_top_log){0};
        stk_top_step_name(task, step, sizeof step);
        (void)snprintf(s->log.dir, sizeof s->log.dir, "%s", task->dir);
        (void)snprintf(s->log.title, sizeof s->log.title, "%s/%s", task->run, step);
        s->mode = SEES_LOG;
    }
}

static void ask_to_cancel(stk_top_screen *s)
{
    const stk_live_task *task = get_chosen(s);
    if (task == NULL) {
        return;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->top->n_rows; i++) {
        n += strcmp(s->top->rows[i].task->run, task->run) == 0;
    }
    (void)snprintf(s->asked_run, sizeof s->asked_run, "%s", task->run);
    (void)snprintf(s->asked_store, sizeof s->asked_store, "%s", task->dir);
    for (int i = 0; i < 5; i++) { /* STORE/runs/RUN/STEP/TASK/ATTEMPT */
        char *slash = strrchr(s->asked_store, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    (void)snprintf(s->question, sizeof s->question, "Cancel? y/n  run %s, %u step%s here",
                   task->run, n, stk_text_plural(n));
    s->mode = IS_ASKED;
}

static void sort_by_next(stk_top_screen *s, int by)
{
    stk_top_sort *sort = &s->sorts[s->processes];
    uint32_t n = stk_top_n_columns(s->processes);
    *sort = (stk_top_sort){.column = (sort->column + n + (uint32_t)by) % n};
}

static void choose_line(stk_top_screen *s, int64_t at)
{
    s->at = (uint32_t)MAX(MIN(at, (int64_t)s->table.n - 1), 0);
    s->chosen = s->at < s->table.n ? s->table.lines[s->at].pid : 0;
}

/* The chosen line stays on its process while others come and go. */
static void find_chosen(stk_top_screen *s)
{
    uint32_t at = s->at;
    for (uint32_t i = 0; i < s->table.n; i++) {
        if (s->table.lines[i].pid == s->chosen) {
            at = i;
            break;
        }
    }
    choose_line(s, at);
}

/* The lines as the filter and the order are now. */
static int make_table(stk_top_screen *s, stk_err *err)
{
    stk_arena_reset(s->arena);
    STK_TRY(stk_top_table_make(s->top, s->processes, s->filter, &s->sorts[s->processes], s->arena,
                               &s->table, err));
    find_chosen(s);
    return 0;
}

static bool move_chosen(stk_top_screen *s, int key)
{
    int64_t at = s->at, page = MAX(s->page, 1);
    switch (key) {
    case STK_KEY_UP:
        choose_line(s, at - 1);
        return true;
    case STK_KEY_DOWN:
        choose_line(s, at + 1);
        return true;
    case STK_KEY_PAGE_UP:
        choose_line(s, at - page);
        return true;
    case STK_KEY_PAGE_DOWN:
        choose_line(s, at + page);
        return true;
    case STK_KEY_HOME:
        choose_line(s, 0);
        return true;
    case STK_KEY_END:
        choose_line(s, INT32_MAX);
        return true;
    default:
        return false;
    }
}

static stk_top_act press_in_table(stk_top_screen *s, int key)
{
    if (move_chosen(s, key)) {
        return STK_TOP_STAY;
    }
    switch (key) {
    case 'q':
    case 'Q':
    case 4: /* Ctrl-D */
        return STK_TOP_QUIT;
    case '?':
    case 'h':
        s->mode = SEES_HELP;
        break;
    case '/':
        s->mode = TYPES_FILTER;
        break;
    case STK_KEY_ESCAPE:
        s->filter[0] = '\0';
        break;
    case '\n':
    case STK_KEY_ENTER:
    case 'l':
        open_log(s);
        break;
    case 'k':
        ask_to_cancel(s);
        break;
    case 's':
        sort_by_next(s, 1);
        break;
    case 'S':
        sort_by_next(s, -1);
        break;
    case 'r':
        s->sorts[s->processes].is_turned ^= true;
        break;
    case 'g':
        s->size = (s->size + 1) % SIZES;
        break;
    case STK_KEY_TAB:
        s->processes ^= true;
        break;
    default:
        break;
    }
    return STK_TOP_STAY;
}

static void press_in_filter(stk_top_screen *s, int key)
{
    size_t n = strlen(s->filter);
    if (key == STK_KEY_ENTER || key == '\n') {
        s->mode = SEES_TABLE;
    } else if (key == STK_KEY_ESCAPE) {
        s->filter[0] = '\0';
        s->mode = SEES_TABLE;
    } else if (key == STK_KEY_ERASE || key == 8) {
        while (n > 0 && (s->filter[n - 1] & 0xC0) == 0x80) { /* the rest of a character */
            n--;
        }
        s->filter[MAX(n, 1) - 1] = '\0';
    } else if (key >= ' ' && key < 256 && n + 1 < sizeof s->filter) {
        s->filter[n] = (char)key;
        s->filter[n + 1] = '\0';
    }
}

static stk_top_act press_in_log(stk_top_screen *s, int key)
{
    switch (key) {
    case STK_KEY_TAB:
        s->log.errors ^= true;
        s->log.back = 0;
        break;
    case STK_KEY_UP:
        s->log.back++;
        break;
    case STK_KEY_DOWN:
        s->log.back -= s->log.back > 0;
        break;
    case STK_KEY_PAGE_UP:
        s->log.back += s->page;
        break;
    case STK_KEY_PAGE_DOWN:
        s->log.back -= MIN(s->log.back, s->page);
        break;
    case STK_KEY_HOME:
        s->log.back = INT32_MAX;
        break;
    case STK_KEY_END:
        s->log.back = 0;
        break;
    case 4:
        return STK_TOP_QUIT;
    case 'q':
    case '\n':
    case STK_KEY_ENTER:
    case STK_KEY_ESCAPE:
        s->mode = SEES_TABLE;
        break;
    default:
        break;
    }
    return STK_TOP_STAY;
}

stk_top_act stk_top_screen_key(stk_top_screen *s, int key)
{
    s->said[0] = '\0';
    if (make_table(s, NULL) < 0) { /* keys come faster than pictures */
        s->table.n = 0;
    }
    switch (s->mode) {
    case TYPES_FILTER:
        press_in_filter(s, key);
        return STK_TOP_STAY;
    case SEES_LOG:
        return press_in_log(s, key);
    case SEES_HELP:
        s->mode = SEES_TABLE;
        return STK_TOP_STAY;
    case IS_ASKED:
        s->mode = SEES_TABLE;
        if (key == 'y' || key == 'Y') {
            return STK_TOP_CANCEL;
        }
        return STK_TOP_STAY;
    case SEES_TABLE:
        break;
    }
    return press_in_table(s, key);
}

/* --- drawing --- */

static const struct {
    const char *key, *does;
} keys[] = {
    {"q, Ctrl-C", "end"},
    {"up, down", "choose a line"},
    {"Enter", "the step's log as it grows"},
    {"k", "cancel its run; asks first"},
    {"/", "lines with a text; Esc: all"},
    {"s, S", "sort by next, former column"},
    {"r", "turn the order round"},
    {"Tab", "steps, or device programs"},
    {"g", "devices large, small, none"},
    {"Ctrl-Z", "leave for a while"},
};

/* Returns the number of lines. */
static int put_help(const stk_style *style, int rows, stk_buf *out)
{
    int n = 0;
    stk_text_ink(out, style, STK_INK_BOLD, "Keys");
    stk_buf_char(out, '\n');
    for (size_t i = 0; i < sizeof keys / sizeof *keys && n + 2 < rows; i++, n++) {
        stk_buf_text(out, "  ");
        stk_text_fit(out, keys[i].key, 10, true, style->utf8);
        stk_text_fit(out, keys[i].does, style->columns - 12, false, style->utf8);
        stk_buf_char(out, '\n');
    }
    return n + 1;
}

static void put_last_line(const stk_top_screen *s, const stk_style *style, stk_buf *out)
{
    char text[SAID];
    stk_ink ink = STK_INK_DIM;
    const char *column = stk_top_column(s->processes, s->sorts[s->processes].column);
    bool is_said = s->said[0] != '\0' && stk_clock_mono_ms(&stk_clock_real) - s->said_ms < SAID_MS;
    if (s->mode == IS_ASKED) {
        ink = STK_INK_WARN;
        (void)snprintf(text, sizeof text, "%s", s->question);
    } else if (s->mode == TYPES_FILTER) {
        ink = STK_INK_PLAIN;
        (void)snprintf(text, sizeof text, "/%s_", s->filter);
    } else if (is_said) {
        ink = s->is_bad ? STK_INK_BAD : STK_INK_GOOD;
        (void)snprintf(text, sizeof text, "%s", s->said);
    } else if (s->mode == SEES_LOG) {
        (void)snprintf(text, sizeof text, "q back  Tab %s  up, down, End",
                       s->log.errors ? "stdout" : "stderr");
    } else if (s->mode == SEES_HELP) {
        (void)snprintf(text, sizeof text, "any key: back");
    } else if (s->filter[0] != '\0') {
        (void)snprintf(text, sizeof text, "%u of %u with '%s'  Esc all  q end  ? keys", s->table.n,
                       s->table.n_all, s->filter);
    } else {
        (void)snprintf(text, sizeof text,
                       "q end  ? keys  Enter log  k cancel  / filter  s sort (%s)  Tab %s", column,
                       s->processes ? "steps" : "programs");
    }
    STK_BUF_AUTO line = STK_BUF_INIT(4096);
    stk_text_fit(&line, text, style->columns, false, style->utf8);
    stk_text_ink(out, style, ink, stk_text_or(line.data, ""));
}

/* Returns the number of lines. */
static int put_table(stk_top_screen *s, const stk_style *style, int room, stk_buf *out)
{
    uint32_t page = s->page = (uint32_t)MAX(room - 1, 1);
    s->first = MIN(s->first, s->at);
    if (s->at >= s->first + page) {
        s->first = s->at - page + 1;
    }
    if (s->table.n <= page) {
        s->first = 0;
    }
    stk_top_table_put(&s->table, style, &s->sorts[s->processes], s->first, s->at, room, out);
    if (s->table.n > 0 || room < 2) {
        return 1 + (int)MIN(s->table.n - s->first, page);
    }
    const char *nothing = s->processes ? "  no program on a device" : "  no step runs on this host";
    if (s->table.n_all > 0) {
        nothing = "  no line has this text";
    }
    stk_text_ink(out, style, STK_INK_DIM, nothing);
    stk_buf_char(out, '\n');
    return 2;
}

static bool log_has_ended(const stk_top_screen *s)
{
    for (uint32_t i = 0; i < s->top->n_rows; i++) {
        if (strcmp(s->top->rows[i].task->dir, s->log.dir) == 0) {
            return false;
        }
    }
    return true;
}

int stk_top_screen_draw(stk_top_screen *s, const stk_style *style, int rows, stk_buf *out,
                        stk_err *err)
{
    int used = 0, body = MAX(rows - 1, 1);
    STK_TRY(make_table(s, err));
    if (s->mode == SEES_LOG) {
        s->page = (uint32_t)MAX(body - 2, 1);
        stk_top_log_put(&s->log, log_has_ended(s), style, body, out);
        used = body;
    } else if (s->mode == SEES_HELP) {
        used = put_help(style, body, out);
    } else {
        int lines = stk_top_table_lines(s->table.n, body);
        if (s->size < SIZES - 1) {
            used = stk_top_put_units(s->top, style, MAX(body - lines, 2), s->size, out);
        }
        used += put_table(s, style, MAX(body - used, 1), out);
    }
    for (; used < body; used++) {
        stk_buf_char(out, '\n');
    }
    put_last_line(s, style, out);
    return 0;
}
