#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/testing.h"
#include "store/package/package.h"
#include "store/package/package_private.h"
#include "store/store_digest.h"
#include "sys/file.h"

typedef struct bench {
    char dir[64], root[96], store_path[96];
    stk_arena *arena;
    stk_store *store;
    const char *note;
    stk_err err;
} bench;

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    (void)snprintf(b->dir, sizeof b->dir, "/tmp/stk-package-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->root, sizeof b->root, "%s/proj", b->dir);
    (void)snprintf(b->store_path, sizeof b->store_path, "%s/proj/.stoker", b->dir);
    b->arena = stk_arena_new(0);
    assert_int_equal(mkdir(b->root, 0755), 0);
    assert_int_equal(stk_store_open(b->store_path, STK_STORE_CREATE, &b->store, &b->err), 0);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    stk_store_close(b->store);
    (void)stk_file_remove_tree(b->dir, NULL);
    stk_arena_free(b->arena);
    free(b);
    return 0;
}

static const char *put(bench *b, const char *name, const char *text, mode_t mode)
{
    char *path = stk_arena_printf(b->arena, "%s/%s", b->root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0755, &b->err), 0);
    *slash = '/';
    assert_int_equal(stk_file_write(path, text, strlen(text), mode, &b->err), 0);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void put_pattern(bench *b, const char *name)
{
    put(b, name, "x\n", 0644);
}

/* The files of a package, one per line. */
static const char *listing(bench *b)
{
    package_list list = {.root = b->root, .store = b->store_path};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    assert_int_equal(stk_package_walk(&list, b->arena, &b->err), 0);
    for (uint32_t i = 0; i < list.n; i++) {
        stk_buf_printf(&text, "%s\n", list.files[i].path);
    }
    return stk_arena_dup(b->arena, text.data != NULL ? text.data : "");
}

static const char *output_of(bench *b, const char *command)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    char part[4096];
    FILE *out = popen(command, "r");
    assert_non_null(out);
    for (size_t n; (n = fread(part, 1, sizeof part, out)) > 0;) {
        stk_buf_add(&text, part, n);
    }
    assert_int_equal(pclose(out), 0);
    return stk_arena_dup(b->arena, text.data != NULL ? text.data : "");
}

static void test_match(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool fits;
    } cases[] = {
        {"*.pyc", "a.pyc", true},
        {"*.pyc", "a/b.pyc", false},
        {"a/**", "a/b/c", true},
        {"a/**", "a", false},
        {"**/c", "a/b/c", true},
        {"**/c", "c", true},
        {"a/**/c", "a/c", true},
        {"a/**/c", "a/x/y/c", true},
        {"a/*/c", "a/x/y/c", false},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[]x]", "]", true},
        {"[[:digit:]]*", "7up", true},
        {"?", "/", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"*a*b*c", "xaybzc", true},
        {"*a*b*c", "xaybz", false},
        {"foo**bar", "fooxbar", true},
        {"foo**bar", "foo/bar", false},
        {"[a", "[a", false},
        {"a[/]b", "a/b", false},
        {"**/a*b/**/c", "x/ab/ab/y/c", true},
        {"a*/b", "ax/y/b", false},
        {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/a/**/b",
         "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (stk_ignore_match(cases[i].pattern, cases[i].text) != cases[i].fits) {
            fail_msg("'%s' on '%s'", cases[i].pattern, cases[i].text);
        }
    }
}

