/* Helpers for the tests of share: a temporary folder with a share and stores. */
#ifndef STK_SHARE_TESTING_H
#define STK_SHARE_TESTING_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/link/link_testing.h"
#include "away/share/share.h"
#include "away/share/share_private.h"
#include "base/testing.h"
#include "store/store_digest.h"
#include "sys/file.h"

static char dir[64];
/* Before the share's path: "", or "ssh://host" for the same folder by way of a far end. */
static const char *share_host = "";

static inline int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/stk-share-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    return *share_host == '\0' ? 0 : link_set_up(dir);
}

static inline int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

static inline const char *in(const char *name)
{
    static _Thread_local char paths[4][256];
    static _Thread_local int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static inline stk_share *open_share(void)
{
    stk_share *s = NULL;
    stk_err err = {0};
    char url[256];
    (void)snprintf(url, sizeof url, "%s%s", share_host, in("shared"));
    if (stk_share_open(url, &s, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return s;
}

static inline void put(stk_share *s, const char *key, const char *text)
{
    stk_err err = {0};
    if (stk_share_put(s, key, text, strlen(text), false, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static inline stk_store *open_store(const char *name)
{
    stk_store *store = NULL;
    stk_err err = {0};
    if (stk_store_open(in(name), STK_STORE_CREATE, &store, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return store;
}

static inline void check_pulled(stk_store *store, const char *digest)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    const char *path = NULL;
    char hex[STK_DIGEST_HEX + 1];
    assert_int_equal(stk_store_artifact(store, digest, arena, &path, NULL, &err), 0);
    assert_int_equal(stk_store_digest_path(path, hex, NULL, &err), 0);
    assert_string_equal(hex, digest);
}

static inline stk_artifact add_folder(void)
{
    stk_err err = {0};
    stk_artifact a;
    stk_store *here = open_store("here");
    assert_int_equal(stk_file_mkdirs(in("t/sub/deep"), 0755, &err), 0);
    assert_int_equal(stk_file_mkdirs(in("t/empty/er"), 0755, &err), 0);
    assert_int_equal(stk_file_write(in("t/one"), "1", 1, 0644, &err), 0);
    assert_int_equal(stk_file_write(in("t/sub-way"), "1", 1, 0644, &err), 0);
    assert_int_equal(stk_file_write(in("t/sub/nothing"), "", 0, 0644, &err), 0);
    assert_int_equal(stk_file_write(in("t/sub/deep/run me"), "#!", 2, 0755, &err), 0);
    assert_int_equal(stk_store_copy_path(here, in("t"), &a, &err), 0);
    stk_store_close(here);
    return a;
}

/* The far end of the tests by way of ssh. */
static inline int share_serve_far(void)
{
    static const stk_link_op *const ops[] = {stk_share_far_ops, NULL};
    (void)signal(SIGPIPE, SIG_IGN);
    return stk_link_serve(STDIN_FILENO, STDOUT_FILENO, ops, NULL) < 0;
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
