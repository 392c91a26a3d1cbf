/* Reading a folder returns all of its entries, or an error. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/testing.h"
#include "sys/dir.h"
#include "sys/file.h"

static char folder[] = "/tmp/stk_dir_XXXXXX";

static int setup(void **state)
{
    char path[64];
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    for (int i = 99; i >= 0; i--) {
        (void)snprintf(path, sizeof path, "%s/f%02d", folder, i);
        if (stk_file_write(path, "x", 1, 0644, NULL) < 0) {
            return -1;
        }
    }
    (void)snprintf(path, sizeof path, "%s/sub", folder);
    return stk_file_mkdirs(path, 0755, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

static void arm(const char *failpoints)
{
    (void)setenv("STOKER_FAILPOINTS", failpoints, 1);
    stk_failpoint_reload();
}

static void check_all(const stk_dir *dir)
{
    assert_int_equal(dir->n, 101);
    assert_string_equal(dir->items[0].name, "f00");
    assert_string_equal(dir->items[99].name, "f99");
    assert_string_equal(dir->items[100].name, "sub");
    assert_true(stk_dir_is_folder(dir, &dir->items[100]));
    assert_false(stk_dir_is_folder(dir, &dir->items[0]));
    assert_int_equal(faccessat(dir->fd, "f42", F_OK, 0), 0);
}

static void test_all_by_name(void **state)
{
    (void)state;
    stk_err err = {0};
    STK_DIR_AUTO dir = {0};
    assert_int_equal(stk_dir_read(folder, &dir, &err), 0);
    check_all(&dir);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 2; i++) { /* the same descriptor twice */
        STK_DIR_AUTO again = {0};
        assert_int_equal(stk_dir_read_fd(fd, folder, &again, &err), 0);
        check_all(&again);
    }
    (void)close(fd);
}

static void test_not_there(void **state)
{
    (void)state;
    stk_err err = {0};
    STK_DIR_AUTO dir = {0};
    assert_int_equal(stk_dir_read("/tmp/absent/absent", &dir, &err), STK_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/tmp/absent/absent"));
    assert_int_equal(stk_dir_read_if("/tmp/absent/absent", &dir, &err), 0);
    assert_int_equal(dir.n, 0);
}

static void test_a_failure_is_no_end(void **state)
{
    static const char *const points[] = {"sys.dir.open:1:eio", "sys.dir.read:1:eio",
                                         "sys.dir.open:1:emfile", "sys.dir.read:1:enomem",
                                         "sys.dir.open:1:eacces"};
    static const int wanted[] = {EIO, EIO, EMFILE, ENOMEM, EACCES};
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        stk_err err = {0};
        STK_DIR_AUTO dir = {0};
        int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        arm(points[i]);
        assert_true(stk_dir_read_if(folder, &dir, &err) < 0);
        assert_int_equal(errno, wanted[i]);
        assert_int_equal(err.sys, wanted[i]);
        assert_non_null(strstr(err.text, folder));
        assert_int_equal(dir.n, 0);
        arm(points[i]);
        assert_true(stk_dir_read_fd(fd, folder, &dir, &err) < 0);
        assert_int_equal(dir.n, 0);
        arm("");
        (void)close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_by_name),
                                       cmocka_unit_test(test_not_there),
                                       cmocka_unit_test(test_a_failure_is_no_end)};
    return cmocka_run_group_tests_name("dir", tests, setup, teardown);
}