/* The package has the files that git itself lists, with all of git's ignore grammar. */
static void test_like_git(void **state)
{
    static const char *const names[] = {
        "a.py",
        "b.pyc",
        "keep.pyc",
        "build/x.o",
        "src/build/y.o",
        "src/main.c",
        "src/main.o",
        "docs/api/index.html",
        "docs/api/keep.md",
        "data/big.bin",
        "data/small/ok.txt",
        "logs/today.log",
        "logs/keep/this.log",
        "deep/a/b/c/x.tmp",
        "deep/a/b/c/x.txt",
        "deep/x.tmp",
        "sp ace.txt",
        "trail /x",
        "#hash",
        "!bang",
        "foo1",
        "foo2",
        "fooa",
        "only_dir/f",
        "sub/only_dir",
        "sub/.gitignore2",
        "local.cfg",
        "sub/local.cfg",
        "forced/kept.bin",
        "forced/lost.bin",
        "top/mid/end",
        "top/x/y/mid/end",
        "ex/cluded.x",
        "class_b.t",
        "class_z.t",
        "sub/neg.txt",
        "nested/one/two.skip",
        "nested/one/two.take",
        "\303\244\303\266.txt",
    };
    bench *b = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put_pattern(b, names[i]);
    }
    put(b, ".gitignore",
        "*.pyc\n!keep.pyc\n/build\n*.o\ndocs/api/*\n!docs/api/keep.md\ndata/\n"
        "logs/*\n!logs/keep/\ndeep/**/x.tmp\nsp\\ ace.txt\ntrail\\ /\n\\#hash\n\\!bang\n"
        "foo[0-9]\nonly_dir/\n/local.cfg\nforced/\ntop/**/end\nclass_[[:alpha:]].t\n"
        "!class_z.t\nneg.txt   \n.stoker/\n# a comment\n\n*.skip\r\n",
        0644);
    put(b, "sub/.gitignore", "!neg.txt\n", 0644);
    put(b, "nested/.gitignore", "/one/*\n!*.take\n", 0644);
    const char *init = stk_arena_printf(
        b->arena,
        "cd %s && export HOME=%s XDG_CONFIG_HOME=%s && git init -q . && mkdir -p .git/info && "
        "printf 'ex/\\n' > .git/info/exclude && git add -f forced/kept.bin src/main.o",
        b->root, b->dir, b->dir);
    if (system("git --version >/dev/null 2>&1") != 0) {
        skip(); /* a machine without git */
    }
    assert_int_equal(system(init), 0);
    for (int version = 2; version <= 4; version += 2) {
        const char *ask = stk_arena_printf(
            b->arena,
            "cd %s && export HOME=%s XDG_CONFIG_HOME=%s && git update-index --index-version %d && "
            "git ls-files -z --cached --others --exclude-standard | tr '\\0' '\\n' | LC_ALL=C sort",
            b->root, b->dir, b->dir, version);
        assert_string_equal(listing(b), output_of(b, ask));
    }
}

static void test_stokerignore(void **state)
{
    bench *b = *state;
    put(b, "a.py", "x", 0644);
    put(b, "data/x.csv", "x", 0644);
    put(b, "weights.bin", "x", 0644);
    put(b, "notes.md", "x", 0644);
    put(b, "sub/notes.md", "x", 0644);
    put(b, ".venv/pyvenv.cfg", "x", 0644);
    put(b, ".venv/lib/y.py", "x", 0644);
    put(b, "__pycache__/a.pyc", "x", 0644);
    put(b, ".gitignore", "data/\n*.bin\n", 0644);
    put(b, ".stokerignore", "*.md\n!data/\n", 0644);
    put(b, "sub/.stokerignore", "!notes.md\n", 0644);
    assert_string_equal(listing(b),
                        ".gitignore\n.stokerignore\na.py\ndata/x.csv\nsub/.stokerignore\n"
                        "sub/notes.md\n");
}

static void test_same_twice(void **state)
{
    bench *b = *state;
    stk_artifact first, second, third;
    put(b, "a.py", "print(1)\n", 0644);
    put(b, "bin/run", "#!/bin/sh\n", 0755);
    put(b, "lib/empty", "", 0644);
    assert_int_equal(symlink("a.py", stk_arena_printf(b->arena, "%s/alias.py", b->root)), 0);
    assert_int_equal(symlink("lib", stk_arena_printf(b->arena, "%s/lib2", b->root)), 0);
    assert_int_equal(symlink("/etc/hostname", stk_arena_printf(b->arena, "%s/host", b->root)), 0);
    assert_int_equal(symlink("nowhere", stk_arena_printf(b->arena, "%s/broken", b->root)), 0);
    assert_int_equal(symlink("..", stk_arena_printf(b->arena, "%s/lib/round", b->root)), 0);
    if (stk_package_add(b->store, b->root, 0, b->arena, &first, &b->note, &b->err) < 0) {
        fail_msg("%s", b->err.text);
    }
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &second, &b->note, &b->err),
                     0);
    assert_string_equal(first.digest, second.digest);
    /* the digest that was computed in advance is the store's */
    const char *path = NULL;
    char hex[STK_DIGEST_HEX + 1];
    int64_t size = 0;
    assert_int_equal(stk_store_artifact(b->store, first.digest, b->arena, &path, &size, &b->err),
                     0);
    assert_int_equal(stk_store_digest_path(path, hex, &size, &b->err), 0);
    assert_string_equal(hex, first.digest);
    /* an executable bit changes the digest */
    assert_int_equal(chmod(stk_arena_printf(b->arena, "%s/a.py", b->root), 0755), 0);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &third, &b->note, &b->err), 0);
    assert_string_not_equal(third.digest, first.digest);

    const char *view = stk_arena_printf(b->arena, "%s/view", b->dir);
    assert_int_equal(stk_package_view(b->store, first.digest, view, &b->err), 0);
    const char *said = output_of(
        b,
        stk_arena_printf(b->arena,
                         "cd %s && find . -mindepth 1 -printf '%%y %%P %%l\\n' | LC_ALL=C sort && "
                         "cat alias.py && test -x bin/run && ! test -x a.py && test -f host && "
                         "! test -L host",
                         view));
    assert_string_equal(said, "d bin \nd lib \nf a.py \nf bin/run \nf host \nf lib/empty \n"
                              "l alias.py a.py\nl lib/round ..\nl lib2 lib\nprint(1)\n");
}

