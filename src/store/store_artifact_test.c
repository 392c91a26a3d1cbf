/* Artifacts: digests, adding and finding them, and what a crash or a task can leave behind. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/param.h>

#include "base/buf.h"
#include "store/store_digest.h"
#include "store/store_testing.h"

static void put(const char *path, const void *data, size_t len)
{
    assert_int_equal(stk_file_write(path, data, len, 0644, NULL), 0);
}

static void put_text(fixture *f, const char *name, const char *text)
{
    put(at(f, name), text, strlen(text));
}

static void make_tree(fixture *f, const char *name)
{
    OK(stk_file_mkdirs(stk_arena_printf(f->arena, "%s/%s/sub/deep", f->dir, name), 0755, &f->err));
    OK(stk_file_mkdirs(stk_arena_printf(f->arena, "%s/%s/empty", f->dir, name), 0755, &f->err));
    put_text(f, stk_arena_printf(f->arena, "%s/sub/deep/x", name), "xx");
    put_text(f, stk_arena_printf(f->arena, "%s/sub.a", name), "a");
    put_text(f, stk_arena_printf(f->arena, "%s/Z", name), "");
}

/* A second, slow implementation of the digest in docs/formats/task-directory.md. */
static void slow_digest(const char *data, size_t len, char hex[STK_DIGEST_HEX + 1])
{
    unsigned char chunks[64][STK_DIGEST_BYTES];
    size_t n = 0;
    for (size_t from = 0; from < len || from == 0; from += 16777216) {
        stk_sha256 sha;
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, data + from, MIN(len - from, 16777216));
        stk_sha256_done(&sha, chunks[n++]);
    }
    stk_digest_of(chunks, n * STK_DIGEST_BYTES, hex);
}

static void test_digest_of_files(void **state)
{
    fixture *f = *state;
    enum { CHUNK = 16777216 };
    static const size_t sizes[] = {0, 1, 65536, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5};
    char *data = malloc(3 * CHUNK + 5);
    for (size_t i = 0; i < 3 * CHUNK + 5; i++) {
        data[i] = (char)(i * 2654435761u >> 13);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char want[STK_DIGEST_HEX + 1];
        char got[STK_DIGEST_HEX + 1];
        char bytes[STK_DIGEST_HEX + 1];
        int64_t size = -1;
        put(at(f, "file"), data, sizes[i]);
        slow_digest(data, sizes[i], want);
        OK(stk_store_digest_path(at(f, "file"), got, &size, &f->err));
        stk_tree_digest_bytes(data, sizes[i], bytes);
        assert_string_equal(got, want);
        assert_string_equal(bytes, want);
        assert_int_equal(size, sizes[i]);
    }
    free(data);
    /* sha256(sha256("")), because both implementations could share a mistake */
    char hex[STK_DIGEST_HEX + 1];
    stk_tree_digest_bytes("", 0, hex);
    assert_string_equal(hex, "5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456");
}

