#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_testing.h"
#include "sys/clock.h"

static void test_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        int rc;
    } cases[] = {{"/mnt/x/", 0},       {"file:///mnt/x", 0}, {"file://host/x", STK_E_USAGE},
                 {"mnt", STK_E_USAGE}, {"", STK_E_USAGE},    {"gs://bucket/x", STK_E_USAGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_share *s = NULL;
        stk_err err = {0};
        assert_int_equal(stk_share_open(cases[i].url, &s, &err), cases[i].rc);
        if (s != NULL) {
            assert_string_equal(stk_share_folder(s), "/mnt/x");
        }
        stk_share_close(s);
    }
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "/a",   "a/",        "a//b", "..",     "a/../b",
                                      "./a", "a\nb", ".tmp/here", ".tmp", "a/\x7f", ".gitignore"};
    char key[STK_SHARE_KEY_MAX + 2];
    stk_share *s = open_share();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(stk_share_put(s, bad[i], "x", 1, false, NULL), STK_E_USAGE);
    }
    for (size_t n = 0; n < sizeof key; n++) {
        key[n] = n % 200 == 199 ? '/' : 'k';
    }
    key[STK_SHARE_KEY_MAX + 1] = '\0';
    assert_int_equal(stk_share_put(s, key, "x", 1, false, NULL), STK_E_USAGE);
    key[STK_SHARE_KEY_MAX] = '\0';
    assert_int_equal(stk_share_put(s, key, "x", 1, false, NULL), 0);
    stk_share_close(s);
}

static void test_objects(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    STK_BUF_AUTO out = STK_BUF_INIT(0);
    STK_BUF_AUTO small = STK_BUF_INIT(4);
    assert_int_equal(stk_share_get(s, "a/b", &out, &err), STK_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "'a/b' isn't in store '"));
    put(s, "a/b", "one");
    put(s, "a/b", "second");
    assert_int_equal(stk_share_put(s, "a/b", "x", 1, true, &err), STK_E_BUSY);
    assert_int_equal(stk_share_get(s, "a/b", &out, &err), 0);
    assert_string_equal(out.data, "second");
    assert_int_equal(stk_share_get(s, "a/b", &small, &err), STK_E_LIMIT);
    assert_int_equal(stk_share_get_range(s, "a/b", 1, &small, &err), 0);
    assert_string_equal(small.data, "econ");
    stk_buf_clear(&small);
    assert_int_equal(stk_share_get_range(s, "a/b", 4, &small, &err), 0);
    assert_string_equal(small.data, "nd");
    stk_buf_clear(&small);
    assert_int_equal(stk_share_get_range(s, "a/b", 6, &small, &err), 0);
    assert_int_equal(small.len, 0);
    assert_int_equal(stk_share_get_range(s, "a", 0, &small, &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_share_delete(s, "a/b", &err), 0);
    assert_int_equal(stk_share_delete(s, "a/b", &err), 0);
    assert_int_equal(stk_share_get(s, "a/b", &out, &err), STK_E_NOT_FOUND);
    stk_share_close(s);
}

