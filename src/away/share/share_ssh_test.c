#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_ssh.h"
#include "away/share/share_testing.h"
#include "sys/dir.h"

static void test_urls_of_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *folder; /* host NULL: STK_E_USAGE */
    } cases[] = {{"ssh://gpu1/data/x/", "gpu1", "/data/x"},
                 {"ssh://ann@gpu1/~/x y", "ann@gpu1", "~/x y"},
                 {"ssh://gpu1/~", "gpu1", "~"},
                 {"ssh://ann@gpu1:2222/x", "ssh://ann@gpu1:2222", "/x"},
                 {"ssh://[::1]/x", "ssh://[::1]", "/x"},
                 {"ssh://", NULL, NULL},
                 {"ssh:///x", NULL, NULL},
                 {"ssh://gpu1", NULL, NULL},
                 {"ssh://gpu1/", NULL, NULL},
                 {"ssh://gpu1/~ben/x", NULL, NULL},
                 {"ssh://ann:pass@gpu1/x", NULL, NULL},
                 {"ssh://-oProxyCommand=x/x", NULL, NULL},
                 {"ssh://gpu 1/x", NULL, NULL},
                 {"ssh://gpu1/x\ny", NULL, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_share *s = NULL;
        stk_err err = {0};
        int rc = stk_share_open(cases[i].url, &s, &err);
        assert_int_equal(rc, cases[i].host == NULL ? STK_E_USAGE : 0);
        if (s != NULL) {
            assert_string_equal(stk_link_host(s->ssh->link), cases[i].host);
            assert_string_equal(s->ssh->folder, cases[i].folder);
            assert_null(stk_share_folder(s));
        }
        assert_null(strstr(err.text, "pass@"));
        stk_share_close(s);
    }
}

/* The next connection breaks once `n` bytes of answers have come; those after it don't. */
static void cut_after(int n)
{
    char script[400];
    (void)unlink(in("cut"));
    (void)snprintf(script, sizeof script,
                   "#!/bin/sh\nfor word; do test \"$word\" != -G || exit 0; done\n"
                   "mkdir \"$LINK_TEST/cut\" 2>/dev/null || exec /bin/sh -c \"$word\"\n"
                   "/bin/sh -c \"$word\" | { \"$LINK_SELF\" --pass %d; kill -9 $$; }\n",
                   (int)strlen("stoker-far 1\n") + n);
    (void)rmdir(in("cut"));
    assert_int_equal(stk_file_write_atomic(in("cutting"), script, strlen(script), 0755, NULL), 0);
    (void)setenv("STOKER_SSH", in("cutting"), 1);
}

static uint32_t n_temporary(void)
{
    STK_DIR_AUTO dir_of = {0};
    assert_int_equal(stk_dir_read_if(in("shared/.tmp"), &dir_of, NULL), 0);
    return dir_of.n;
}

