/* Progress on a terminal: a small terminal emulator replays what was written. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/show_progress.h"
#include "show/show_testing.h"
#include "show/show_text.h"

/* --- a terminal: rows of columns, cursor up, erase --- */

enum { ROWS = 400, COLS = 200 };

typedef struct screen {
    char cells[ROWS][COLS * 4 + 1];
    int row, columns;
} screen;

/* Understands exactly the sequences that progress may use; others fail the test. */
static void replay(screen *s, const char *text)
{
    while (*text != '\0') {
        if (*text == '\n') {
            s->row++;
            assert_true(s->row < ROWS);
            text++;
        } else if (*text == '\r') {
            text++;
        } else if (*text == '\033') {
            char *end;
            long n = strtol(text + 2, &end, 10);
            assert_true(text[1] == '[');
            if (*end == 'A') {
                s->row -= (int)n;
                assert_true(s->row >= 0);
            } else if (*end == 'J') {
                for (int r = s->row; r < ROWS; r++) {
                    s->cells[r][0] = '\0';
                }
            } else {
                assert_true(*end == 'K' || *end == 'm');
            }
            text = end + 1;
        } else {
            /* A line is always written from the first column on. */
            size_t n = strcspn(text, "\n\r\033");
            assert_true(n < sizeof s->cells[0]);
            memcpy(s->cells[s->row], text, n);
            s->cells[s->row][n] = '\0';
            text += n;
            bool live = strncmp(text, "\033[K", 3) == 0;
            assert_true(!live || stk_text_width(s->cells[s->row]) < s->columns);
        }
    }
}

static int find_row(const screen *s, const char *word)
{
    for (int r = 0; r < ROWS; r++) {
        if (strstr(s->cells[r], word) != NULL) {
            return r;
        }
    }
    return -1;
}

static int n_rows_with(const screen *s, const char *word)
{
    int n = 0;
    for (int r = 0; r < ROWS; r++) {
        n += strstr(s->cells[r], word) != NULL;
    }
    return n;
}

typedef struct stage {
    stk_show_case c;
    stk_progress *p;
    stk_progress_config config;
    FILE *file;
    char *text;
    size_t len;
} stage;

static bool usage(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    (void)arg;
    *ret_memory_bytes = 1200000000;
    *ret_cpus = 1.9;
    return task == 0;
}

static void stage_open(stage *s, const char *spec, bool tty, bool quiet)
{
    *s = (stage){0};
    stk_case_new(&s->c, spec, NULL);
    s->file = open_memstream(&s->text, &s->len);
    s->config = (stk_progress_config){.out = s->file,
                                      .tty = tty,
                                      .utf8 = true,
                                      .quiet = quiet,
                                      .columns = 80,
                                      .rows = 24,
                                      .usage = usage};
    s->p = stk_progress_new(&s->config, s->c.view);
    assert_non_null(s->p);
}

static void stage_close(stage *s)
{
    stk_progress_done(s->p);
    (void)fclose(s->file);
    free(s->text);
    stk_case_done(&s->c);
}

static void feed(stage *s, stk_event_kind kind, uint32_t task, int64_t at_ms, const char *data)
{
    stk_case_feed(&s->c, kind, task, 1, at_ms, data);
    stk_event_row row = {s->c.seq, stk_case_ms(at_ms), kind, task, 1, data};
    stk_progress_event(s->p, &row);
}

static const char three[] = "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"train\":{\"run\":\"true\"},"
                            "\"test\":{\"run\":\"true\"},\"load\":{\"run\":\"true\"}}}";

static void test_terminal(void **state)
{
    (void)state;
    stage s;
    static screen scr;
    scr = (screen){.columns = 80};
    stage_open(&s, three, true, false);
    assert_true(stk_progress_tick(s.p, stk_case_ms(0)) < 0);
    feed(&s, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}");
    feed(&s, STK_EV_TASK_CACHED, 2, 1, "{}");
    feed(&s, STK_EV_TASK_STARTED, 0, 10, "{}");
    feed(&s, STK_EV_TASK_STARTED, 1, 20, "{}");
    assert_int_equal(stk_progress_tick(s.p, stk_case_ms(50)), 50); /* too early to draw again */
    assert_int_equal(s.len, 0);
    assert_true(stk_progress_tick(s.p, stk_case_ms(1010)) > 0);
    replay(&scr, s.text);
    assert_true(find_row(&scr, "load") < find_row(&scr, "train"));
    assert_true(find_row(&scr, "train") < find_row(&scr, "test"));
    assert_non_null(strstr(scr.cells[find_row(&scr, "train")], "1.00 s    1.2 GB   1.9 CPU"));
    assert_non_null(strstr(scr.cells[find_row(&scr, "1/3 steps")], "2 running"));

    size_t before = s.len;
    feed(&s, STK_EV_TASK_SUCCEEDED, 1, 2020, "{}");
    feed(&s, STK_EV_TASK_FAILED, 0, 2030,
         "{\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":true}");
    (void)stk_progress_tick(s.p, stk_case_ms(2100));
    replay(&scr, s.text + before);
    assert_true(find_row(&scr, "✓ test") < find_row(&scr, "✗ train"));
    assert_non_null(strstr(scr.cells[find_row(&scr, "✗ train")], "failed: exit status 3"));
    assert_int_equal(n_rows_with(&scr, "train"), 1); /* its live line is gone */
    assert_int_equal(n_rows_with(&scr, "steps"), 1); /* a single bar */

    before = s.len;
    stk_progress_clear(s.p);
    replay(&scr, s.text + before);
    assert_int_equal(n_rows_with(&scr, "steps"), 0);
    stage_close(&s);
}