static void test_digest_of_folder(void **state)
{
    fixture *f = *state;
    char file[3][STK_DIGEST_HEX + 1];
    char want[STK_DIGEST_HEX + 1];
    char got[STK_DIGEST_HEX + 1];
    make_tree(f, "tree");
    slow_digest("", 0, file[0]);
    slow_digest("a", 1, file[1]);
    slow_digest("xx", 2, file[2]);
    /* byte order: 'Z' < 'sub.a' < 'sub/…' */
    const char *text =
        stk_arena_printf(f->arena, "stoker-tree-1\n%s 0 Z\n%s 1 sub.a\n%s 2 sub/deep/x\n", file[0],
                         file[1], file[2]);
    slow_digest(text, strlen(text), want);
    int64_t size;
    OK(stk_store_digest_path(at(f, "tree"), got, &size, &f->err));
    assert_string_equal(got, want);
    assert_int_equal(size, 3);
    OK(stk_file_mkdirs(at(f, "none"), 0755, &f->err));
    slow_digest("stoker-tree-1\n", 14, want);
    OK(stk_store_digest_path(at(f, "none"), got, &size, &f->err));
    assert_string_equal(got, want);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    char hex[STK_DIGEST_HEX + 1];
    int64_t size;
    stk_artifact a;
    put_text(f, "real", "x");
    OK(stk_file_mkdirs(at(f, "d/e"), 0755, &f->err));
    assert_int_equal(symlink(at(f, "real"), at(f, "link")), 0);
    assert_int_equal(symlink("/etc", at(f, "d/e/inner")), 0);
    assert_int_equal(mkfifo(at(f, "fifo"), 0600), 0);
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"link", "symbolic link"}, {"d", "d/e/inner' is a symbolic link"}, {"fifo", "named pipe"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = at(f, cases[i].name);
        assert_int_equal(stk_store_digest_path(path, hex, &size, &f->err), STK_E_USAGE);
        assert_non_null(strstr(f->err.text, cases[i].says));
        assert_int_equal(stk_store_add_path(f->store, path, NULL, &a, &f->err), STK_E_USAGE);
        assert_int_equal(stk_store_copy_path(f->store, path, &a, &f->err), STK_E_USAGE);
        struct stat st;
        assert_int_equal(lstat(path, &st), 0); /* what is refused stays there */
    }
    put_text(f, "line\nbreak", "x");
    assert_int_equal(stk_store_digest_path(at(f, "line\nbreak"), hex, &size, &f->err), 0);
    OK(stk_file_mkdirs(at(f, "l"), 0755, &f->err));
    put_text(f, "l/line\nbreak", "x");
    assert_int_equal(stk_store_digest_path(at(f, "l"), hex, &size, &f->err), STK_E_USAGE);
    assert_int_equal(stk_store_digest_path(at(f, "nowhere"), hex, &size, &f->err), STK_E_NOT_FOUND);
    assert_int_equal(stk_store_add_path(f->store, at(f, "real"), "short", &a, &f->err),
                     STK_E_PROTOCOL);

    int depth[2] = {STK_TREE_DEPTH, STK_TREE_DEPTH + 1};
    for (int i = 0; i < 2; i++) {
        STK_BUF_AUTO path = STK_BUF_INIT(100000);
        stk_buf_printf(&path, "%s/deep%d", f->dir, i);
        for (int k = 0; k < depth[i]; k++) {
            stk_buf_text(&path, "/d");
        }
        OK(stk_file_mkdirs(path.data, 0755, &f->err));
        assert_int_equal(stk_store_digest_path(stk_arena_printf(f->arena, "%s/deep%d", f->dir, i),
                                               hex, &size, &f->err),
                         i == 0 ? 0 : STK_E_LIMIT);
    }
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static int n_files(const char *root)
{
    STK_TREE_AUTO tree = {0};
    assert_int_equal(stk_tree_walk(root, false, &tree, NULL), 0);
    int n = 0;
    for (size_t i = 0; i < tree.n; i++) {
        n += !tree.files[i].is_dir;
    }
    return n;
}