static void test_files(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    char *data = NULL;
    size_t n = 0;
    assert_int_equal(stk_file_write(in("source"), "content", 7, 0600, &err), 0);
    assert_int_equal(stk_share_put_file(s, "deep/er/file", in("source"), &err), 0);
    assert_int_equal(stk_share_put_file(s, "deep/none", in("none"), &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_share_put_file(s, "deep/none", dir, &err), STK_E_USAGE);
    assert_int_equal(stk_share_get_file(s, "deep/none", in("back"), &err), STK_E_NOT_FOUND);
    assert_false(stk_file_exists(in("back")));
    assert_int_equal(stk_share_get_file(s, "deep/er/file", in("back"), &err), 0);
    assert_int_equal(stk_file_read(in("back"), 100, &data, &n, &err), 0);
    assert_string_equal(data, "content");
    free(data);
    stk_share_close(s);
}

typedef struct listed {
    char text[512];
    int n;
    int stop_at;
} listed;

static int note(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    listed *l = arg;
    assert_true(size >= 0 && mtime_ms > 1700000000000);
    (void)snprintf(l->text + strlen(l->text), sizeof l->text - strlen(l->text), "%s:%d ", key,
                   (int)size);
    return ++l->n == l->stop_at ? 7 : 0;
}

static void test_list(void **state)
{
    (void)state;
    static const struct {
        const char *prefix;
        const char *after;
        const char *found;
    } cases[] = {
        {NULL, NULL, "a-b:1 a/b:2 a/c/d:3 a/c/e:4 a0:5 b/x:6 "}, /* '-' < '/' < '0' */
        {"a", NULL, "a-b:1 a/b:2 a/c/d:3 a/c/e:4 a0:5 "},
        {"a/", NULL, "a/b:2 a/c/d:3 a/c/e:4 "},
        {"a/c", NULL, "a/c/d:3 a/c/e:4 "},
        {"a/c/d", NULL, "a/c/d:3 "},
        {"nothing/", NULL, ""},
        {"a/", "a/b", "a/c/d:3 a/c/e:4 "},
        {NULL, "a/c/d", "a/c/e:4 a0:5 b/x:6 "},
        {NULL, "a/c", "a/c/d:3 a/c/e:4 a0:5 b/x:6 "},
        {"a", "b", ""},
    };
    stk_err err = {0};
    stk_share *s = open_share();
    listed all = {0};
    assert_int_equal(stk_share_list(s, NULL, NULL, note, &all, &err), 0); /* no folder yet */
    assert_int_equal(all.n, 0);
    put(s, "b/x", "666666");
    put(s, "a0", "55555");
    put(s, "a/c/e", "4444");
    put(s, "a/c/d", "333");
    put(s, "a/b", "22");
    put(s, "a-b", "1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        listed l = {0};
        assert_int_equal(stk_share_list(s, cases[i].prefix, cases[i].after, note, &l, &err), 0);
        assert_string_equal(l.text, cases[i].found);
    }
    listed some = {.stop_at = 2};
    assert_int_equal(stk_share_list(s, "a", NULL, note, &some, &err), 7);
    assert_int_equal(some.n, 2);
    stk_share_close(s);
}

static int note_folder(void *arg, const char *name)
{
    listed *l = arg;
    size_t n = strlen(l->text);
    (void)snprintf(l->text + n, sizeof l->text - n, "%s ", name);
    return ++l->n == l->stop_at ? 7 : 0;
}

static void test_list_folders(void **state)
{
    (void)state;
    static const char *const keys[] = {"r/b/x",    "r/b/deep/y", "r/a/x",
                                       "r/object", "r0/no/x",    "r/b-c/x"};
    stk_err err = {0};
    stk_share *s = open_share();
    listed none = {0}, all = {0}, some = {.stop_at = 2};
    assert_int_equal(stk_share_list_folders(s, "r/", note_folder, &none, &err), 0);
    assert_string_equal(none.text, "");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        put(s, keys[i], "1");
    }
    assert_int_equal(stk_share_list_folders(s, "r/", note_folder, &all, &err), 0);
    assert_string_equal(all.text, "a b-c b ");
    assert_int_equal(stk_share_list_folders(s, "r/", note_folder, &some, &err), 7);
    assert_string_equal(some.text, "a b-c ");
    stk_share_close(s);
}

static void test_check(void **state)
{
    (void)state;
    stk_err err = {0};
    listed l = {0};
    stk_share *s = open_share();
    assert_int_equal(stk_share_check(s, &err), 0);
    assert_int_equal(stk_share_list(s, NULL, NULL, note, &l, &err), 0);
    assert_string_equal(l.text, "");
    stk_share_close(s);
    s = NULL;
    assert_int_equal(stk_file_write(in("file"), "x", 1, 0600, &err), 0);
    assert_int_equal(stk_share_open(in("file"), &s, &err), 0);
    assert_true(stk_share_check(s, &err) < 0);
    assert_non_null(strstr(err.text, "can't be written"));
    stk_share_close(s);
}

enum { RACERS = 8, ROUNDS = 50 };

typedef struct race {
    stk_share *share;
    atomic_int n_won[ROUNDS];
    pthread_barrier_t start;
} race;

