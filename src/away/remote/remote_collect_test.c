/* Logs of a gang's nodes: however often they are fetched, each line is in the log once. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_private.h"
#include "base/testing.h"
#include "sys/file.h"

static char dir[] = "/tmp/stk_collect_XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

static void write_log(const char *name, const char *text)
{
    char path[128];
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0755, &err), 0);
    *slash = '/';
    assert_int_equal(stk_file_write_atomic(path, text, strlen(text), 0644, &err), 0);
}

static void check_log(const char *name, const char *text)
{
    char path[128];
    STK_TEXT_AUTO found = NULL;
    size_t len = 0;
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(stk_file_read(path, 1 << 20, &found, &len, &err), 0);
    assert_string_equal(found, text);
}

static void test_added_once(void **state)
{
    (void)state;
    stk_err err = {0};
    write_log("stdout.log", "zero");
    write_log("node-1/stdout.log", "one\n");
    write_log("node-3/stdout.log", "three\n");
    write_log("node-1/stderr.log", "alone\n");
    for (int i = 0; i < 3; i++) { /* repeating changes nothing */
        assert_int_equal(stk_remote_add_nodes(dir, 3, &err), 0);
        check_log("stdout.log", "zero\none\nthree\n");
        check_log("stderr.log", "alone\n");
    }
    write_log("node-2/stdout.log", "two\n"); /* could not be fetched before */
    assert_int_equal(stk_remote_add_nodes(dir, 3, &err), 0);
    check_log("stdout.log", "zero\none\ntwo\nthree\n");
    write_log("stdout.log", "zero"); /* fetched again */
    assert_int_equal(stk_remote_add_nodes(dir, 3, &err), 0);
    check_log("stdout.log", "zero\none\ntwo\nthree\n");
}

/* A kill cut the log off in the middle: the next call completes it. */
static void test_cut_off(void **state)
{
    char path[128];
    (void)state;
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/stdout.log", dir);
    assert_int_equal(truncate(path, 7), 0);
    assert_int_equal(stk_remote_add_nodes(dir, 3, &err), 0);
    check_log("stdout.log", "zero\none\ntwo\nthree\n");
}

static void test_told_when_it_cant(void **state)
{
    char path[128];
    (void)state;
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/stderr.log", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_true(stk_remote_add_nodes(dir, 3, &err) < 0);
    assert_non_null(strstr(err.text, "stderr.log"));
    assert_int_equal(rmdir(path), 0);
}

/* While it runs a gang's line has one mark: its rank's as in the end, else its node's. */
static void test_marked_once(void **state)
{
    (void)state;
    static const char *const parts[] = {"[2] a\n[x] b\n", "c", "d\n[13] e\n[4", "] f\n"};
    char path[128];
    bool mid_lines[2] = {0};
    (void)snprintf(path, sizeof path, "%s/live.log", dir);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const stk_remote_report r = {.node = 1, .data = parts[i], .n = strlen(parts[i])};
        stk_remote_add_log(path, 2, mid_lines, &r);
    }
    check_log("live.log", "[2] a\n[node 1] [x] b\n[node 1] cd\n[13] e\n[node 1] [4] f\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_once), cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_told_when_it_cant), cmocka_unit_test(test_marked_once)};
    return cmocka_run_group_tests_name("remote_collect", tests, setup, teardown);
}