static void put_shut_folder(bench *b, const char *name)
{
    assert_int_equal(chmod(stk_arena_printf(b->arena, "%s/%s", b->root, name), 0700), 0);
}

static void test_private(void **state)
{
    bench *b = *state;
    put(b, "a.py", "1\n", 0644);
    put(b, ".env", "TOKEN=x\n", 0644);
    put(b, ".env.local", "TOKEN=x\n", 0644);
    put(b, ".env.example", "TOKEN=\n", 0644);
    put(b, "sub/.ssh/known_hosts", "x\n", 0644);
    put(b, "sub/.docker/config.json", "{}\n", 0644);
    put(b, "sub/config.json", "{}\n", 0644);
    put(b, "mine.txt", "x\n", 0600);
    put(b, "shut/other.txt", "x\n", 0644);
    put_shut_folder(b, "shut");
    put(b, "key.pem", "-----BEGIN RSA PRIVATE KEY-----\n", 0644);
    put(b, "ca.pem", "-----BEGIN CERTIFICATE-----\n", 0644);
    put(b, "id_mapping.py", "2\n", 0644);
    put(b, "id_lab", "-----BEGIN OPENSSH PRIVATE KEY-----\n", 0644);
    put(b, "id_rsa.pub", "ssh-rsa\n", 0644);
    put(b, "ids/id_map/a.py", "3\n", 0644);
    put(b, "outside.txt", "x\n", 0644);
    assert_int_equal(
        symlink(put(b, "../key", "x\n", 0600), stk_arena_printf(b->arena, "%s/linked", b->root)),
        0);
    assert_string_equal(listing(b), ".env.example\na.py\nca.pem\nid_mapping.py\nid_rsa.pub\n"
                                    "ids/id_map/a.py\noutside.txt\nsub/config.json\n");
    stk_artifact a;
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &a, &b->note, &b->err), 0);
    assert_string_equal(
        b->note,
        "left out of the project's code as private: .env, .env.local, id_lab, key.pem, linked and "
        "4 more; to include one, add a line with '!' and its name to .stokerignore");
    /* A pattern that includes everything doesn't include private files. */
    put(b, ".stokerignore", "!*\n!**/*\n", 0644);
    assert_null(strstr(listing(b), ".env\n"));
    put(b, ".stokerignore", "!.env\n!sub/.ssh\n!shut/\n!mine.*\n", 0644);
    assert_non_null(strstr(listing(b), ".env\n"));
    assert_non_null(strstr(listing(b), "sub/.ssh/known_hosts\n"));
    assert_non_null(strstr(listing(b), "shut/other.txt\n"));
    assert_non_null(strstr(listing(b), "mine.txt\n"));
    assert_null(strstr(listing(b), "key.pem\n"));
}

/* File modes don't mark private files where only the owner can enter the project, nor among files
 * that git tracks. */