static void test_add(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    stk_artifact a;
    stk_artifact b;
    const char *path = NULL;
    int64_t size = 0;
    put_text(f, "one", "content");
    OK(stk_store_add_path(f->store, at(f, "one"), NULL, &a, &f->err));
    assert_false(stk_file_exists(at(f, "one")));
    assert_int_equal(a.size, 7);
    assert_false(a.is_dir);
    OK(stk_store_artifact(f->store, a.digest, f->arena, &path, &size,
                          &f->err)); /* before a commit */
    assert_int_equal(size, 7);
    assert_int_equal(mode_of(path), 0444);
    put_text(f, "two", "content"); /* the same again: still one copy */
    OK(stk_store_add_path(f->store, at(f, "two"), NULL, &b, &f->err));
    assert_false(stk_file_exists(at(f, "two")));
    assert_string_equal(a.digest, b.digest);
    OK(stk_store_add_bytes(f->store, "content", 7, &b, &f->err));
    assert_string_equal(a.digest, b.digest);
    commit_ref(f, run, a.digest);

    make_tree(f, "tree");
    assert_int_equal(chmod(at(f, "tree/Z"), 0755), 0);
    OK(stk_store_add_path(f->store, at(f, "tree"), NULL, &b, &f->err));
    assert_true(b.is_dir);
    OK(stk_store_artifact(f->store, b.digest, f->arena, &path, &size, &f->err));
    assert_int_equal(mode_of(path), 0555);
    assert_int_equal(mode_of(stk_arena_printf(f->arena, "%s/Z", path)), 0555);
    assert_int_equal(mode_of(stk_arena_printf(f->arena, "%s/sub", path)), 0555);
    assert_int_equal(mode_of(stk_arena_printf(f->arena, "%s/sub/deep/x", path)), 0444);
    make_tree(f, "tree");
    OK(stk_store_add_path(f->store, at(f, "tree"), NULL, &b, &f->err));
    assert_false(stk_file_exists(at(f, "tree")));
    commit_ref(f, run, b.digest);
    assert_int_equal(n_files(stk_arena_printf(f->arena, "%s/artifacts", f->path)), 1 + 3);

    reopen(f, 0);
    OK(stk_store_artifact(f->store, a.digest, f->arena, &path, &size, &f->err));
    OK(stk_store_artifact(f->store, b.digest, f->arena, &path, &size, &f->err));
    assert_int_equal(size, 3);
    memset(b.digest, '0', STK_DIGEST_HEX);
    assert_int_equal(stk_store_artifact(f->store, b.digest, f->arena, &path, &size, &f->err),
                     STK_E_NOT_FOUND);
    assert_int_equal(stk_store_artifact(f->store, "../../x", f->arena, &path, &size, &f->err),
                     STK_E_USAGE);
}

/* A file with a second hard link is copied: the other link must stay writable and unchanged. */
static void test_hard_link(void **state)
{
    fixture *f = *state;
    stk_artifact a;
    const char *path = NULL;
    put_text(f, "data", "shared");
    OK(stk_file_mkdirs(at(f, "out"), 0755, &f->err));
    assert_int_equal(link(at(f, "data"), at(f, "out/data")), 0);
    OK(stk_store_add_path(f->store, at(f, "out"), NULL, &a, &f->err));
    assert_false(stk_file_exists(at(f, "out")));
    assert_int_equal(mode_of(at(f, "data")), 0644);
    OK(stk_store_artifact(f->store, a.digest, f->arena, &path, NULL, &f->err));
    put_text(f, "data", "new!!!");
    char hex[STK_DIGEST_HEX + 1];
    OK(stk_store_digest_path(path, hex, NULL, &f->err));
    assert_string_equal(hex, a.digest);
    assert_int_equal(mode_of(stk_arena_printf(f->arena, "%s/data", path)), 0444);
}

static void test_copy(void **state)
{
    fixture *f = *state;
    stk_artifact a;
    stk_artifact b;
    make_tree(f, "tree");
    OK(stk_store_copy_path(f->store, at(f, "tree"), &a, &f->err));
    assert_int_equal(n_files(at(f, "tree")), 3);
    assert_int_equal(mode_of(at(f, "tree/sub.a")), 0644);
    char hex[STK_DIGEST_HEX + 1];
    OK(stk_store_digest_path(at(f, "tree"), hex, NULL, &f->err));
    assert_string_equal(a.digest, hex);

    /* sparse: a hole of 64 MiB with one byte in it takes almost no space */
    int fd = open(at(f, "sparse"), O_RDWR | O_CREAT, 0644);
    assert_int_equal(ftruncate(fd, 64 << 20), 0);
    assert_int_equal(pwrite(fd, "x", 1, 40 << 20), 1);
    (void)close(fd);
    OK(stk_store_copy_path(f->store, at(f, "sparse"), &a, &f->err));
    const char *path = NULL;
    OK(stk_store_artifact(f->store, a.digest, f->arena, &path, NULL, &f->err));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 64 << 20);
    assert_true(st.st_blocks * 512 < 8 << 20);
    OK(stk_store_add_path(f->store, at(f, "sparse"), NULL, &b, &f->err));
    assert_string_equal(a.digest, b.digest);
}

static void sql(fixture *f, const char *text)
{
    OK(stk_store_exec(f->store, text, &f->err));
}

static void overwrite(const char *path, const char *text)
{
    assert_int_equal(chmod(path, 0644), 0);
    put(path, text, strlen(text));
    assert_int_equal(chmod(path, 0444), 0);
}

