/* Live metrics by a shared folder: whatever is sent, looked at or interrupted how often, the file
 * here has each line once. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_live.h"
#include "base/buf.h"
#include "base/testing.h"
#include "sys/file.h"

#define KEY "runs/20261122-010203-abcdef/train/0/1"
#define LIVE "runs/20261122-010203-abcdef/live/train/0/1"

static char root[] = "/tmp/stk_live_XXXXXX";
static stk_share *share;

static const char *in(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static int setup(void **state)
{
    static const char *const folders[] = {"there/rank-1", "here", "other"};
    char url[64];
    stk_err err = {0};
    (void)state;
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(stk_file_mkdirs(in(folders[i]), 0755, &err), 0);
    }
    (void)snprintf(url, sizeof url, "%s/share", root);
    return stk_share_open(url, &share, &err);
}

static int teardown(void **state)
{
    (void)state;
    stk_share_close(share);
    return stk_file_remove_tree(root, NULL);
}

/* What the program logs. */
static void log_text(const char *name, const char *text, size_t n)
{
    STK_FD_AUTO fd = stk_file_open_regular(in(name), O_WRONLY | O_CREAT | O_APPEND, 0644);
    assert_true(fd >= 0);
    assert_int_equal(stk_file_write_all(fd, text, n), 0);
}

static void send_file(stk_live_file *f)
{
    char dir[64];
    (void)snprintf(dir, sizeof dir, "%s/there", root);
    while (stk_live_send(share, KEY, dir, f)) {
    }
}

/* Looks as an engine with the attempt's directory `dir`. */
static bool fetch(const char *dir)
{
    char path[64];
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", root, dir);
    stk_live_task tasks[2] = {{.key = KEY, .dir = path},
                              {.key = "runs/20261122-010203-abcdef/train/0/2", .dir = "/nowhere"}};
    assert_int_equal(stk_live_fetch(share, tasks, 2, &err), 0);
    assert_false(tasks[1].has_any);
    return tasks[0].has_any;
}

static void check_same(const char *one, const char *two)
{
    STK_TEXT_AUTO a = NULL;
    STK_TEXT_AUTO b = NULL;
    size_t n_a = 0, n_b = 0;
    stk_err err = {0};
    assert_int_equal(stk_file_read(in(one), 8 << 20, &a, &n_a, &err), 0);
    assert_int_equal(stk_file_read(in(two), 8 << 20, &b, &n_b, &err), 0);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
}

static void test_each_once(void **state)
{
    (void)state;
    char line[64];
    stk_live_file own = {.name = "metrics.jsonl", .most = STK_LIVE_BYTES},
                  rank = {.name = "rank-1/metrics.jsonl", .most = STK_LIVE_BYTES};
    assert_false(fetch("here"));
    for (int i = 0; i < 40000; i++) { /* several pieces */
        int n = snprintf(line, sizeof line, "{\"step\":%d,\"loss\":0.5}\n", i);
        log_text("there/metrics.jsonl", line, (size_t)n);
        if (i % 7000 == 0) {
            send_file(&own);
            assert_true(fetch("here"));
            check_same("there/metrics.jsonl", "here/metrics.jsonl");
        }
    }
    send_file(&own);
    log_text("there/rank-1/metrics.jsonl", "{\"a\":1}\n", 8);
    send_file(&rank);
    for (int i = 0; i < 2; i++) { /* looking again changes nothing */
        assert_true(fetch("here"));
        check_same("there/metrics.jsonl", "here/metrics.jsonl");
        check_same("there/rank-1/metrics.jsonl", "here/rank-1/metrics.jsonl");
    }
    assert_true(own.from >= 2 * STK_LIVE_PIECE);
    assert_true(fetch("other")); /* an engine that takes over has nothing */
    check_same("there/metrics.jsonl", "other/metrics.jsonl");
    check_same("there/rank-1/metrics.jsonl", "other/rank-1/metrics.jsonl");
}

/* An engine that was killed while it wrote has a part of a line. */
static void test_goes_on_within_a_line(void **state)
{
    (void)state;
    assert_int_equal(truncate(in("here/metrics.jsonl"), STK_LIVE_PIECE + 5), 0);
    assert_true(fetch("here"));
    check_same("there/metrics.jsonl", "here/metrics.jsonl");
}

