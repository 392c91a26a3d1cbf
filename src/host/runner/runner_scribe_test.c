/* Logs through a scribe: no value reaches the disk and no other byte is lost, whichever process
 * dies. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/runner/runner.h"
#include "host/runner/runner_scribe.h"
#include "sys/file.h"

#define SECRET "correct-horse-battery-staple"
#define STARS "****************************"

typedef struct fixture {
    char dir[64];
    int fds[2];
    stk_scribe *scribe;
} fixture;

static int setup(void **state)
{
    static const char *const values[] = {SECRET, NULL};
    fixture *f = calloc(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/stoker-scribe-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    stk_err err = {0};
    assert_int_equal(stk_scribe_open(f->dir, values, f->fds, &f->scribe, &err), 0);
    assert_non_null(f->scribe);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    stk_file_close(&f->fds[0]);
    stk_file_close(&f->fds[1]);
    stk_scribe_close(f->scribe);
    (void)stk_file_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

static char *log_of(const fixture *f, const char *name)
{
    static char *text;
    char path[128];
    size_t len = 0;
    free(text);
    text = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", f->dir, name);
    assert_int_equal(stk_file_read(path, 1 << 30, &text, &len, NULL), 0);
    return text;
}

/* Waits until the log has exactly this text. */
static void expect_log(const fixture *f, const char *name, const char *text)
{
    for (int i = 0; i < 12000 && strcmp(log_of(f, name), text) != 0; i++) {
        usleep(10000);
    }
    assert_string_equal(log_of(f, name), text);
}

static void put(const fixture *f, int stream, const char *text)
{
    assert_int_equal(stk_file_write_all(f->fds[stream], text, strlen(text)), 0);
}

/* Waits for the scribe's end, and renews it if it was killed. */
static void finish(fixture *f)
{
    stk_err err = {0};
    stk_scribe_finish(f->scribe);
    while (!stk_scribe_is_done(f->scribe)) {
        struct pollfd on = {.fd = stk_scribe_fd(f->scribe), .events = POLLIN};
        assert_int_equal(poll(&on, 1, 60000), 1);
        if (!stk_scribe_is_done(f->scribe)) {
            assert_int_equal(stk_scribe_renew(f->scribe, &err), 0);
        }
    }
}

static void test_what_is_written(void **state)
{
    fixture *f = *state;
    put(f, 0, "it is " SECRET "\ncorrect-horse");
    put(f, 1, "oops " SECRET);
    expect_log(f, "stdout.log", "it is " STARS "\n"); /* the rest may be the beginning of a value */
    put(f, 0, "-battery-staple, cut in two; correct-horse");
    expect_log(f, "stderr.log", "oops " STARS);
    expect_log(f, "stdout.log", "it is " STARS "\n" STARS ", cut in two; ");
    finish(f);
    assert_string_equal(log_of(f, "stdout.log"),
                        "it is " STARS "\n" STARS ", cut in two; correct-horse");
}

static void test_its_end_is_that_of_the_last_writer(void **state)
{
    fixture *f = *state;
    pid_t pid = fork();
    if (pid == 0) {
        usleep(200000);
        put(f, 0, "a child's last word");
        _exit(0);
    }
    stk_file_close(&f->fds[0]);
    stk_file_close(&f->fds[1]);
    assert_true(stk_runner_attempt_is_live(f->dir));
    struct pollfd on = {.fd = stk_scribe_fd(f->scribe), .events = POLLIN};
    assert_int_equal(poll(&on, 1, 60000), 1);
    assert_true(stk_scribe_is_done(f->scribe));
    assert_string_equal(log_of(f, "stdout.log"), "a child's last word");
    stk_scribe_close(f->scribe);
    f->scribe = NULL;
    assert_false(stk_runner_attempt_is_live(f->dir));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Kills the engine, here a process of its own: text that the step writes later still arrives. */
static void test_the_engine_dies(void **state)
{
    fixture *f = *state;
    static const char *const values[] = {SECRET, NULL};
    char dir[] = "/tmp/stoker-scribe-XXXXXX";
    int go[2];
    stk_file_close(&f->fds[0]);
    stk_file_close(&f->fds[1]);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pipe(go), 0);
    pid_t engine = fork();
    if (engine == 0) {
        stk_scribe *s = NULL;
        int fds[2];
        (void)stk_scribe_open(dir, values, fds, &s, NULL);
        if (fork() == 0) { /* the step */
            char word;
            (void)setsid();
            (void)close(go[1]);
            while (read(go[0], &word, 1) > 0) {
            }
            dprintf(fds[0], "after: " SECRET "\n");
            _exit(0);
        }
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(engine, NULL, 0), engine);
    close(go[0]);
    close(go[1]);
    fixture other = {0};
    (void)snprintf(other.dir, sizeof other.dir, "%s", dir);
    expect_log(&other, "stdout.log", "after: " STARS "\n");
    for (int i = 0; i < 12000 && stk_runner_attempt_is_live(dir); i++) {
        usleep(10000);
    }
    assert_false(stk_runner_attempt_is_live(dir));
    (void)stk_file_remove_tree(dir, NULL);
}

/* Kills the scribe at random moments, many times: the log has every byte once. */
static void test_the_scribe_dies(void **state)
{
    enum { LINES = 60000 };
    fixture *f = *state;
    pid_t writer = fork();
    if (writer == 0) {
        for (int i = 0; i < LINES; i++) {
            char line[100];
            int n = snprintf(line, sizeof line, "%d " SECRET " %d\n", i, i);
            (void)stk_file_write_all(f->fds[0], line, (size_t)n);
        }
        _exit(0);
    }
    stk_file_close(&f->fds[0]);
    stk_file_close(&f->fds[1]);
    srand(11);
    int n_killed = 0;
    stk_err err = {0};
    while (!stk_scribe_is_done(f->scribe)) {
        struct pollfd on = {.fd = stk_scribe_fd(f->scribe), .events = POLLIN};
        usleep((useconds_t)(rand() % 1500));
        if (n_killed < 400) {
            stk_scribe_kill(f->scribe);
            n_killed++;
        }
        (void)poll(&on, 1, 60000);
        if (!stk_scribe_is_done(f->scribe)) {
            assert_int_equal(stk_scribe_renew(f->scribe, &err), 0);
        }
    }
    assert_int_equal(waitpid(writer, NULL, 0), writer);
    assert_true(n_killed > 3);
    char *log = log_of(f, "stdout.log");
    for (int i = 0; i < LINES; i++) {
        char line[100];
        int n = snprintf(line, sizeof line, "%d " STARS " %d\n", i, i);
        if (strncmp(log, line, (size_t)n) != 0) {
            fail_msg("line %d is '%.60s' after %d kills", i, log, n_killed);
        }
        log += n;
    }
    assert_string_equal(log, "");
}

static void test_a_full_disk(void **state)
{
    fixture *f = *state;
    int why = 0;
    struct rlimit small = {100, 100};
    assert_int_equal(prlimit(stk_scribe_pid(f->scribe), RLIMIT_FSIZE, &small, NULL), 0);
    char line[200];
    memset(line, 'x', sizeof line);
    assert_int_equal(stk_file_write_all(f->fds[0], line, sizeof line), 0);
    finish(f);
    assert_int_equal(stk_scribe_lost(f->scribe, &why), 100);
    assert_int_equal(why, EFBIG);
    assert_int_equal(strlen(log_of(f, "stdout.log")), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_its_end_is_that_of_the_last_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_engine_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_scribe_dies, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