/* Whose answer is lost asks again, and isn't taken for somebody else. */
static void test_lost_answers(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    put(s, "first", "x"); /* the program is there */
    stk_share_close(s);
    cut_after(1);
    s = open_share();
    if (stk_share_put(s, "log/1", "mine", 4, true, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_true(stk_file_exists(in("cut")));
    assert_int_equal(stk_link_round(s->ssh->link), 2);
    assert_int_equal(n_temporary(), 1); /* by which it knows */
    assert_int_equal(stk_share_put(s, "log/1", "mine", 4, true, &err), STK_E_BUSY);
    assert_int_equal(n_temporary(), 0);
    assert_int_equal(stk_share_put(s, "log/2", "mine", 4, true, &err), 0);
    stk_share_close(s);
    assert_int_equal(n_temporary(), 0);
    cut_after(1);
    s = open_share();
    assert_int_equal(stk_share_put(s, "log/1", "mine", 4, true, &err), STK_E_BUSY);
    stk_share_close(s);
}

enum { LARGE = 11 * STK_LINK_BODY_MAX + 4321 };

static void write_large(const char *path, unsigned seed)
{
    char *data = malloc(LARGE);
    assert_non_null(data);
    for (size_t i = 0; i < LARGE; i++) {
        data[i] = (char)((i * 2654435761u + seed) >> 11);
    }
    assert_int_equal(stk_file_write(path, data, LARGE, 0644, NULL), 0);
    free(data);
}

static void assert_same(const char *path, const char *other)
{
    char *a = NULL, *b = NULL;
    size_t n = 0, m = 0;
    assert_int_equal(stk_file_read(path, 2 * LARGE, &a, &n, NULL), 0);
    assert_int_equal(stk_file_read(other, 2 * LARGE, &b, &m, NULL), 0);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

/* The connection breaks at many moments of a large file's way there and back. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    put(s, "first", "x");
    stk_share_close(s);
    write_large(in("large"), 1);
    for (int n = 1; n < 500; n += 29) {
        cut_after(n);
        s = open_share();
        if (stk_share_put_file(s, "large", in("large"), &err) < 0) {
            fail_msg("cut after %d bytes: %s", n, err.text);
        }
        assert_same(in("large"), in("shared/large"));
        assert_int_equal(n_temporary(), 0);
        assert_int_equal(stk_share_delete(s, "large", &err), 0);
        stk_share_close(s);
    }
    put(s = open_share(), "x", "x");
    assert_int_equal(stk_share_put_file(s, "large", in("large"), &err), 0);
    stk_share_close(s);
    for (int64_t n = 1; n < LARGE; n += LARGE / 9) {
        cut_after((int)n);
        s = open_share();
        assert_int_equal(stk_share_get_file(s, "large", in("back"), &err), 0);
        assert_int_equal(stk_link_round(s->ssh->link), 2);
        assert_same(in("large"), in("back"));
        stk_share_close(s);
    }
}

/* What an earlier try has left is gone on with, but never believed. */
static void test_beginnings(void **state)
{
    (void)state;
    stk_err err = {0};
    char hex[STK_DIGEST_HEX + 1], part[STK_DIGEST_HEX + 1], key[80], path[200], text[200];
    write_large(in("large"), 1);
    assert_int_equal(stk_store_digest_path(in("large"), hex, NULL, &err), 0);
    (void)snprintf(key, sizeof key, "t/%.2s/%s", hex, hex + 2);
    (void)snprintf(text, sizeof text, "%s\n%s", hex, key);
    stk_digest_of(text, strlen(text), part);
    for (unsigned seed = 1; seed <= 2; seed++) { /* the right beginning, then a wrong one */
        stk_share *s = open_share();
        put(s, "first", "x");
        (void)snprintf(path, sizeof path, "%s/.tmp/%.32s", in("shared"), part);
        write_large(path, seed);
        assert_int_equal(truncate(path, 10 * STK_LINK_BODY_MAX), 0);
        if (stk_share_push_path(s, "t", in("large"), hex, &err) < 0) {
            fail_msg("%s", err.text);
        }
        (void)snprintf(path, sizeof path, "%s/%s", in("shared"), key);
        assert_same(in("large"), path);
        assert_int_equal(n_temporary(), 0);
        assert_int_equal(stk_file_mkdirs(in("stage"), 0755, &err), 0);
        write_large(in("stage/data"), seed);
        assert_int_equal(truncate(in("stage/data"), 10 * STK_LINK_BODY_MAX), 0);
        STK_TEXT_AUTO pulled = NULL;
        assert_int_equal(stk_share_pull_path(s, "t", hex, in("stage"), &pulled, &err), 0);
        assert_same(in("large"), pulled);
        assert_int_equal(stk_file_remove_tree(in("stage"), &err), 0);
        assert_int_equal(stk_share_delete_all(s, "t", &err), 0);
        stk_share_close(s);
    }
}

/* Content in memory that needs several pieces, and may exist only once. */
static void test_large_and_only_once(void **state)
{
    (void)state;
    stk_err err = {0};
    char *data = NULL;
    size_t n = 0;
    STK_BUF_AUTO back = STK_BUF_INIT(2 * LARGE);
    stk_share *s = open_share();
    write_large(in("large"), 1);
    assert_int_equal(stk_file_read(in("large"), LARGE, &data, &n, &err), 0);
    assert_int_equal(stk_share_put(s, "k", data, n, true, &err), 0);
    assert_int_equal(stk_share_put(s, "k", data, n, true, &err), STK_E_BUSY);
    assert_int_equal(stk_share_put(s, "k", data, n - 1, false, &err), 0);
    assert_int_equal(stk_share_get(s, "k", &back, &err), 0);
    assert_int_equal(back.len, n - 1);
    assert_memory_equal(back.data, data, n - 1);
    assert_int_equal(n_temporary(), 0);
    free(data);
    stk_share_close(s);
}

static int count_listed(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    uint32_t *n = arg;
    char name[40];
    (void)size, (void)mtime_ms;
    (void)snprintf(name, sizeof name, "many/%05u", *n);
    assert_string_equal(key, name);
    ++*n;
    return 0;
}

static int note_folder(void *arg, const char *name)
{
    char *text = arg;
    (void)snprintf(text + strlen(text), 40, "%s ", name);
    return 0;
}

/* There is no request for it: each folder costs a listing. */
static void test_list_folders(void **state)
{
    (void)state;
    char text[80] = "";
    stk_err err = {0};
    stk_share *s = open_share();
    put(s, "r/b/x", "");
    put(s, "r/b/deep/y", "");
    put(s, "r/a/x", "");
    put(s, "r/object", "");
    put(s, "r0/no/x", "");
    put(s, "r/b-c/x", "");
    assert_int_equal(stk_share_list_folders(s, "r/", note_folder, text, &err), 0);
    assert_string_equal(text, "a b-c b ");
    stk_share_close(s);
}

static void test_list_in_pages(void **state)
{
    (void)state;
    uint32_t n = 0;
    stk_err err = {0};
    stk_share *s = open_share();
    put(s, "many/00000", "");
    for (uint32_t i = 1; i < 4500; i++) {
        char name[80];
        (void)snprintf(name, sizeof name, "%s/many/%05u", in("shared"), i);
        assert_int_equal(stk_file_write(name, "", 0, 0644, NULL), 0);
    }
    assert_int_equal(stk_share_list(s, "many/", NULL, count_listed, &n, &err), 0);
    assert_int_equal(n, 4500);
    stk_share_close(s);
}

/* Passes so many bytes on. */
static int pass(long left)
{
    char data[4096];
    while (left > 0) {
        ssize_t n = read(STDIN_FILENO, data, (size_t)MIN(left, (long)sizeof data));
        if (n <= 0 || stk_file_write_all(STDOUT_FILENO, data, (size_t)n) < 0) {
            break;
        }
        left -= n;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(test_urls_of_hosts), T(test_lost_answers),        T(test_cut_anywhere),
        T(test_beginnings),    T(test_large_and_only_once), T(test_list_in_pages),
        T(test_list_folders),
    };
    if (argc > 1 && strcmp(argv[1], "--far") == 0) {
        return share_serve_far();
    }
    if (argc > 2 && strcmp(argv[1], "--pass") == 0) {
        return pass(strtol(argv[2], NULL, 10));
    }
    share_host = "ssh://host";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
