/* The archive of this program for other machines, made once for each build and kept in the user's
 * cache folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/text.h"
#include "run/run_carry.h"
#include "run/run_python.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { BUILD_BYTES = 16 << 20, KEPT_S = 30 * 86400, KEPT_BYTES = 4096 };

/* --- which build is it? --- */

static void put_stat(stk_buf *out, const char *name, const struct stat *st)
{
    stk_buf_printf(out, "%s %lld %lld.%09ld %o\n", name, (long long)st->st_size,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (unsigned)st->st_mode);
}

static void put_file_stat(stk_buf *out, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0) {
        put_stat(out, path, &st);
    }
}

static int put_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    put_file_stat(arg, info->dlpi_name);
    return 0;
}

static int put_module(void *arg, const stk_dir_seen *seen, stk_err *err)
{
    (void)err;
    if (strcmp(seen->name, "__pycache__") == 0) {
        return STK_DIR_SKIP;
    }
    if (S_ISREG(seen->st->st_mode)) {
        put_stat(arg, seen->below, seen->st);
    }
    return 0;
}

/* Names all that goes into the archive, as it is on disk. */
static int name_build(const char *program, stk_arena *arena, char ret_hex[STK_DIGEST_HEX + 1],
                      stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(BUILD_BYTES);
    const char *front = stk_run_front(program, arena);
    (void)stk_run_carry_curl();
    stk_buf_text(&text, "stoker-carry 1\n");
    put_file_stat(&text, "/proc/self/exe");
    (void)dl_iterate_phdr(put_library, &text);
    for (const char *const *path = stk_run_carry_roots; *path != NULL; path++) {
        put_file_stat(&text, *path);
    }
    if (front != NULL) {
        stk_buf_printf(&text, "%s\n", front);
        STK_TRY(stk_dir_walk(front, put_module, &text, err));
    }
    STK_TRY(stk_buf_check(&text, err));
    stk_digest_of(text.data, text.len, ret_hex);
    return 0;
}

/* --- kept --- */

/* NULL: there is none that can be written. */
static const char *cache_folder(stk_arena *arena)
{
    STK_TEXT_AUTO folder = stk_file_cache("carry");
    if (folder == NULL || stk_file_mkdirs(folder, 0700, NULL) < 0 || access(folder, W_OK) < 0) {
        return NULL;
    }
    return stk_arena_dup(arena, folder);
}