/* The store checks the digest of an artifact that a power cut may have torn or a process may have
 * changed before it trusts it, and moves a damaged one to quarantine/. */
static void test_torn(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *change; /* to the row, after the commit */
        bool torn;
        int rc;
        int64_t unsynced_rows; /* of this boot, afterwards */
    } cases[] = {
        {"UPDATE artifacts SET boot = 'other'", false, 0, 1},
        {"UPDATE artifacts SET boot = 'other'", true, STK_E_STORE, 0},
        {"UPDATE artifacts SET boot = 'other', synced = 1", false, 0, 0}, /* not hashed again */
        {"UPDATE artifacts SET boot = 'other', synced = 1", true, STK_E_STORE, 0},
        {"UPDATE artifacts SET synced = 0", true, STK_E_STORE, 0},
        {"UPDATE artifacts SET stamp = NULL", false, 0, 1}, /* as in an older store */
        {"UPDATE artifacts SET stamp = NULL", true, STK_E_STORE, 0},
        {"UPDATE artifacts SET stamp = '1 2 3 4'", false, 0, 1}, /* as in a copied store */
        {"DELETE FROM artifacts", false, 0, 1},                  /* no row: the file is adopted */
        {"DELETE FROM artifacts", true, STK_E_STORE, 0},
        {"UPDATE artifacts SET size = 5", true, STK_E_STORE, 0},
    };
    const char *run = new_run(f, NULL, "p", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_artifact a;
        const char *path = NULL;
        OK(stk_store_add_bytes(f->store, "0123456789", 10, &a, &f->err));
        commit_ref(f, run, a.digest);
        sql(f, cases[i].change);
        reopen(f, 0);
        STK_TEXT_AUTO file = stk_store_artifact_path(f->store, a.digest);
        if (cases[i].torn) {
            overwrite(file, "XXXXXXXXXX");
        }
        int rc = stk_store_artifact(f->store, a.digest, f->arena, &path, NULL, &f->err);
        assert_int_equal(rc, cases[i].rc);
        if (rc != 0) {
            assert_true(strstr(f->err.text, "damaged") || strstr(f->err.text, "changed"));
            STK_TEXT_AUTO aside = NULL;
            assert_true(asprintf(&aside, "%s/quarantine/%s", stk_store_path(f->store), a.digest) >
                        0);
            assert_true(stk_file_exists(aside));
            assert_false(stk_file_exists(file)); /* so the step runs again */
        }
        OK(commit_one(f, run, STK_EV_NOTE, 1, NULL));
        assert_int_equal(number(f, "SELECT count(*) FROM artifacts WHERE synced = 0"
                                   " AND boot <> 'other'"),
                         cases[i].unsynced_rows);
        sql(f, "DELETE FROM artifacts");
        OK(stk_file_remove_tree(file, &f->err));
        reopen(f, 0);
    }
}

/* Adding never trusts a file without a trusted row: it replaces it with its own content. */
static void test_replaces_torn(void **state)
{
    fixture *f = *state;
    stk_artifact a;
    stk_artifact d;
    const char *path = NULL;
    char hex[STK_DIGEST_HEX + 1];
    OK(stk_store_add_bytes(f->store, "good", 4, &a, &f->err));
    make_tree(f, "tree");
    OK(stk_store_add_path(f->store, at(f, "tree"), NULL, &d, &f->err));
    STK_TEXT_AUTO file = stk_store_artifact_path(f->store, a.digest);
    STK_TEXT_AUTO folder = stk_store_artifact_path(f->store, d.digest);
    commit_ref(f, new_run(f, NULL, "p", 0), a.digest);
    sql(f, "UPDATE artifacts SET boot = 'other'");
    overwrite(file, "damaged");
    overwrite(stk_arena_printf(f->arena, "%s/sub.a", folder), "damaged");
    reopen(f, 0);
    OK(stk_store_add_bytes(f->store, "good", 4, &a, &f->err));
    make_tree(f, "tree");
    OK(stk_store_add_path(f->store, at(f, "tree"), NULL, &d, &f->err));
    OK(stk_store_artifact(f->store, a.digest, f->arena, &path, NULL, &f->err));
    OK(stk_store_digest_path(path, hex, NULL, &f->err));
    assert_string_equal(hex, a.digest);
    OK(stk_store_digest_path(folder, hex, NULL, &f->err));
    assert_string_equal(hex, d.digest);
    /* a folder where a file should be */
    OK(stk_file_remove_tree(file, &f->err));
    assert_int_equal(mkdir(file, 0555), 0);
    reopen(f, 0);
    OK(stk_store_add_bytes(f->store, "good", 4, &a, &f->err));
    OK(stk_store_digest_path(file, hex, NULL, &f->err));
    assert_string_equal(hex, a.digest);
}