/* Reads what the terminal has received since the last call. */
static size_t read_terminal(int master, char *text, size_t size)
{
    size_t len = 0;
    for (ssize_t n; (n = read(master, text + len, size - 1 - len)) > 0;) {
        len += (size_t)n;
    }
    text[len] = '\0';
    return len;
}

/* On a terminal that got narrower, live lines have wrapped: progress moves up that many rows. */
static void test_resize(void **state)
{
    (void)state;
    char text[8192];
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    FILE *slave = fopen(ptsname(master), "w");
    assert_non_null(slave);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);

    stage s;
    stage_open(&s, three, true, false);
    stk_progress_done(s.p);
    s.config.out = slave;
    s.config.columns = s.config.rows = 0;
    s.p = stk_progress_new(&s.config, s.c.view);
    feed(&s, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}");
    feed(&s, STK_EV_TASK_STARTED, 0, 10, "{}");
    (void)stk_progress_tick(s.p, stk_case_ms(0));
    (void)stk_progress_tick(s.p, stk_case_ms(1000));
    assert_true(read_terminal(master, text, sizeof text) > 0);
    size.ws_col = 40;
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
    (void)stk_progress_tick(s.p, stk_case_ms(2000));
    assert_true(read_terminal(master, text, sizeof text) > 0);
    const char *up = strstr(text, "\033[");
    assert_non_null(up);
    assert_int_equal(strtol(up + 2, NULL, 10), 4); /* 60 and 54 columns on 40: two rows each */
    stage_close(&s);
    (void)fclose(slave);
    (void)close(master);
}

static void test_retry(void **state)
{
    (void)state;
    stage s;
    static screen scr;
    scr = (screen){.columns = 80};
    stage_open(&s, three, true, false);
    feed(&s, STK_EV_TASK_STARTED, 0, 10, "{}");
    feed(&s, STK_EV_TASK_FAILED, 0, 500,
         "{\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":false}");
    char data[64];
    (void)snprintf(data, sizeof data, "{\"at_ms\":%lld}", (long long)stk_case_ms(3000));
    feed(&s, STK_EV_TASK_RETRYING, 0, 501, data);
    (void)stk_progress_tick(s.p, stk_case_ms(510));
    (void)stk_progress_tick(s.p, stk_case_ms(1000));
    replay(&scr, s.text);
    assert_true(find_row(&scr, "will be tried again") >= 0);
    assert_true(find_row(&scr, "next try in 2.00 s") >= 0);
    stage_close(&s);
}

static void test_piped(void **state)
{
    (void)state;
    stage s;
    stage_open(&s, three, false, false);
    feed(&s, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}");
    feed(&s, STK_EV_TASK_STARTED, 0, 10, "{}");
    feed(&s, STK_EV_TASK_SUCCEEDED, 0, 3110, "{}");
    feed(&s, STK_EV_TASK_CACHED, 1, 3111, "{}");
    feed(&s, STK_EV_NOTE, UINT32_MAX, 3112, "{\"text\":\"no \\u001b[2J GPU\"}");
    (void)stk_progress_tick(s.p, stk_case_ms(3200));
    (void)stk_progress_tick(s.p, stk_case_ms(3400));
    assert_string_equal(s.text, "start     train\ndone      train 3.10 s\ncached    test\n"
                                "note      no ?[2J GPU\n");
    stage_close(&s);
}

/* Jobs of other machines that wait for the same. */
static void test_waits(void **state)
{
    (void)state;
    stage s;
    stage_open(&s, three, false, false);
    feed(&s, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}");
    for (uint32_t i = 0; i < 3; i++) {
        feed(&s, STK_EV_NOTE, i, 10, "{\"text\":\"work waits: A\",\"waits\":\"A\"}");
    }
    feed(&s, STK_EV_NOTE, 0, 11, "{\"text\":\"work waits: B\",\"waits\":\"B\"}");
    feed(&s, STK_EV_NOTE, 0, 12, "{\"waits\":\"\"}");
    feed(&s, STK_EV_NOTE, 0, 13, "{\"text\":\"again\"}");
    feed(&s, STK_EV_NOTE, 1, 13, "{\"text\":\"again\"}");
    (void)stk_progress_tick(s.p, stk_case_ms(3200));
    (void)stk_progress_tick(s.p, stk_case_ms(3400));
    assert_string_equal(s.text, "note      work waits: A\nnote      work waits: B\n"
                                "note      again\nnote      again\n");
    stage_close(&s);
}

