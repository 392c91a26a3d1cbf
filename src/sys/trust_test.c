#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/file.h"
#include "sys/trust.h"

static char dir[] = "/tmp/stk_trust_test_XXXXXX";

static const char *at(const char *name)
{
    static char text[4][512];
    static unsigned i;
    char *buf = text[i++ % 4];
    (void)snprintf(buf, sizeof text[0], "%s/%s", dir, name);
    return buf;
}

static void make(const char *name, mode_t mode)
{
    stk_err err;
    STK_TEXT_AUTO folder = strdup(at(name));
    *strrchr(folder, '/') = '\0';
    assert_int_equal(stk_file_mkdirs(folder, 0755, &err), 0);
    assert_int_equal(stk_file_write(at(name), "x", 1, mode, &err), 0);
}

static void test_below(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int sys;
    } cases[] = {{"a/b/file", 0},         {"a//b/./file", 0},     {"a/link/file", ELOOP},
                 {"a/out/passwd", ELOOP}, {"a/../../x", EXDEV},   {"a/none", ENOENT},
                 {"a/b/to-file", ELOOP},  {"a/b/file/x", ENOTDIR}};
    make("below/a/b/file", 0644);
    (void)symlink("b", at("below/a/link"));
    (void)symlink("/etc", at("below/a/out"));
    (void)symlink("file", at("below/a/b/to-file"));
    STK_FD_AUTO top = open(at("below"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int parts = 0; parts < 2; parts++) { /* also as on an older kernel */
            stk_file_open_by_parts = parts != 0;
            STK_FD_AUTO fd = stk_file_open_below(top, cases[i].path, O_RDONLY, 0);
            int sys = fd < 0 ? errno : 0;
            if (sys != cases[i].sys && !(cases[i].sys == ELOOP && sys == ENOTDIR)) {
                fail_msg("%s: %s", cases[i].path, strerror(sys));
            }
        }
    }
    stk_file_open_by_parts = false;
}

static void test_modes(void **state)
{
    (void)state;
    stk_err err;
    make("modes/a/file", 0644);
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), 0);
    assert_int_equal(stk_trust_path(at("modes/a/none"), &err), STK_E_NOT_FOUND);
    (void)chmod(at("modes/a/file"), 0646);
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), STK_E_UNTRUSTED);
    (void)chmod(at("modes/a/file"), 0644);
    (void)chmod(at("modes"), 0777);
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), STK_E_UNTRUSTED);
    assert_non_null(strstr(err.text, at("modes")));
    char *real = NULL;
    bool was = false;
    assert_int_equal(stk_trust_add(at("modes"), &real, &err), STK_E_UNTRUSTED);
    assert_int_equal(stk_trust_add(at("modes/a"), &real, &err), 0); /* recorded by its inode */
    free(real);
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), 0);
    assert_int_equal(stk_trust_remove(at("modes/a"), &real, &was, &err), 0);
    free(real);
    assert_true(was);
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), STK_E_UNTRUSTED);
    (void)chmod(at("modes"), 01777); /* with the sticky bit */
    assert_int_equal(stk_trust_path(at("modes/a/file"), &err), 0);
}

static void test_make_own(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(0);
    assert_int_equal(mkdir(at("own"), 0777), 0);
    (void)umask(before);
    STK_FD_AUTO fd = open(at("own"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    stk_trust_make_own(fd);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static void test_project(void **state)
{
    (void)state;
    stk_err err;
    make("project/a/b/file", 0644);
    char *path = NULL;
    char *beyond = NULL;
    make("project/name", 0644);
    assert_int_equal(stk_project_find(at("project/a/b"), "name", &path, &beyond, &err), 0);
    assert_null(path);
    assert_string_equal(beyond, at("project/name"));
    free(beyond);
    static const char *const marks[] = {"stoker.yaml", ".git", "pyproject.toml"};
    for (size_t i = 0; i < 3; i++) {
        STK_TEXT_AUTO mark = stk_file_join(at("project"), marks[i]);
        STK_TEXT_AUTO root = NULL;
        assert_int_equal(stk_file_write(mark, "", 0, 0644, &err), 0);
        assert_int_equal(stk_project_root(at("project/a/b"), &root, &err), 0);
        assert_string_equal(root, at("project"));
        assert_int_equal(stk_project_find(at("project/a/b"), "name", &path, &beyond, &err), 0);
        assert_string_equal(path, at("project/name"));
        assert_null(beyond);
        free(path);
        (void)unlink(mark);
    }
}

static int set_up(void **state)
{
    (void)state;
    (void)unsetenv("SUDO_UID");
    return mkdtemp(dir) == NULL ? -1 : setenv("XDG_CONFIG_HOME", at("config"), 1);
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_below), cmocka_unit_test(test_modes),
                                       cmocka_unit_test(test_make_own),
                                       cmocka_unit_test(test_project)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