static void *run_race(void *arg)
{
    race *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "race/%d", i);
        (void)pthread_barrier_wait(&r->start);
        int rc = stk_share_put(r->share, key, key, strlen(key), true, NULL);
        if (rc == 0) {
            atomic_fetch_add(&r->n_won[i], 1);
        } else if (rc != STK_E_BUSY) {
            atomic_fetch_add(&r->n_won[i], 1000);
        }
    }
    return NULL;
}

static void test_only_one_creates(void **state)
{
    (void)state;
    race r = {.share = open_share()};
    pthread_t threads[RACERS];
    assert_int_equal(pthread_barrier_init(&r.start, NULL, RACERS), 0);
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_race, &r), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(r.n_won[i], 1);
    }
    stk_share_close(r.share);
}

/* --- artifacts --- */

static void push_and_pull(const char *digest)
{
    stk_err err = {0};
    stk_share *s = open_share();
    stk_store *here = open_store("here");
    stk_store *there = open_store("there");
    bool has = true;
    assert_int_equal(stk_share_has(s, digest, &has, &err), 0);
    assert_false(has);
    assert_int_equal(stk_share_pull(s, there, digest, &err), STK_E_NOT_FOUND);
    for (int i = 0; i < 2; i++) { /* the second time changes nothing */
        if (stk_share_push(s, here, digest, &err) < 0 ||
            stk_share_pull(s, there, digest, &err) < 0) {
            fail_msg("%s", err.text);
        }
    }
    assert_int_equal(stk_share_has(s, digest, &has, &err), 0);
    assert_true(has);
    check_pulled(there, digest);
    stk_store_close(here);
    stk_store_close(there);
    stk_share_close(s);
}