/* Its digest, if the archive is whole: "<digest> <bytes>" stands beside it. */
static const char *find_kept(const char *tar, const char *note, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    struct stat st;
    char hex[STK_DIGEST_HEX + 1];
    long long bytes = 0;
    if (stk_file_read_untrusted(note, KEPT_BYTES, &text, &len, NULL) < 0 ||
        sscanf(text, "%64[0-9a-f] %lld", hex, &bytes) != 2 || strlen(hex) != STK_DIGEST_HEX ||
        lstat(tar, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != bytes) {
        return NULL;
    }
    (void)utimensat(AT_FDCWD, tar, NULL, 0); /* it is used, so it stays */
    (void)utimensat(AT_FDCWD, note, NULL, 0);
    return stk_arena_dup(arena, hex);
}

static void remove_old(const char *folder)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_if(folder, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        struct stat st;
        if (fstatat(dir.fd, dir.items[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < time(NULL) - KEPT_S) {
            (void)stk_file_remove_tree_at(dir.fd, dir.items[i].name, NULL);
        }
    }
}

/* Writes the archive to `tar`, by way of the folder `copy`. */
static int write_new(const char *program, const char *copy, const char *tar, stk_arena *arena,
                     const char **ret_digest, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    int rc = stk_run_carry_all(program, copy, arena, err);
    if (rc == 0) {
        rc = stk_run_carry_sum(copy, tar, hex, err);
    }
    (void)stk_file_remove_tree(copy, NULL);
    STK_TRY(rc);
    *ret_digest = stk_arena_dup(arena, hex);
    return stk_err_if_null(*ret_digest, err);
}

static int sync_file(const char *path, int64_t *ret_bytes, stk_err *err)
{
    struct stat st;
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0 || fstat(fd, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", path);
    }
    *ret_bytes = st.st_size;
    return 0;
}

/* Under other names first: several may make it at the same time, and all make the same. */
static int make_kept(const char *program, const char *tar, const char *note, stk_arena *arena,
                     const char **ret_digest, stk_err *err)
{
    const char *copy = stk_arena_printf(arena, "%s.%d", tar, (int)getpid());
    const char *made = stk_arena_printf(arena, "%s.%d.tar", tar, (int)getpid());
    int64_t bytes = 0;
    if (copy == NULL || made == NULL) {
        return stk_err_nomem(err);
    }
    int rc = write_new(program, copy, made, arena, ret_digest, err);
    if (rc == 0) {
        rc = sync_file(made, &bytes, err);
    }
    if (rc == 0 && rename(made, tar) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "writing %s", tar);
    }
    if (rc < 0) {
        (void)unlink(made);
        return rc;
    }
    const char *text = stk_arena_printf(arena, "%s %lld\n", *ret_digest, (long long)bytes);
    STK_TRY(stk_err_if_null(text, err));
    return stk_file_write_atomic(note, text, strlen(text), 0600, err);
}

/* --- without a place to keep it: in memory, as long as this process lives --- */

static struct {
    pthread_mutex_t lock;
    char path[64]; /* "": none yet */
    char digest[STK_DIGEST_HEX + 1];
} in_memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int make_in_memory(const char *program, stk_arena *arena, stk_err *err)
{
    char path[64];
    const char *digest = NULL;
    char *top =
        stk_arena_printf(arena, "%s/stoker-carry-XXXXXX", stk_text_or(getenv("TMPDIR"), "/tmp"));
    STK_TRY(stk_err_if_null(top, err));
    if (mkdtemp(top) == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", top);
    }
    int fd = memfd_create("stoker-carry", MFD_CLOEXEC); /* stays open */
    if (fd < 0) {
        (void)rmdir(top);
        return stk_err_sys(err, STK_E_SYS, errno, "our program's archive");
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = write_new(program, top, path, arena, &digest, err);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    (void)snprintf(in_memory.digest, sizeof in_memory.digest, "%s", digest);
    (void)snprintf(in_memory.path, sizeof in_memory.path, "%s", path);
    return 0;
}

static int give_from_memory(const char *program, stk_arena *arena, const char **ret_tar,
                            const char **ret_digest, stk_err *err)
{
    (void)pthread_mutex_lock(&in_memory.lock);
    int rc = in_memory.path[0] != '\0' ? 0 : make_in_memory(program, arena, err);
    (void)pthread_mutex_unlock(&in_memory.lock);
    *ret_tar = in_memory.path;
    *ret_digest = in_memory.digest;
    return rc;
}

static int find_or_make(const char *program, stk_arena *arena, const char **ret_tar,
                        const char **ret_digest, stk_err *err)
{
    char build[STK_DIGEST_HEX + 1];
    stk_err why = {0};
    const char *folder = cache_folder(arena);
    if (folder == NULL) {
        return give_from_memory(program, arena, ret_tar, ret_digest, err);
    }
    STK_TRY(name_build(program, arena, build, err));
    const char *tar = stk_arena_printf(arena, "%s/%.32s.tar", folder, build);
    const char *note = stk_arena_printf(arena, "%s/%.32s.sha256", folder, build);
    if (tar == NULL || note == NULL) {
        return stk_err_nomem(err);
    }
    *ret_tar = tar;
    *ret_digest = find_kept(tar, note, arena);
    if (*ret_digest != NULL) {
        return 0;
    }
    remove_old(folder);
    if (make_kept(program, tar, note, arena, ret_digest, &why) == 0) {
        return 0;
    }
    if (why.code == STK_E_FULL || why.sys == EDQUOT || why.sys == EROFS) {
        return give_from_memory(program, arena, ret_tar, ret_digest, err);
    }
    if (err != NULL) {
        *err = why;
    }
    return why.code;
}

int stk_run_carry_archive(const char *program, stk_arena *arena, const char **ret_tar,
                          const char **ret_digest, stk_err *err)
{
    static pthread_mutex_t one_makes_it =
        PTHREAD_MUTEX_INITIALIZER; /* for all hosts of a process */
    (void)pthread_mutex_lock(&one_makes_it);
    int rc = find_or_make(program, arena, ret_tar, ret_digest, err);
    (void)pthread_mutex_unlock(&one_makes_it);
    return rc;
}
