/* Lists of a folder's files, as anyone with write access to the share may have written them. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "away/share/share_testing.h"
#include "sys/dir.h"

/* Even if the digest matches, pull writes nothing outside the store. */
static void test_no_way_out(void **state)
{
    (void)state;
    stk_err err = {0};
    static const char *const paths[] = {"../out", "/out", "a/../../out", "a//b", "."};
    stk_share *s = open_share();
    stk_store *there = open_store("there");
    for (size_t i = 0; i < 2 * sizeof paths / sizeof *paths; i++) {
        char text[256];
        char key[128];
        char hex[STK_DIGEST_HEX + 1];
        const char *path = paths[i / 2];
        char one[STK_DIGEST_HEX + 1];
        stk_tree_digest_bytes("", 0, one);
        int n = snprintf(text, sizeof text, "stoker-tree-1\n%s 0 %s\n", one,
                         i % 2 == 0 ? path : "inside");
        stk_store *tmp = open_store("tmp");
        stk_artifact a; /* a file with this text has the folder's digest */
        assert_int_equal(stk_store_add_bytes(tmp, text, (size_t)n, &a, &err), 0);
        stk_store_close(tmp);
        memcpy(hex, a.digest, sizeof hex);
        (void)snprintf(key, sizeof key, "artifacts/%.2s/%s.tree", hex, hex + 2);
        if (i % 2 == 1) {
            (void)snprintf(text + n, sizeof text - (size_t)n, "+d %s\n", path);
        }
        put(s, key, text);
        (void)snprintf(key, sizeof key, "artifacts/%.2s/%s", one, one + 2);
        put(s, key, "");
        int rc = stk_share_pull(s, there, hex, &err);
        assert_int_equal(rc, STK_E_STORE);
        assert_non_null(strstr(err.text, "an invalid list of files"));
    }
    assert_false(stk_file_exists(in("there/tmp/out")));
    assert_false(stk_file_exists(in("there/out")));
    stk_store_close(there);
    stk_share_close(s);
}

/* Lists whose digest matches, but that don't describe a folder with this content. */
static void test_lists_that_lie(void **state)
{
    (void)state;
    stk_err err = {0};
    char one[STK_DIGEST_HEX + 1], text[512], key[128];
    static const struct {
        const char *sizes[2], *paths[2], *rest;
    } lists[] = {
        {{"2", NULL}, {"a", NULL}, ""},           /* wrong size */
        {{"01", NULL}, {"a", NULL}, ""},          /* not as Stoker writes it */
        {{"1", "1"}, {"b", "a"}, ""},             /* wrong order */
        {{"1", "1"}, {"a", "a"}, ""},             /* the same path twice */
        {{"1", "1"}, {"a", "a/b"}, ""},           /* both a file and a folder */
        {{"1", NULL}, {"a", NULL}, "+x b\n"},     /* an unknown file */
        {{"1", NULL}, {"a", NULL}, "+d a\n"},     /* a file as a folder */
        {{"1", NULL}, {"a", NULL}, "+x a/b\n"},   /* inside a file */
        {{"1", NULL}, {"a/b", NULL}, "+x a\n"},   /* a folder as a file */
        {{"1", NULL}, {"a", NULL}, "+d a/b/c\n"}, /* inside a file */
    };
    stk_share *s = open_share();
    stk_store *there = open_store("there");
    stk_tree_digest_bytes("1", 1, one);
    (void)snprintf(key, sizeof key, "artifacts/%.2s/%s", one, one + 2);
    put(s, key, "1");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        stk_artifact a; /* a file with this text has the folder's digest */
        int n = snprintf(text, sizeof text, "stoker-tree-1\n");
        for (int k = 0; k < 2 && lists[i].paths[k] != NULL; k++) {
            n += snprintf(text + n, sizeof text - (size_t)n, "%s %s %s\n", one, lists[i].sizes[k],
                          lists[i].paths[k]);
        }
        stk_store *tmp = open_store("tmp");
        assert_int_equal(stk_store_add_bytes(tmp, text, (size_t)n, &a, &err), 0);
        stk_store_close(tmp);
        (void)snprintf(text + n, sizeof text - (size_t)n, "%s", lists[i].rest);
        (void)snprintf(key, sizeof key, "artifacts/%.2s/%s.tree", a.digest, a.digest + 2);
        put(s, key, text);
        if (stk_share_pull(s, there, a.digest, &err) != STK_E_STORE) {
            fail_msg("list %zu: %s", i, err.text);
        }
        assert_non_null(strstr(err.text, "an invalid list of files"));
        (void)snprintf(key, sizeof key, "there/artifacts/%.2s/%s", a.digest, a.digest + 2);
        assert_false(stk_file_exists(in(key)));
        (void)snprintf(key, sizeof key, "there/tmp/pull-%s", a.digest);
        assert_false(stk_file_exists(in(key))); /* and pull leaves nothing behind */
    }
    char none[STK_DIGEST_HEX + 1] = {0};
    memset(none, 'e', STK_DIGEST_HEX);
    assert_int_equal(stk_share_pull(s, there, none, &err), STK_E_NOT_FOUND);
    (void)snprintf(key, sizeof key, "there/tmp/pull-%s", none);
    assert_false(stk_file_exists(in(key)));
    stk_store_close(there);
    stk_share_close(s);
}