static void test_file_artifact(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_artifact a;
    struct stat st;
    stk_store *here = open_store("here");
    assert_int_equal(stk_file_write(in("x"), "#!/bin/sh\n", 10, 0755, &err), 0);
    assert_int_equal(stk_store_copy_path(here, in("x"), &a, &err), 0);
    stk_store_close(here);
    push_and_pull(a.digest);
    char name[160];
    (void)snprintf(name, sizeof name, "there/artifacts/%.2s/%s", a.digest, a.digest + 2);
    assert_int_equal(stat(in(name), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0555);
}

static void test_folder_artifact(void **state)
{
    (void)state;
    char name[200];
    struct stat st;
    stk_artifact a = add_folder();
    push_and_pull(a.digest);
    (void)snprintf(name, sizeof name, "there/artifacts/%.2s/%s/sub/deep/run me", a.digest,
                   a.digest + 2);
    assert_int_equal(stat(in(name), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0555);
    (void)snprintf(name, sizeof name, "there/artifacts/%.2s/%s/empty/er", a.digest, a.digest + 2);
    assert_int_equal(stat(in(name), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
}

static int fetch(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    return stk_share_pull(arg, store, digest, err);
}

/* The share is the origin of a store: pull asks that same store whether it has the artifact. */
static void test_share_as_origin(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    stk_artifact a;
    const char *path = NULL;
    stk_share *s = open_share();
    stk_store *here = open_store("here");
    stk_store *there = open_store("there");
    assert_int_equal(stk_store_add_bytes(here, "content", 7, &a, &err), 0);
    assert_int_equal(stk_share_push(s, here, a.digest, &err), 0);
    stk_store_set_origin(there, fetch, s);
    assert_int_equal(stk_store_add_absent(there, a.digest, 7, false, &err), 0);
    assert_int_equal(stk_share_push(s, there, a.digest, &err), 0); /* the share has it: no fetch */
    assert_int_equal(stk_store_locate(there, a.digest, arena, &path, NULL, &err), 0);
    assert_false(stk_file_exists(path));
    if (stk_store_artifact(there, a.digest, arena, &path, NULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_true(stk_file_exists(path));
    check_pulled(there, a.digest);
    stk_store_close(here);
    stk_store_close(there);
    stk_share_close(s);
}

/* Changed content in the shared store is detected. */
static void test_changed_is_noticed(void **state)
{
    (void)state;
    stk_err err = {0};
    char key[128];
    stk_artifact file;
    stk_artifact folder = add_folder();
    stk_share *s = open_share();
    stk_store *here = open_store("here");
    stk_store *there = open_store("there");
    assert_int_equal(stk_store_add_bytes(here, "precious", 8, &file, &err), 0);
    assert_int_equal(stk_share_push(s, here, file.digest, &err), 0);
    assert_int_equal(stk_share_push(s, here, folder.digest, &err), 0);
    (void)snprintf(key, sizeof key, "artifacts/%.2s/%s", file.digest, file.digest + 2);
    put(s, key, "pretious");
    assert_int_equal(stk_share_pull(s, there, file.digest, &err), STK_E_STORE);
    assert_non_null(strstr(err.text, "was changed"));
    (void)snprintf(key, sizeof key, "artifacts/%.2s/%s.tree", folder.digest, folder.digest + 2);
    static const char *const lists[] = {
        "", "stoker-tree-1\n", "stoker-tree-1\n+x one\n", "no list",
        "stoker-tree-1\n6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b 1 "
        "../../out\n"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        put(s, key, lists[i]);
        assert_int_equal(stk_share_pull(s, there, folder.digest, &err), STK_E_STORE);
    }
    stk_store_close(here);
    stk_store_close(there);
    stk_share_close(s);
}

/* Links and pipes in the share are never followed, and nothing is written behind them. */
static void test_links_lead_nowhere(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    STK_BUF_AUTO text = STK_BUF_INIT(100);
    put(s, "runs/good", "x");
    assert_int_equal(stk_file_mkdirs(in("outside"), 0755, &err), 0);
    assert_int_equal(stk_file_write(in("outside/secret"), "secret", 6, 0644, &err), 0);
    assert_int_equal(symlink("../../outside/secret", in("shared/runs/file")), 0);
    assert_int_equal(symlink(in("outside"), in("shared/runs/folder")), 0);
    assert_int_equal(symlink(".", in("shared/runs/round")), 0);
    assert_int_equal(symlink("..", in("shared/runs/up")), 0);
    assert_int_equal(mkfifo(in("shared/runs/pipe"), 0666), 0);
    assert_int_equal(stk_share_get(s, "runs/file", &text, &err), STK_E_STORE);
    assert_non_null(strstr(err.text, "is behind a link"));
    assert_int_equal(stk_share_get(s, "runs/folder/secret", &text, &err), STK_E_STORE);
    assert_int_equal(stk_share_get_file(s, "runs/file", in("brought"), &err), STK_E_STORE);
    assert_int_equal(stk_share_get(s, "runs/pipe", &text, &err), STK_E_NOT_FOUND);
    assert_int_equal(stk_share_put(s, "runs/folder/new", "x", 1, false, &err), STK_E_STORE);
    assert_int_equal(stk_share_put(s, "runs/folder/deep/new", "x", 1, true, &err), STK_E_STORE);
    assert_int_equal(stk_share_delete(s, "runs/folder/secret", &err), STK_E_STORE);
    assert_int_equal(stk_share_get(s, "runs/round/up/runs/good", &text, &err), STK_E_STORE);
    assert_int_equal(stk_file_mkdirs(in("outside/made"), 0755, &err), 0);
    assert_int_equal(stk_share_delete_all(s, "runs/folder/made", &err), STK_E_STORE);
    assert_true(stk_file_exists(in("outside/made")));
    assert_true(stk_file_exists(in("outside/secret")) && !stk_file_exists(in("outside/new")));
    assert_false(stk_file_exists(in("brought")) || stk_file_exists(in("outside/deep")));
    listed l = {0};
    assert_int_equal(stk_share_list(s, "runs/", NULL, note, &l, &err), 0);
    assert_int_equal(l.n, 1); /* only runs/good */
    stk_share_close(s);
}

/* When the share is unmounted, its mount point stays unchanged. */
static void test_unmounted(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* a share that has written before, then one that has only read */
        stk_err err = {0};
        STK_BUF_AUTO text = STK_BUF_INIT(100);
        stk_share *s = open_share();
        put(s, "runs/job", "x");
        if (i == 1) {
            stk_share_close(s);
            s = open_share();
            assert_int_equal(stk_share_get(s, "runs/job", &text, &err), 0);
        }
        assert_int_equal(rename(in("shared"), in("away")), 0);
        assert_int_equal(stk_share_put(s, "runs/end", "x", 1, false, &err), STK_E_ENV);
        assert_false(stk_file_exists(in("shared")));
        assert_int_equal(mkdir(in("shared"), 0755), 0);
        assert_int_equal(stk_share_put(s, "runs/end", "x", 1, true, &err), STK_E_ENV);
        assert_non_null(strstr(err.text, "is empty now; is it mounted?"));
        assert_true(stk_share_may_pass(&err));
        assert_int_equal(rmdir(in("shared")), 0); /* still empty */
        assert_int_equal(rename(in("away"), in("shared")), 0);
        put(s, "runs/end", "x");
        stk_share_close(s);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    bool has;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(0);
    stk_share *s = open_share();
    put(s, "k", "x");
    stk_share_cancel(s);
    stk_share_cancel(s);
    assert_int_equal(stk_share_get(s, "k", &out, &err), STK_E_CANCELLED);
    assert_int_equal(stk_share_put(s, "k", "y", 1, false, &err), STK_E_CANCELLED);
    assert_int_equal(stk_share_list(s, NULL, NULL, note, NULL, &err), STK_E_CANCELLED);
    char digest[STK_DIGEST_HEX + 1];
    stk_digest_of("", 0, digest);
    assert_int_equal(stk_share_has(s, digest, &has, &err), STK_E_CANCELLED);
    stk_share_close(s);
}

static void *cancel_soon(void *arg)
{
    usleep(100000);
    stk_share_cancel(arg);
    return NULL;
}

/* Cancels a request to a server that never answers. */
static void test_cancel_of_what_waits(void **state)
{
    (void)state;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    char url[64];
    pthread_t thread;
    stk_err err = {0};
    stk_share *s = NULL;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(listen(fd, 4), 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(in.sin_port));
    (void)setenv("AWS_ENDPOINT_URL", url, 1);
    (void)setenv("AWS_REGION", "r", 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "id", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    assert_int_equal(stk_share_open("s3://bucket", &s, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, s), 0);
    assert_int_equal(stk_share_put(s, "k", "x", 1, false, &err), STK_E_CANCELLED);
    (void)pthread_join(thread, NULL);
    stk_share_close(s);
    close(fd);
}

static int odd_fails(void *arg, uint64_t i, stk_err *err)
{
    atomic_fetch_add((atomic_int *)arg, 1);
    return i == 13 ? stk_err_set(err, STK_E_ENV, "thirteen") : 0;
}

static int count(void *arg, uint64_t i, stk_err *err)
{
    (void)i;
    (void)err;
    atomic_fetch_add((atomic_int *)arg, 1);
    return 0;
}

static void test_parallel(void **state)
{
    (void)state;
    atomic_int n = 0;
    stk_err err = {0};
    assert_int_equal(stk_share_parallel(4, 0, count, &n, &err), 0);
    assert_int_equal(stk_share_parallel(100, 1000, count, &n, &err), 0);
    assert_int_equal(n, 1000);
    n = 0;
    assert_int_equal(stk_share_parallel(2, 1000000, odd_fails, &n, &err), STK_E_ENV);
    assert_string_equal(err.text, "thirteen");
    assert_true(n < 1000000);
}

static int count_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    (void)key;
    (void)size;
    (void)mtime_ms;
    ++*(uint32_t *)arg;
    return 0;
}

/* Files and a folder below a key come back unchanged; deleting the key deletes nothing else. */
static void test_below_a_key(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_share *s = open_share();
    char one[STK_DIGEST_HEX + 1], many[STK_DIGEST_HEX + 1];
    bool there = true;
    STK_TEXT_AUTO path = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    uint32_t n = 0;
    assert_int_equal(stk_file_mkdirs(in("made/empty"), 0755, &err), 0);
    assert_int_equal(stk_file_write_atomic(in("made/state"), "seven", 5, 0755, &err), 0);
    assert_int_equal(stk_store_digest_path(in("made/state"), one, NULL, &err), 0);
    assert_int_equal(stk_store_digest_path(in("made"), many, NULL, &err), 0);
    assert_int_equal(stk_share_push_path(s, "t/c/1", in("made/state"), one, &err), 0);
    assert_int_equal(stk_share_push_path(s, "t/c/1", in("made/state"), one, &err), 0);
    assert_int_equal(stk_share_push_path(s, "t/c/2", in("made"), many, &err), 0);
    assert_int_equal(stk_share_push_path(s, "t/c/3", in("made"), one, &err), STK_E_STORE);
    assert_int_equal(stk_share_has(s, one, &there, &err), 0);
    assert_false(there); /* it isn't stored as an artifact */
    assert_int_equal(stk_share_delete_all(s, "t/c/1", &err), 0);
    assert_int_equal(stk_file_mkdirs(in("back"), 0755, &err), 0);
    assert_int_equal(stk_share_pull_path(s, "t/c/1", one, in("back"), &path, &err),
                     STK_E_NOT_FOUND);
    assert_int_equal(stk_share_pull_path(s, "t/c/2", many, in("back"), &path, &err), 0);
    STK_TEXT_AUTO state_path = stk_file_join(path, "state");
    STK_TEXT_AUTO empty = stk_file_join(path, "empty");
    assert_int_equal(stk_file_read(state_path, 100, &text, &len, &err), 0);
    assert_string_equal(text, "seven");
    assert_true(access(state_path, X_OK) == 0 && stk_file_exists(empty));
    put(s, "t/c-beside", "stays");
    assert_int_equal(stk_share_delete_all(s, "t/c", &err), 0);
    assert_int_equal(stk_share_delete_all(s, "t/c", &err), 0); /* nothing to delete is fine */
    assert_int_equal(stk_share_list(s, "t/", NULL, count_key, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_false(stk_file_exists(in("shared/t/c")));
    stk_share_close(s);
}

/* A server accepts connections and never answers: a share that hurries fails soon. */
static void test_in_a_hurry(void **state)
{
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char url[64];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    (void)setenv("AWS_ENDPOINT_URL", url, 1);
    (void)setenv("AWS_REGION", "eu-west-1", 1);
    (void)setenv("AWS_ACCESS_KEY_ID", "a", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "b", 1);
    stk_share *s = NULL;
    stk_err err = {0};
    bool has = false;
    char none[STK_DIGEST_HEX + 1] = {0};
    memset(none, 'a', STK_DIGEST_HEX);
    assert_int_equal(stk_share_open("s3://bucket/x", &s, &err), 0);
    stk_share_hurry(s);
    int64_t begin = stk_clock_mono_ms(&stk_clock_real);
    assert_int_equal(stk_share_has(s, none, &has, &err), STK_E_ENV);
    assert_true(stk_clock_mono_ms(&stk_clock_real) - begin < 20000);
    assert_false(has);
    stk_share_close(s);
    (void)close(fd);
    (void)unsetenv("AWS_ENDPOINT_URL");
    (void)unsetenv("AWS_REGION");
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(test_urls),
        T(test_keys),
        T(test_objects),
        T(test_files),
        T(test_list),
        T(test_list_folders),
        T(test_check),
        T(test_only_one_creates),
        T(test_file_artifact),
        T(test_folder_artifact),
        T(test_share_as_origin),
        T(test_changed_is_noticed),
        T(test_links_lead_nowhere),
        T(test_unmounted),
        T(test_cancel),
        T(test_cancel_of_what_waits),
        T(test_parallel),
        T(test_below_a_key),
        T(test_in_a_hurry),
    };
    if (argc > 1 && strcmp(argv[1], "--far") == 0) {
        return share_serve_far();
    }
    int failed = cmocka_run_group_tests_name("a folder", tests, NULL, NULL);
    share_host = "ssh://host";
    return failed + cmocka_run_group_tests_name("a folder of another host", tests, NULL, NULL);
}