static void test_quiet(void **state)
{
    (void)state;
    stage s;
    stage_open(&s, three, true, true);
    feed(&s, STK_EV_TASK_STARTED, 0, 10, "{}");
    feed(&s, STK_EV_NOTE, UINT32_MAX, 20, "{\"text\":\"note\"}");
    assert_int_equal(stk_progress_tick(s.p, stk_case_ms(5000)), -1);
    stk_progress_clear(s.p);
    (void)fflush(s.file);
    assert_int_equal(s.len, 0);
    stage_close(&s);
}

/* 10,000 quick steps: few and large writes, and never too many lines on the screen. */
static void test_many(void **state)
{
    (void)state;
    STK_BUF_AUTO spec = STK_BUF_INIT(1u << 24);
    stk_buf_text(&spec, "{\"stoker\":1,\"name\":\"many\",\"steps\":{");
    for (int i = 0; i < 10000; i++) {
        stk_buf_printf(&spec, "%s\"w%d\":{\"run\":\"true\"}", i ? "," : "", i);
    }
    stk_buf_text(&spec, "}}");
    stage s;
    stage_open(&s, spec.data, true, false);
    int n_writes = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        if (i % 2 == 0) {
            feed(&s, STK_EV_TASK_CACHED, i, i, "{}");
        } else {
            feed(&s, STK_EV_TASK_STARTED, i, i, "{}");
            feed(&s, STK_EV_TASK_SUCCEEDED, i, i + 1, "{}");
        }
        size_t before = s.len;
        (void)stk_progress_tick(s.p, stk_case_ms(i));
        n_writes += s.len > before;
    }
    assert_true(n_writes <= 101);
    stk_progress_clear(s.p);
    assert_null(strstr(s.text, " w0 ")); /* cached ones are counted, not listed */
    assert_non_null(strstr(s.text, "steps cached"));
    stage_close(&s);
}

/* A foreach of 1,000: one or two lines, its first failures, and one live line. */
static void test_wide(void **state)
{
    (void)state;
    static const char spec[] =
        "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"start\":{\"run\":\"true\",\"outputs\":[\"a\"],"
        "\"next\":\"work\",\"foreach\":\"a\"},\"work\":{\"run\":\"true\",\"next\":\"end\"},"
        "\"end\":{\"run\":\"true\",\"join\":true}}}";
    static const char bad[] = "{\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":true}";
    for (int tty = 0; tty < 2; tty++) {
        stage s;
        static screen scr;
        scr = (screen){.columns = 80};
        stage_open(&s, spec, tty == 1, false);
        (void)stk_progress_tick(s.p, stk_case_ms(0));
        feed(&s, STK_EV_TASK_ADDED, 0, 0, "{\"step\":\"start\",\"n\":1,\"deps\":[]}");
        feed(&s, STK_EV_TASK_STARTED, 0, 1, "{}");
        feed(&s, STK_EV_TASK_SUCCEEDED, 0, 10, "{}");
        feed(&s, STK_EV_TASK_ADDED, 1, 10,
             "{\"step\":\"work\",\"n\":1000,\"deps\":[0],\"split\":0,\"branch\":0}");
        for (uint32_t i = 1; i <= 1000; i++) {
            feed(&s, STK_EV_TASK_STARTED, i, 10 + i, "{}");
            if (i == 500) {
                (void)stk_progress_tick(s.p, stk_case_ms(600));
                replay(&scr, s.text);
            }
            feed(&s, i % 10 == 7 ? STK_EV_TASK_FAILED : STK_EV_TASK_SUCCEEDED, i, 20 + i,
                 i % 10 == 7 ? bad : "{}");
        }
        stk_progress_clear(s.p);
        assert_true(strlen(s.text) < 8000);
        if (tty == 1) {
            const char *live = scr.cells[find_row(&scr, "work ×1,000  ")];
            assert_non_null(strstr(live, "499 done, 1 running, 50 failed"));
            assert_int_equal(find_row(&scr, "500/1,001 tasks") >= 0, 1);
        } else {
            assert_non_null(strstr(s.text, "start     work ×1,000\n"));
            assert_non_null(strstr(s.text, "failed    work/8 (item 6 of start) failed: exit"));
            assert_non_null(strstr(s.text, "1.01 s, 900 succeeded, 100 failed"));
            assert_null(strstr(s.text, "work/9 "));
        }
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal), cmocka_unit_test(test_resize),
        cmocka_unit_test(test_retry),    cmocka_unit_test(test_piped),
        cmocka_unit_test(test_waits),    cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_many),     cmocka_unit_test(test_wide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
