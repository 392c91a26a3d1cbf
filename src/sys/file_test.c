#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/testing.h"
#include "sys/clock.h"
#include "sys/file.h"

static char dir[] = "/tmp/stk_file_test_XXXXXX";

static const char *at(const char *name)
{
    static char text[4][512];
    static unsigned i;
    char *buf = text[i++ % 4];
    (void)snprintf(buf, sizeof text[0], "%s/%s", dir, name);
    return buf;
}

static void test_absolute(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {{"/", "/"},           {"//", "/"},         {"/a//b/", "/a/b"},
                 {"/a/./b/.", "/a/b"}, {"/a/../b", "/b"},   {"/..", "/"},
                 {"/../../a", "/a"},   {"/a/b/../..", "/"}, {"/a/..b/...", "/a/..b/..."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_TEXT_AUTO out = stk_file_absolute(cases[i].in);
        assert_string_equal(out, cases[i].out);
    }
    STK_TEXT_AUTO cwd = getcwd(NULL, 0);
    STK_TEXT_AUTO want = stk_file_join(cwd, "x");
    STK_TEXT_AUTO got = stk_file_absolute("y/../x");
    assert_string_equal(got, want);
}

static void test_join(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b, *out;
    } cases[] = {{"a", "b", "a/b"}, {"a//", "b", "a/b"}, {"/", "b", "/b"}, {"//", "b", "/b"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_TEXT_AUTO out = stk_file_join(cases[i].a, cases[i].b);
        assert_string_equal(out, cases[i].out);
    }
    STK_TEXT_AUTO below = stk_file_below("a/b", "c");
    STK_TEXT_AUTO absolute = stk_file_below("a/b", "/c");
    STK_TEXT_AUTO here = stk_file_below(NULL, "c");
    assert_string_equal(below, "a/b/c");
    assert_string_equal(absolute, "/c");
    assert_string_equal(here, "./c");
}

static void test_read_write(void **state)
{
    (void)state;
    stk_err err;
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    assert_int_equal(stk_file_write_atomic(at("f"), "a\0b", 3, 0600, &err), 0);
    assert_int_equal(stk_file_read(at("f"), 3, &data, &len, &err), 0);
    assert_int_equal(len, 3);
    assert_memory_equal(data, "a\0b", 4);
    struct stat st;
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);

    char *none = NULL;
    assert_int_equal(stk_file_read(at("f"), 2, &none, &len, &err), STK_E_LIMIT);
    assert_non_null(strstr(err.text, "more than the 2"));
    assert_int_equal(stk_file_read(at("g"), 2, &none, &len, &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_file_read(dir, 2, &none, &len, &err), STK_E_SYS);
    assert_int_equal(stk_file_write(at("no/f"), "x", 1, 0600, &err), STK_E_SYS);
    assert_null(none);

    int fds[2]; /* a pipe has no size: the buffer grows while reading */
    assert_int_equal(pipe(fds), 0);
    char big[20000];
    memset(big, 'x', sizeof big);
    assert_int_equal(stk_file_write_all(fds[1], big, sizeof big), 0);
    (void)close(fds[1]);
    STK_TEXT_AUTO piped = NULL;
    assert_int_equal(stk_file_read_fd(fds[0], "pipe", 20000, &piped, &len, &err), 0);
    assert_int_equal(len, sizeof big);
    (void)close(fds[0]);
}

static void test_untrusted(void **state)
{
    (void)state;
    stk_err err;
    char *none = NULL;
    size_t len;
    assert_int_equal(stk_file_write(at("real"), "x", 1, 0600, &err), 0);
    assert_int_equal(symlink(at("real"), at("link")), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    STK_TEXT_AUTO data = NULL;
    assert_int_equal(stk_file_read_untrusted(at("real"), 9, &data, &len, &err), 0);
    assert_int_equal(stk_file_read_untrusted(at("link"), 9, &none, &len, &err), STK_E_PROTOCOL);
    assert_int_equal(stk_file_read_untrusted(at("fifo"), 9, &none, &len, &err), STK_E_PROTOCOL);
    assert_int_equal(stk_file_read_untrusted(at("none"), 9, &none, &len, &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_file_open_regular(at("fifo"), O_WRONLY | O_CREAT, 0600), -1);
    assert_int_equal(stk_file_open_regular(at("fifo"), O_RDWR, 0), -1);
    assert_int_equal(stk_file_open_regular(at("link"), O_RDWR, 0), -1);
    STK_FD_AUTO fd = stk_file_open_regular(at("real"), O_RDWR | O_APPEND, 0);
    assert_int_equal(fcntl(fd, F_GETFL) & (O_APPEND | O_NONBLOCK), O_APPEND);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    if (geteuid() == 0) {
        assert_int_equal(chown(at("real"), 12345, 0), 0);
        assert_int_equal(stk_file_read_untrusted(at("real"), 9, &none, &len, &err), STK_E_PROTOCOL);
        assert_non_null(strstr(err.text, "12345"));
    }
    assert_null(none);
}

static void test_mkdirs(void **state)
{
    (void)state;
    stk_err err;
    assert_int_equal(stk_file_mkdirs(at("m/a/b//c/"), 0755, &err), 0);
    assert_int_equal(stk_file_mkdirs(at("m/a/b//c/"), 0755, &err), 0);
    assert_true(stk_file_exists(at("m/a/b/c")));
    assert_int_equal(stk_file_write(at("m/file"), "x", 1, 0600, &err), 0);
    assert_int_equal(stk_file_mkdirs(at("m/file/d"), 0755, &err), STK_E_SYS);
    assert_int_equal(err.sys, ENOTDIR);
}

static void test_remove_tree(void **state)
{
    (void)state;
    stk_err err;
    assert_int_equal(stk_file_remove_tree(at("absent"), &err), 0);
    assert_int_equal(stk_file_mkdirs(at("keep"), 0755, &err), 0);
    assert_int_equal(stk_file_write(at("keep/f"), "x", 1, 0444, &err), 0);
    assert_int_equal(stk_file_mkdirs(at("t/a/b"), 0755, &err), 0);
    assert_int_equal(stk_file_write(at("t/a/b/f"), "x", 1, 0444, &err), 0);
    assert_int_equal(symlink(at("keep"), at("t/a/link")), 0);
    assert_int_equal(chmod(at("t/a/b"), 0555), 0);
    assert_int_equal(chmod(at("t/a"), 0000), 0);
    assert_int_equal(stk_file_remove_tree(at("t"), &err), 0);
    assert_false(stk_file_exists(at("t")));
    assert_true(stk_file_exists(at("keep/f")));
    assert_int_equal(symlink(at("keep"), at("l")), 0);
    assert_int_equal(stk_file_remove_tree(at("l"), &err), 0);
    assert_true(stk_file_exists(at("keep/f")));
}

/* 3,000 levels: more than the limits on open descriptors and PATH_MAX allow. */
static void test_remove_deep(void **state)
{
    (void)state;
    stk_err err;
    assert_int_equal(mkdir(at("deep"), 0755), 0);
    int fd = open(at("deep"), O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(fd, "d", 0755), 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    assert_int_equal(stk_file_remove_tree(at("deep"), &err), 0);
    assert_false(stk_file_exists(at("deep")));
}

static void test_clock(void **state)
{
    (void)state;
    int64_t mono = stk_clock_mono_ms(&stk_clock_real);
    assert_true(stk_clock_wall_ms(&stk_clock_real) > 1700000000000);
    assert_true(stk_clock_mono_ms(&stk_clock_real) >= mono);
    assert_ptr_equal(stk_clock_boot_id(), stk_clock_boot_id());
    if (stk_file_exists("/proc/sys/kernel/random/boot_id")) {
        assert_int_equal(strlen(stk_clock_boot_id()), 36);
    }
}

static void test_failpoint(void **state)
{
    (void)state;
    (void)setenv("STOKER_FAILPOINTS", "store.commit.before:2:enospc,store.commit.mid:2+:eio", 1);
    stk_failpoint_reload();
    static const int want[] = {0, ENOSPC, 0}, onwards[] = {0, EIO, EIO};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(STK_FAILPOINT_ERR("store.commit.before"), want[i]);
        assert_int_equal(STK_FAILPOINT_ERR("store.commit.mid"), onwards[i]);
    }
    (void)unsetenv("STOKER_FAILPOINTS");
    stk_failpoint_reload();
    assert_int_equal(stk_failpoint_armed, 0);
    assert_int_equal(STK_FAILPOINT_ERR("store.commit.mid"), 0);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absolute),    cmocka_unit_test(test_join),
        cmocka_unit_test(test_read_write),  cmocka_unit_test(test_untrusted),
        cmocka_unit_test(test_mkdirs),      cmocka_unit_test(test_remove_tree),
        cmocka_unit_test(test_remove_deep), cmocka_unit_test(test_clock),
        cmocka_unit_test(test_failpoint),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