static void test_sync(void **state)
{
    fixture *f = *state;
    stk_artifact a;
    OK(stk_store_add_bytes(f->store, "x", 1, &a, &f->err));
    OK(stk_store_sync(f->store, &f->err)); /* does nothing: STOKER_SYNC=0 */
    commit_ref(f, new_run(f, NULL, "p", 0), a.digest);
    assert_int_equal(number(f, "SELECT sum(synced) FROM artifacts"), 0);
    (void)unsetenv("STOKER_SYNC");
    OK(stk_store_add_bytes(f->store, "y", 1, &a, &f->err));
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    OK(stk_store_sync_until(f->store, pipes[0], &f->err));
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    (void)setenv("STOKER_SYNC", "0", 1);
    assert_int_equal(number(f, "SELECT sum(synced) FROM artifacts"), 2);
    OK(stk_store_add_bytes(f->store, "z", 1, &a, &f->err));
    reopen(f, 0); /* closing writes rows that no commit wrote */
    assert_int_equal(number(f, "SELECT count(*) FROM artifacts"), 3);
    assert_int_equal(number(f, "SELECT sum(synced) FROM artifacts"), 2);
}

static void add_things(fixture *f)
{
    stk_artifact a;
    const char *tree = at(f, "tree");
    if (stk_store_add_bytes(f->store, "bytes", 5, &a, &f->err) != 0 ||
        stk_store_add_path(f->store, tree, NULL, &a, &f->err) != 0 ||
        stk_store_copy_path(f->store, at(f, "source"), &a, &f->err) != 0) {
        _exit(8);
    }
}

/* After a kill at any point, everything in artifacts/ is whole, and adding works. */
static void test_killed(void **state)
{
    fixture *f = *state;
    static const char *const points[] = {"store.add.hashed:1:kill", "store.add.renamed:1:kill",
                                         "store.add.hashed:2:kill", "store.add.renamed:2:kill",
                                         "store.copy.mid:1:kill",   "store.add.hashed:3:kill",
                                         "store.add.renamed:3:kill"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        if (!stk_file_exists(at(f, "tree"))) {
            make_tree(f, "tree");
        }
        put_text(f, "source", "source");
        int status = in_child(f, points[i], add_things);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (!stk_file_exists(at(f, "tree"))) {
            make_tree(f, "tree");
        }
        add_things(f);
        const char *run = new_run(f, NULL, "p", 0); /* also sweeps tmp/ */
        OK(commit_one(f, run, STK_EV_NOTE, 0, NULL));
        assert_int_equal(number(f, "SELECT count(*) FROM artifacts"), 3);
        sql(f, "UPDATE artifacts SET boot = 'other'"); /* so that each one is hashed again */
        reopen(f, 0);
        sqlite3_stmt *stmt = NULL;
        (void)sqlite3_prepare_v2(f->store->db, "SELECT digest FROM artifacts", -1, &stmt, NULL);
        while (sqlite3_step(stmt) == SQLITE_ROW) {
            const char *path;
            OK(stk_store_artifact(f->store, (const char *)sqlite3_column_text(stmt, 0), f->arena,
                                  &path, NULL, &f->err));
        }
        (void)sqlite3_finalize(stmt);
        sql(f, "DELETE FROM artifacts");
        OK(stk_file_remove_tree(stk_arena_printf(f->arena, "%s/artifacts", f->path), &f->err));
        reopen(f, 0);
    }
    OK(commit_one(f, new_run(f, NULL, "p", 0), STK_EV_NOTE, 0, NULL));
    reopen(f, 0);
    (void)new_run(f, NULL, "p", 0);
    assert_int_equal(n_files(stk_arena_printf(f->arena, "%s/tmp", f->path)), 0);
}