static void test_private_by_habit(void **state)
{
    bench *b = *state;
    put(b, "a.py", "1\n", 0600);
    put(b, "lib/b.py", "1\n", 0600);
    put_shut_folder(b, "lib");
    assert_string_equal(listing(b), "");
    put_shut_folder(b, ".");
    put(b, ".env", "TOKEN=x\n", 0600);
    assert_string_equal(listing(b), "a.py\nlib/b.py\n");
    assert_int_equal(chmod(b->root, 0755), 0);
    (void)output_of(b, stk_arena_printf(b->arena, "cd %s && git init -q && git add -f .", b->root));
    assert_string_equal(listing(b), "a.py\nlib/b.py\n");
}

static unsigned mode_of(bench *b, const char *folder, const char *name)
{
    struct stat st;
    const char *path = stk_arena_printf(b->arena, "%s/%s", folder, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* Modes are kept in the store, in a view, and in the view of an artifact that lost its modes on the
 * way. */
static void test_modes_are_kept(void **state)
{
    bench *b = *state;
    stk_artifact open, shut;
    const char *path = NULL;
    int64_t size = 0;
    put(b, ".stokerignore", "!own*\n", 0644);
    put(b, "own", "x\n", 0644);
    put(b, "own.sh", "x\n", 0755);
    put(b, "a.py", "x\n", 0640);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &open, &b->note, &b->err), 0);
    put(b, "own", "x\n", 0600);
    put(b, "own.sh", "x\n", 0700);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &shut, &b->note, &b->err), 0);
    assert_null(b->note);
    assert_string_not_equal(open.digest, shut.digest);
    assert_int_equal(stk_store_artifact(b->store, shut.digest, b->arena, &path, &size, &b->err), 0);
    assert_int_equal(mode_of(b, path, "."), 0500);
    assert_int_equal(mode_of(b, path, "own"), 0400);
    for (int i = 0; i < 2; i++) {
        const char *view = stk_arena_printf(b->arena, "%s/view%d", b->dir, i);
        assert_int_equal(stk_package_view(b->store, shut.digest, view, &b->err), 0);
        assert_int_equal(mode_of(b, view, "own"), 0400);
        assert_int_equal(mode_of(b, view, "own.sh"), 0500);
        assert_int_equal(mode_of(b, view, "a.py"), 0444);
        assert_int_equal(chmod(stk_arena_printf(b->arena, "%s/own", path), 0444), 0);
        assert_int_equal(chmod(stk_arena_printf(b->arena, "%s/own.sh", path), 0555), 0);
    }
    assert_int_equal(mode_of(b, b->store_path, "package"), 0700);
}

/* A change of the same size in the same second: the time stamp alone must not decide. */
static void test_sees_changes(void **state)
{
    bench *b = *state;
    stk_artifact before, after;
    put(b, "a.py", "x = 1\n", 0644);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &before, &b->note, &b->err),
                     0);
    put(b, "a.py", "x = 2\n", 0644);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &after, &b->note, &b->err), 0);
    assert_string_not_equal(before.digest, after.digest);
    put(b, "a.py", "x = 1\n", 0644);
    assert_int_equal(stk_package_add(b->store, b->root, 0, b->arena, &after, &b->note, &b->err), 0);
    assert_string_equal(before.digest, after.digest);
}

static void test_too_large(void **state)
{
    bench *b = *state;
    stk_artifact a;
    put(b, "small.py", "x", 0644);
    put(b, "large.bin", "0123456789", 0644);
    assert_int_equal(stk_package_add(b->store, b->root, 11, b->arena, &a, &b->note, &b->err), 0);
    assert_int_equal(stk_package_add(b->store, b->root, 10, b->arena, &a, &b->note, &b->err),
                     STK_E_LIMIT);
    assert_non_null(strstr(b->err.text, "largest: large.bin (10 B)"));
    assert_non_null(strstr(b->err.hint, ".stokerignore"));
}

static void test_root(void **state)
{
    bench *b = *state;
    const char *below = stk_arena_printf(b->arena, "%s/a/b", b->root);
    assert_int_equal(stk_file_mkdirs(below, 0755, &b->err), 0);
    assert_string_equal(stk_package_root(below, b->arena), below);
    put(b, "pyproject.toml", "", 0644);
    assert_string_equal(stk_package_root(below, b->arena), b->root);
    put(b, "a/stoker.yaml", "", 0644);
    assert_string_equal(stk_package_root(below, b->arena),
                        stk_arena_printf(b->arena, "%s/a", b->root));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test_setup_teardown(test_like_git, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stokerignore, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_same_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_private, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_private_by_habit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_modes_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sees_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_root, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