/* Keys of anybody's lead nowhere, and a file with a hole isn't made. */
static void test_foreign_keys(void **state)
{
    static const char *const keys[] = {
        LIVE "/task.json/000000000000", LIVE "/in/metrics.jsonl/000000000000",
        LIVE "/rank-x/metrics.jsonl/000000000000", LIVE "/rank-2/metrics.jsonl/000000000009",
        LIVE "/rank-3/metrics.jsonl/00000000000x"};
    static const char *const none[] = {"here/task.json", "here/in/metrics.jsonl", "here/rank-x",
                                       "here/rank-2/metrics.jsonl", "here/rank-3"};
    (void)state;
    stk_err err = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_equal(stk_share_put(share, keys[i], "{}\n", 3, false, &err), 0);
    }
    assert_true(fetch("here"));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(stk_file_exists(in(none[i])));
    }
    check_same("there/metrics.jsonl", "here/metrics.jsonl");
}

/* Logs are for who asks for them. */
static void test_logs(void **state)
{
    (void)state;
    char path[64];
    stk_err err = {0};
    stk_live_file log = {.name = "stdout.log", .most = STK_LIVE_LOG_BYTES};
    (void)snprintf(path, sizeof path, "%s/here", root);
    stk_live_task task = {.key = KEY, .dir = path};
    log_text("there/stdout.log", "one\n", 4);
    send_file(&log);
    assert_int_equal(stk_live_fetch(share, &task, 1, &err), 0);
    assert_true(task.has_any);
    assert_false(stk_file_exists(in("here/stdout.log")));
    task.wants_logs = true;
    log_text("there/stdout.log", "two\n", 4);
    send_file(&log);
    assert_int_equal(stk_live_fetch(share, &task, 1, &err), 0);
    check_same("there/stdout.log", "here/stdout.log");
}

/* A directory that was removed meanwhile isn't made again. */
static void test_no_directory(void **state)
{
    (void)state;
    (void)fetch("gone");
    assert_false(stk_file_exists(in("gone")));
}

/* TensorBoard's files, in folders; names that lead elsewhere or are another file's are left alone.
 */
static void test_events(void **state)
{
    (void)state;
    static const char name[] = "tensorboard/run/a/events.out.tfevents.1.host.0";
    static const char *const bad[] = {"tensorboard/../../x.tfevents.1",
                                      "tensorboard/.x.tfevents.1",
                                      "tensorboard//x.tfevents.1",
                                      "tensorboard/x.tfevents",
                                      "result.json",
                                      "../metrics.jsonl",
                                      "rank-1/../metrics.jsonl"};
    stk_live_file file = {.name = name, .most = STK_LIVE_BYTES};
    stk_err err = {0};
    char text[5000];
    memset(text, 'x', sizeof text);
    assert_int_equal(stk_file_mkdirs(in("there/tensorboard/run/a"), 0755, &err), 0);
    for (int i = 0; i < 30; i++) {
        log_text("there/tensorboard/run/a/events.out.tfevents.1.host.0", text, sizeof text);
        send_file(&file);
        assert_true(fetch("here"));
        check_same("there/tensorboard/run/a/events.out.tfevents.1.host.0",
                   "here/tensorboard/run/a/events.out.tfevents.1.host.0");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        STK_BUF_AUTO key = STK_BUF_INIT(4096);
        stk_buf_printf(&key, LIVE "/%s/000000000000", bad[i]);
        if (stk_share_put(share, key.data, "bad", 3, false, &err) < 0) {
            continue; /* the share itself refuses it */
        }
        STK_BUF_AUTO path = STK_BUF_INIT(4096);
        stk_buf_printf(&path, "here/%s", bad[i]);
        (void)fetch("here");
        assert_false(stk_file_exists(in(path.data)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),    cmocka_unit_test(test_goes_on_within_a_line),
        cmocka_unit_test(test_foreign_keys), cmocka_unit_test(test_logs),
        cmocka_unit_test(test_events),       cmocka_unit_test(test_no_directory)};
    return cmocka_run_group_tests_name("remote_live", tests, setup, teardown);
}