static void test_injected(void **state)
{
    fixture *f = *state;
    stk_artifact a;
    put_text(f, "one", "content");
    arm("store.add.hashed:1:enospc");
    assert_int_equal(stk_store_add_path(f->store, at(f, "one"), NULL, &a, &f->err), STK_E_FULL);
    assert_true(stk_file_exists(at(f, "one"))); /* nothing lost */
    arm("store.copy.mid:1:enospc");
    assert_int_equal(stk_store_copy_path(f->store, at(f, "one"), &a, &f->err), STK_E_FULL);
    disarm();
    OK(stk_store_add_path(f->store, at(f, "one"), NULL, &a, &f->err));
}

/* A disk that is really full: a tmpfs of 4 MiB. */
static void test_full(void **state)
{
    fixture *f = *state;
    const char *disk = at(f, "disk");
    assert_int_equal(mkdir(disk, 0755), 0);
    if (mount("none", disk, "tmpfs", 0, "size=4m") < 0) {
        print_message("skipped: a tmpfs can't be mounted: %s\n", strerror(errno));
        skip();
    }
    (void)snprintf(f->path, sizeof f->path, "%s/s", disk);
    reopen(f, STK_STORE_CREATE);
    const char *run = new_run(f, NULL, "p", 0);
    char *big = calloc(1, 3 << 20);
    stk_artifact kept;
    stk_artifact a;
    OK(stk_store_add_bytes(f->store, "kept", 4, &kept, &f->err));
    commit_ref(f, run, kept.digest);
    OK(stk_store_add_bytes(f->store, big, 2 << 20, &a, &f->err));
    int rc = stk_store_add_bytes(f->store, big, 3 << 20, &a, &f->err);
    assert_int_equal(rc, STK_E_FULL);
    /* a file on another file system is copied, and stays if that fails */
    put(at(f, "source"), big, 3 << 20);
    assert_int_equal(stk_store_add_path(f->store, at(f, "source"), NULL, &a, &f->err), STK_E_FULL);
    assert_true(stk_file_exists(at(f, "source")));
    char *note = calloc(1, 200001);
    memset(note, 'n', 200000);
    memcpy(note, "{\"text\":\"", 9);
    memcpy(note + 199998, "\"}", 3);
    int n = 0;
    while (n < 100 && (rc = commit_one(f, run, STK_EV_NOTE, 1, note)) == 0) {
        n++;
    }
    assert_int_equal(rc, STK_E_FULL);
    assert_non_null(strstr(f->err.hint, "df -i"));
    char id[40];
    int fd = -1;
    int filler = open(at(f, "disk/filler"), O_WRONLY | O_CREAT, 0600);
    while (write(filler, note, 4096) > 0) {
    }
    (void)close(filler);
    rc = stk_store_new_run(f->store, NULL, "p", note, 200000, 0, id, &fd, &f->err);
    assert_int_equal(rc, STK_E_FULL);
    assert_int_equal(unlink(at(f, "disk/filler")), 0);
    assert_int_equal(number(f, "SELECT count(*) FROM runs"), 1);
    reopen(f, 0);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), n); /* none lost, none partial */
    const char *path = NULL;
    OK(stk_store_artifact(f->store, kept.digest, f->arena, &path, NULL, &f->err));
    stk_store_close(f->store);
    f->store = NULL;
    free(note);
    free(big);
}

typedef struct origin {
    fixture *f;
    const char *text; /* content of its only artifact, or NULL */
    char digest[STK_DIGEST_HEX + 1];
    int n_asked, n_looked, error;
} origin;

static int has(void *arg, const char *digest, bool *ret_has, stk_err *err)
{
    origin *o = arg;
    o->n_looked++;
    *ret_has = o->text != NULL && strcmp(digest, o->digest) == 0;
    return o->error == 0 ? 0 : stk_err_set(err, o->error, "the share is down");
}

