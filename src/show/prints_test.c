/* Lines of tasks' output: redrawn ones, escapes, ranks, lines that were printed already; and the
 * thread that writes them. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/prints_line.h"
#include "show/writer.h"

static void test_last_state(void **state)
{
    static const char *const cases[][2] = {{"plain", "plain"},     {"a\rbc", "bc"}, {"a\r", "a"},
                                           {"a\rb\r\r", "b"},      {"", ""},        {"\r\r", ""},
                                           {"\r50%\r100%", "100%"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i][0]);
        const char *text = stk_line_last_state(cases[i][0], &len);
        assert_int_equal(len, strlen(cases[i][1]));
        assert_memory_equal(text, cases[i][1], len);
    }
}

static void test_escapes(void **state)
{
    static const struct {
        const char *text, *tty, *bare;
    } cases[] = {{"plain", "plain", "plain"},
                 {"\033[31mred", "\033[31mred\033[0m", "red"},
                 {"a\033[2Jb\033[3Ac", "abc", "abc"},
                 {"\033]0;title\ab", "0;titleb", "0;titleb"},
                 {"a\tb\bc\177", "a    bc", "a    bc"},
                 {"cut\033[", "cut", "cut"},
                 {"cut\033", "cut", "cut"},
                 {"ünï", "ünï", "ünï"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int bare = 0; bare < 2; bare++) {
            STK_BUF_AUTO out = STK_BUF_INIT(1000);
            stk_line_put(&out, cases[i].text, strlen(cases[i].text), true, bare);
            assert_string_equal(out.data, bare ? cases[i].bare : cases[i].tty);
        }
        STK_BUF_AUTO raw = STK_BUF_INIT(1000);
        stk_line_put(&raw, cases[i].text, strlen(cases[i].text), false, false);
        assert_string_equal(raw.data, cases[i].text);
    }
}

static void test_ranks(void **state)
{
    static const struct {
        const char *line, *rest;
        int64_t rank;
    } cases[] = {{"[2] hello", "hello", 2},
                 {"[node 1] [12] x", "x", 12},
                 {"[node 1] hello", NULL, -1},
                 {"[a] hello", NULL, -1},
                 {"[2]hello", NULL, -1},
                 {"[2", NULL, -1},
                 {"", NULL, -1},
                 {"[] x", NULL, -1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].line;
        size_t len = strlen(text);
        assert_int_equal(stk_line_rank(&text, &len), cases[i].rank);
        assert_string_equal(text, cases[i].rest == NULL ? cases[i].line : cases[i].rest);
        assert_int_equal(len, strlen(text));
    }
}

/* Of a stack of faulthandler's those frames are shown that aren't above the user's function. */
static void test_stacks(void **state)
{
    static const struct {
        const char *line;
        bool is_ours;
    } lines[] = {{"  File \"/x/stoker/_worker/attempt.py\", line 1 in no_stack", false},
                 {"Thread 0x1 (most recent call first):", false},
                 {"  File \"t.py\", line 7 in wait", false},
                 {"  File \"/x/stoker/_worker/attempt.py\", line 3 in _call", true},
                 {"  File \"/x/stoker/_worker/server.py\", line 4 in _child", true},
                 {"  File \"t.py\", line 10 in <module>", true},
                 {"", false},
                 {"Current thread 0x2 (most recent call first):", false},
                 {"  File \"/x/stoker/_worker/attempt.py\", line 5 in _load", false},
                 {"  File \"/x/stoker/_worker/attempt.py\", line 6 in run", true},
                 {"words", false},
                 {"  File \"/x/stoker/_worker/attempt.py\", line 6 in run", false}};
    stk_line_stack at = STK_STACK_NONE;
    (void)state;
    assert_false(stk_line_has_stack(at, lines[0].line, strlen(lines[0].line)));
    assert_true(stk_line_has_stack(at, lines[1].line, strlen(lines[1].line)));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(stk_line_is_ours(&at, lines[i].line, strlen(lines[i].line)),
                         lines[i].is_ours);
    }
}

static void test_a_set_takes_each_line_once(void **state)
{
    stk_line_set set = {0};
    (void)state;
    for (int i = 0; i < 300; i++) {
        char line[16];
        (void)snprintf(line, sizeof line, "line %d", i % 100);
        stk_line_set_add(&set, line, strlen(line));
    }
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 101; i++) {
            char line[16];
            (void)snprintf(line, sizeof line, "line %d", i);
            assert_int_equal(stk_line_set_take(&set, line, strlen(line)), turn < 3 && i < 100);
        }
    }
    stk_line_set_free(&set);
}

/* The line of a gang's node is marked while it comes from another machine. */
static void test_a_nodes_mark_makes_no_other_line(void **state)
{
    static const char live[] = "[node 1] [3] loss 0.1", last[] = "[3] loss 0.1";
    stk_line_set set = {0};
    (void)state;
    stk_line_set_add(&set, live, strlen(live));
    assert_true(stk_line_set_take(&set, last, strlen(last)));
    assert_false(stk_line_set_take(&set, last, strlen(last)));
    stk_line_set_free(&set);
}

/* A full pipe holds up the thread, not the caller; texts arrive in the order of the calls. */
static void test_a_writer_never_blocks(void **state)
{
    enum { N = 1 << 20 };
    static char text[N], got[2 * N + 8];
    int fds[2];
    size_t n = 0;
    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    int kept = dup(STDOUT_FILENO);
    assert_int_equal(dup2(fds[1], STDOUT_FILENO), STDOUT_FILENO);
    memset(text, 'a', sizeof text);
    stk_writer *w = stk_writer_new();
    stk_writer_put(w, STDOUT_FILENO, text, sizeof text);
    stk_writer_go(w);
    memset(text, 'b', sizeof text);
    stk_writer_put(w, STDOUT_FILENO, text, sizeof text);
    assert_true(stk_writer_is_busy(w)); /* the pipe is full and not read */
    stk_writer_go(w);
    while (n < 2 * N) {
        struct pollfd full = {.fd = fds[0], .events = POLLIN};
        if (poll(&full, 1, 10) > 0) { /* else the thread is between the two texts */
            ssize_t some = read(fds[0], got + n, sizeof got - n);
            assert_true(some > 0);
            n += (size_t)some;
        }
        stk_writer_go(w);
    }
    assert_true(stk_writer_wait(w, -1));
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    for (size_t i = 0; i < 2 * N; i++) {
        assert_int_equal(got[i], i < N ? 'a' : 'b');
    }
    stk_writer_free(w);
    close(kept);
    close(fds[0]);
    close(fds[1]);
}

/* A signal ends the wait, and the writer can be freed even while its thread hangs in a write. */
static void test_a_signal_ends_the_waiting(void **state)
{
    enum { N = 1 << 20 };
    static char text[N];
    int fds[2], signals[2];
    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(pipe2(signals, O_CLOEXEC), 0);
    int kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    stk_writer *w = stk_writer_new();
    stk_writer_put(w, STDERR_FILENO, text, sizeof text);
    assert_int_equal(write(signals[1], "x", 1), 1);
    assert_false(stk_writer_wait(w, signals[0]));
    stk_writer_free(w);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(signals[i]);
    }
    close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_state),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_a_set_takes_each_line_once),
        cmocka_unit_test(test_a_nodes_mark_makes_no_other_line),
        cmocka_unit_test(test_a_writer_never_blocks),
        cmocka_unit_test(test_a_signal_ends_the_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