/* Files that a killed pull left behind are checked as well: they may have been changed. */
static void test_leftovers_are_summed(void **state)
{
    (void)state;
    stk_err err = {0};
    char name[200];
    stk_artifact a = add_folder();
    stk_share *s = open_share();
    stk_store *here = open_store("here");
    stk_store *there = open_store("there");
    assert_int_equal(stk_share_push(s, here, a.digest, &err), 0);
    (void)snprintf(name, sizeof name, "there/tmp/pull-%s/tree", a.digest);
    assert_int_equal(stk_file_mkdirs(in(name), 0755, &err), 0);
    (void)snprintf(name, sizeof name, "there/tmp/pull-%s/tree/one", a.digest);
    assert_int_equal(stk_file_write(in(name), "2", 1, 0644, &err), 0);
    assert_int_equal(stk_share_pull(s, there, a.digest, &err), STK_E_STORE);
    assert_int_equal(stk_share_pull(s, there, a.digest, &err), 0); /* starts over */
    check_pulled(there, a.digest);
    stk_store_close(here);
    stk_store_close(there);
    stk_share_close(s);
}

/* While true, another thread keeps swapping a folder with a link to a folder outside. */
static _Atomic bool swaps;

static void *swap(void *arg)
{
    (void)arg;
    while (swaps) {
        (void)renameat2(AT_FDCWD, in("shared/runs"), AT_FDCWD, in("shared/other"), RENAME_EXCHANGE);
    }
    return NULL;
}

static void test_what_is_looked_at_is_used(void **state)
{
    (void)state;
    stk_err err = {0};
    pthread_t thread;
    uint32_t n_good = 0, n_refused = 0;
    char key[64];
    stk_share *s = open_share();
    put(s, "runs/object", "good");
    assert_int_equal(stk_file_mkdirs(in("outside/deep"), 0755, &err), 0);
    assert_int_equal(stk_file_write(in("outside/object"), "secret", 6, 0644, &err), 0);
    assert_int_equal(symlink(in("outside"), in("shared/other")), 0);
    swaps = true;
    assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
    for (uint32_t i = 0; i < 1000000 && (n_good < 500 || n_refused < 500); i++) {
        STK_BUF_AUTO text = STK_BUF_INIT(100);
        int rc = stk_share_get(s, "runs/object", &text, &err);
        assert_true(rc == 0 || rc == STK_E_STORE || rc == STK_E_NOT_FOUND);
        n_good += rc == 0;
        n_refused += rc == STK_E_STORE;
        assert_false(rc == 0 && strcmp(text.data, "good") != 0);
        if (i % 8 == 0) {
            (void)snprintf(key, sizeof key, "runs/new-%u/x", i % 64);
            (void)stk_share_put(s, key, "x", 1, false, &err);
            (void)stk_share_delete(s, "runs/object-that-is-not-there", &err);
            (void)stk_share_delete_all(s, "runs/deep", &err);
        }
    }
    swaps = false;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(n_good >= 500 && n_refused >= 500);
    STK_DIR_AUTO outside = {0};
    assert_int_equal(stk_dir_read(in("outside"), &outside, &err), 0);
    assert_int_equal(outside.n, 2); /* still only deep and object */
    stk_share_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_no_way_out), T(test_lists_that_lie),
                                       T(test_leftovers_are_summed),
                                       T(test_what_is_looked_at_is_used)};
    return cmocka_run_group_tests_name("share_tree", tests, NULL, NULL);
}