static int fetch(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    origin *o = arg;
    stk_artifact got;
    o->n_asked++;
    if (o->error != 0) {
        return stk_err_set(err, o->error, "the share is down");
    }
    if (o->text == NULL || strcmp(digest, o->digest) != 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "not there");
    }
    put_text(o->f, "fetched", o->text);
    return stk_store_add_path(store, at(o->f, "fetched"), digest, &got, err);
}

/* Asks for an artifact that only the origin has, before and after its bytes are fetched. */
static void test_origin(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 1);
    origin o = {.f = f, .text = "from afar"};
    const char *path = NULL;
    int64_t size = -1;
    stk_gc gc = {.keep_runs = 10};
    uint64_t n = 9, bytes;
    stk_tree_digest_bytes(o.text, strlen(o.text), o.digest);
    assert_int_equal(stk_store_add_absent(f->store, "abc", 1, false, &f->err), STK_E_PROTOCOL);
    OK(stk_store_add_absent(f->store, o.digest, 9, false, &f->err));
    OK(stk_store_add_absent(f->store, o.digest, 9, false, &f->err));
    assert_int_equal(f->store->n_pending, 1);
    /* without an origin the artifact isn't found */
    assert_int_equal(stk_store_locate(f->store, o.digest, f->arena, &path, &size, &f->err),
                     STK_E_NOT_FOUND);
    stk_store_set_origin(f->store, fetch, &o);
    OK(stk_store_locate(f->store, o.digest, f->arena, &path, &size, &f->err));
    assert_int_equal(size, 9);
    assert_int_equal(o.n_asked, 0);
    assert_false(stk_file_exists(path));
    commit_ref(f, run, o.digest);
    reopen(f, 0);
    /* a row without bytes is no damage, and stays while a run refers to it */
    OK(stk_store_verify(f->store, NULL, NULL, &n, &bytes, &f->err));
    assert_int_equal(n, 0);
    OK(stk_store_gc(f->store, &gc, 2, &f->err));
    assert_int_equal(number(f, "SELECT count(*) FROM artifacts"), 1);
    stk_store_set_origin(f->store, fetch, &o);
    stk_store_set_origin_has(f->store, has);
    o.text = NULL; /* the origin loses it, then is down */
    assert_int_equal(stk_store_locate(f->store, o.digest, f->arena, &path, &size, &f->err),
                     STK_E_NOT_FOUND);
    o.text = "from afar";
    o.error = STK_E_SYS;
    assert_int_equal(stk_store_locate(f->store, o.digest, f->arena, &path, &size, &f->err),
                     STK_E_SYS);
    o.error = o.n_asked = 0;
    for (int i = 0; i < 3; i++) {
        OK(stk_store_locate(f->store, o.digest, f->arena, &path, &size, &f->err));
        assert_int_equal(size, 9);
    }
    assert_int_equal(o.n_looked, 3); /* one more: the answer is kept */
    o.error = STK_E_SYS;
    assert_int_equal(stk_store_artifact(f->store, o.digest, f->arena, &path, &size, &f->err),
                     STK_E_SYS);
    assert_non_null(strstr(f->err.text, "the share is down"));
    o.error = 0;
    OK(stk_store_artifact(f->store, o.digest, f->arena, &path, &size, &f->err));
    assert_int_equal(o.n_asked, 2);
    assert_true(stk_file_exists(path));
    OK(stk_store_artifact(f->store, o.digest, f->arena, &path, &size, &f->err));
    assert_int_equal(o.n_asked, 2);
    commit_ref(f, run, o.digest);
    OK(stk_store_verify(f->store, NULL, NULL, &n, &bytes, &f->err));
    assert_int_equal(n, 1);
    char other[STK_DIGEST_HEX + 1];
    stk_tree_digest_bytes("nobody has it", 13, other);
    assert_int_equal(stk_store_artifact(f->store, other, f->arena, &path, &size, &f->err),
                     STK_E_NOT_FOUND);
    assert_non_null(strstr(f->err.text, "nor in its share"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_digest_of_files),
        TEST(test_digest_of_folder),
        TEST(test_refused),
        TEST(test_add),
        TEST(test_hard_link),
        TEST(test_copy),
        TEST(test_torn),
        TEST(test_replaces_torn),
        TEST(test_sync),
        TEST(test_killed),
        TEST(test_injected),
        TEST(test_full),
        TEST(test_origin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
