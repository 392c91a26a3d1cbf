#include "away/share/share.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "away/share/share_private.h"
#include "base/text.h"
#include "base/units.h"
#include "store/store_digest.h"
#include "sys/file.h"

enum { PATIENCE_MS = 15 * 60000 };

int stk_share_no_memory(const stk_share *share, stk_err *err)
{
    return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", share->url);
}

int stk_share_absent(const stk_share *share, const char *key, stk_err *err)
{
    return stk_err_set(err, STK_E_NOT_FOUND, "'%s' isn't in store '%s'", key, share->url);
}

int stk_share_taken(const stk_share *share, const char *key, stk_err *err)
{
    return stk_err_set(err, STK_E_BUSY, "'%s' is already in store '%s'", key, share->url);
}

int stk_share_sum(const stk_share *share, const char *path, char ret_hex[STK_DIGEST_HEX + 1],
                  stk_err *err)
{
    return stk_tree_digest_until(path, &share->cancelled, ret_hex, err);
}

int stk_share_check_digest(const char *name, const char *hex, const char *digest, stk_err *err)
{
    if (strcmp(hex, digest) != 0) {
        return stk_err_set(err, STK_E_STORE, "'%s' was changed: its digest is %.12s, not %.12s",
                           name, hex, digest);
    }
    return 0;
}

int stk_share_verify(const stk_share *share, const char *path, const char *key, const char *digest,
                     stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    STK_TRY(stk_share_sum(share, path, hex, err));
    return stk_share_check_digest(key, hex, digest, err);
}

/* --- open --- */

static int open_url(stk_share *s, stk_err *err)
{
    if (strncmp(s->url, "file:///", 8) == 0) {
        return stk_share_open_folder(s->url + 7, s, err);
    }
    if (s->url[0] == '/') {
        return stk_share_open_folder(s->url, s, err);
    }
    if (strncmp(s->url, "s3://", 5) == 0) {
        return stk_share_open_s3(s->url + 5, s, err);
    }
    if (strncmp(s->url, "ssh://", 6) == 0) {
        return stk_share_open_ssh(s->url + 6, s, err);
    }
    const char *url = s->url;
    if (strchr(url, '@') != NULL) { /* perhaps with a password */
        url = "…@…";
    }
    stk_err_set(err, STK_E_USAGE,
                "store '%s' must be a folder, a bucket of S3, or a folder of a host of ssh", url);
    stk_err_hint(err, "write s3://bucket/prefix, ssh://host/folder, or the absolute path of a "
                      "folder: /mnt/stoker");
    return STK_E_USAGE;
}

int stk_share_open(const char *url, stk_share **ret, stk_err *err)
{
    STK_SHARE_AUTO s = calloc(1, sizeof *s);
    if (s == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "store '%s'", url);
    }
    s->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->url = strdup(url);
    if (s->cancel_fd < 0 || s->url == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "store '%s'", url);
    }
    for (size_t n = strlen(s->url); n > 1 && s->url[n - 1] == '/'; n--) {
        s->url[n - 1] = '\0';
    }
    STK_TRY(open_url(s, err));
    *ret = s;
    s = NULL;
    return 0;
}

void stk_share_close(stk_share *share)
{
    if (share != NULL) {
        if (share->ops != NULL && share->ops->close != NULL) {
            share->ops->close(share);
        }
        stk_file_close(&share->cancel_fd);
        free(share->folder);
        free(share->url);
        free(share);
    }
}

void stk_share_cancel(stk_share *share)
{
    static const uint64_t one = 1;
    atomic_store(&share->cancelled, true);
    (void)!write(share->cancel_fd, &one, sizeof one);
}

void stk_share_hurry(stk_share *share)
{
    share->hurries = true;
}

bool stk_share_is_cancelled(const stk_share *share)
{
    struct pollfd on = {.fd = share->cancel_fd, .events = POLLIN};
    return poll(&on, 1, 0) > 0;
}

int stk_share_cancelled(const stk_share *share, stk_err *err)
{
    return stk_err_set(err, STK_E_CANCELLED, "store '%s': cancelled", share->url);
}

const char *stk_share_url(const stk_share *share)
{
    return share->url;
}

const char *stk_share_folder(const stk_share *share)
{
    return share->folder;
}

/* --- objects --- */

static const char *wrong_with_part(const char *part, size_t len)
{
    if (len == 0 || (len <= 2 && memcmp(part, "..", len) == 0)) {
        return "has an empty, '.' or '..' part";
    }
    if (len > 255) {
        return "has a part of more than 255 bytes";
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)part[i] < ' ' || part[i] == 127) {
            return "has a control character";
        }
    }
    return NULL;
}

static const char *wrong_with_key(const char *key)
{
    size_t n = strlen(key);
    if (strcmp(key, ".gitignore") == 0 || strcmp(key, ".stokerignore") == 0) {
        return "is reserved";
    }
    if (strncmp(key, ".tmp/", 5) == 0 || strcmp(key, ".tmp") == 0) {
        return "is below '.tmp'";
    }
    if (n == 0 || n > STK_SHARE_KEY_MAX) {
        return n == 0 ? "is empty" : "is longer than 900 bytes";
    }
    const char *wrong = NULL;
    for (const char *part = key; wrong == NULL && part != NULL;) {
        size_t len = strcspn(part, "/");
        wrong = wrong_with_part(part, len);
        part = part[len] == '/' ? part + len + 1 : NULL;
    }
    return wrong;
}

int stk_share_check_key(const stk_share *share, const char *key, stk_err *err)
{
    if (key == NULL) {
        return stk_share_no_memory(share, err);
    }
    if (stk_share_is_cancelled(share)) {
        return stk_share_cancelled(share, err);
    }
    const char *wrong = wrong_with_key(key);
    if (wrong != NULL) {
        return stk_err_set(err, STK_E_USAGE, "'%.100s' isn't a valid key of an object: it %s", key,
                           wrong);
    }
    return 0;
}

int64_t stk_share_patience_ms(void)
{
    const char *seconds = getenv("STOKER_SHARE_WAIT");
    char *end = NULL;
    double n = strtod(stk_text_or(seconds, "-1"), &end);
    return n >= 0 && n < 1e7 && *end == '\0' ? (int64_t)(n * 1000) : PATIENCE_MS;
}

bool stk_share_may_pass(const stk_err *err)
{
    static const int refusals[] = {EACCES, EPERM, EROFS, ENXIO, ENOEXEC}; /* the last two: link.h */
    bool is_refused = false;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        is_refused = is_refused || err->sys == refusals[i];
    }
    return !is_refused &&
           (err->code == STK_E_ENV || err->code == STK_E_SYS || err->code == STK_E_FULL);
}

bool stk_share_is_at_fault(int code)
{
    return code == STK_E_ENV || code == STK_E_SYS || code == STK_E_FULL || code == STK_E_STORE ||
           code == STK_E_NOT_FOUND;
}

/* What didn't fit, and into how much. S3 doesn't say that of itself. */
int stk_share_name_full(const stk_share *share, const char *key, int64_t n, int rc, stk_err *err)
{
    struct statvfs fs;
    char needs[32], has[64], why[sizeof err->text];
    if (rc != STK_E_FULL || err == NULL || share->ssh != NULL) { /* the far end has named it */
        return rc;
    }
    int sys = err->sys;
    (void)stk_units_format_memory(n, needs, sizeof needs);
    if (share->folder == NULL || statvfs(share->folder, &fs) < 0) {
        (void)snprintf(why, sizeof why, "%s", err->text);
        stk_err_set(err, rc, "store '%s' is full: %s ('%s' needs %s)", share->url, why, key, needs);
    } else {
        int64_t room = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
        (void)snprintf(why, sizeof why, "%s are free",
                       stk_units_format_memory(room, has, sizeof has));
        if (sys == EDQUOT) {
            (void)snprintf(why, sizeof why, "the quota is used up");
        } else if (fs.f_files > 0 && fs.f_favail == 0) {
            (void)snprintf(why, sizeof why, "it has no room for more files");
        }
        stk_err_set(err, rc, "store '%s' is full: '%s' needs %s, and %s", share->url, key, needs,
                    why);
    }
    stk_err_hint(err, "free space there");
    return rc;
}

int stk_share_put(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
                  stk_err *err)
{
    STK_TRY(stk_share_check_key(share, key, err));
    int rc = share->ops->put(share, key, data, n, only_new, err);
    return stk_share_name_full(share, key, (int64_t)n, rc, err);
}

int stk_share_send_file(stk_share *share, const char *key, const char *path, const char *digest,
                        stk_err *err)
{
    struct stat st = {0};
    int rc = share->ops->put_file(share, key, path, digest, err);
    if (rc == STK_E_FULL) {
        (void)stat(path, &st);
    }
    return stk_share_name_full(share, key, st.st_size, rc, err);
}

int stk_share_put_file(stk_share *share, const char *key, const char *path, stk_err *err)
{
    STK_TRY(stk_share_check_key(share, key, err));
    return stk_share_send_file(share, key, path, NULL, err);
}

static int get_bytes(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
                     stk_err *err)
{
    STK_TRY(stk_share_check_key(share, key, err));
    if (ret->max == 0) {
        ret->max = SHARE_GET_MAX;
    }
    return share->ops->get(share, key, from, whole, ret, err);
}

int stk_share_get(stk_share *share, const char *key, stk_buf *ret, stk_err *err)
{
    return get_bytes(share, key, 0, true, ret, err);
}

int stk_share_get_range(stk_share *share, const char *key, int64_t from, stk_buf *ret, stk_err *err)
{
    return get_bytes(share, key, from, false, ret, err);
}

int stk_share_get_file(stk_share *share, const char *key, const char *path, stk_err *err)
{
    STK_TEXT_AUTO beside = NULL;
    uint64_t random = 0;
    STK_TRY(stk_share_check_key(share, key, err));
    (void)!getrandom(&random, sizeof random, 0);
    if (asprintf(&beside, "%s.tmp-%016llx", path, (unsigned long long)random) < 0) {
        beside = NULL;
        return stk_share_no_memory(share, err);
    }
    int rc = share->ops->get_file(share, key, beside, NULL, -1, err);
    if (rc == 0 && rename(beside, path) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", path);
    }
    if (rc < 0) {
        (void)remove(beside);
    }
    return rc;
}

int stk_share_list(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                   void *arg, stk_err *err)
{
    if (stk_share_is_cancelled(share)) {
        return stk_share_cancelled(share, err);
    }
    return share->ops->list(share, stk_text_or(prefix, ""), stk_text_or(after, ""), each, arg, err);
}

int stk_share_delete(stk_share *share, const char *key, stk_err *err)
{
    STK_TRY(stk_share_check_key(share, key, err));
    return share->ops->remove(share, key, err);
}

typedef struct found {
    stk_arena *arena;
    const char **keys;
    uint32_t n, cap;
} found;

static int find_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    found *f = arg;
    const char **keys = stk_arena_grow(f->arena, f->keys, f->n, sizeof *keys, &f->cap);
    const char *copy = stk_arena_dup(f->arena, key);
    (void)size;
    (void)mtime_ms;
    if (keys == NULL || copy == NULL) {
        return STK_E_NOMEM;
    }
    f->keys = keys;
    keys[f->n++] = copy;
    return 0;
}

/* What is left of a folder's objects are its folders. */
static int remove_folders(const stk_share *share, const char *below, stk_err *err)
{
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, below, false, &last);
    if (at >= 0) {
        return stk_file_remove_tree_at(at, last, err);
    }
    if (errno == ELOOP) {
        return stk_share_behind_link(share, below, err);
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't remove '%s/%s'", share->folder, below);
    }
    return 0;
}

int stk_share_delete_all(stk_share *share, const char *below, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    found f = {.arena = arena};
    const char *prefix = stk_arena_printf(arena, "%s/", below);
    STK_TRY(stk_share_check_key(share, prefix == NULL ? NULL : below, err));
    if (share->ops->remove_all != NULL) {
        return share->ops->remove_all(share, below, err);
    }
    int rc = stk_share_list(share, prefix, NULL, find_key, &f, err);
    if (rc == STK_E_NOMEM) {
        return stk_share_no_memory(share, err);
    }
    STK_TRY(rc);
    for (uint32_t i = 0; i < f.n; i++) {
        STK_TRY(stk_share_delete(share, f.keys[i], err));
    }
    if (share->folder == NULL) {
        return 0;
    }
    return remove_folders(share, below, err);
}

int stk_share_link(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err)
{
    STK_TRY(stk_share_check_key(share, key, err));
    if (share->ops->link == NULL) {
        return stk_err_set(err, STK_E_USAGE, "store '%s' is a folder, so its objects have no URL",
                           share->url);
    }
    if (ret->max == 0) {
        ret->max = SHARE_GET_MAX;
    }
    return share->ops->link(share, key, seconds, ret, err);
}

static int is_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    (void)size;
    (void)mtime_ms;
    return strcmp(key, arg) == 0;
}

static int check_back(stk_share *share, char *key, const char *words, stk_err *err)
{
    STK_BUF_AUTO back = STK_BUF_INIT(1024);
    int rc = stk_share_get(share, key, &back, err);
    if (rc == 0 && strcmp(stk_text_or(back.data, ""), words) != 0) {
        rc = stk_err_set(err, STK_E_STORE, "it returns other content than was written");
    }
    if (rc < 0) {
        (void)stk_err_context(err, "can't read store '%s'", share->url);
        return rc;
    }
    rc = stk_share_list(share, "check/", NULL, is_key, key, err);
    if (rc == 0) {
        rc = stk_err_set(err, STK_E_STORE, "it doesn't list an object that was just written");
    }
    if (rc < 0) {
        (void)stk_err_context(err, "can't list store '%s'", share->url);
    }
    return MIN(rc, 0);
}

int stk_share_check(stk_share *share, stk_err *err)
{
    static const char words[] = "Stoker wrote this file to check the store; it may be removed\n";
    uint64_t random = 0;
    char key[64];
    (void)!getrandom(&random, sizeof random, 0);
    (void)snprintf(key, sizeof key, "check/%016llx", (unsigned long long)random);
    int rc = stk_share_put(share, key, words, sizeof words - 1, true, err);
    if (rc < 0) {
        (void)stk_err_context(err, "store '%s' can't be written", share->url);
        return rc;
    }
    rc = stk_share_put(share, key, words, sizeof words - 1, true, err);
    if (rc == 0) { /* two engines would write one log */
        (void)stk_share_delete(share, key, NULL);
        return stk_err_set(err, STK_E_ENV,
                           "store '%s' doesn't support creating an object only if it doesn't exist "
                           "(If-None-Match)",
                           share->url);
    }
    rc = check_back(share, key, words, err);
    stk_err why = {0};
    int removed = stk_share_delete(share, key, &why);
    if (rc == 0 && removed < 0) {
        rc = stk_err_context(&why, "can't remove an object from store '%s'", share->url);
        if (err != NULL) {
            *err = why;
        }
    }
    return rc;
}

/* --- several at once --- */

typedef struct batch {
    uint64_t n;
    int (*job)(void *arg, uint64_t i, stk_err *err);
    void *arg;
    atomic_ullong next;
    pthread_mutex_t lock; /* of what follows */
    int rc;
    stk_err err;
} batch;

static bool has_failed(batch *b)
{
    (void)pthread_mutex_lock(&b->lock);
    bool over = b->rc != 0;
    (void)pthread_mutex_unlock(&b->lock);
    return over;
}

static void *do_jobs(void *arg)
{
    batch *b = arg;
    uint64_t i;
    while (!has_failed(b) && (i = atomic_fetch_add(&b->next, 1)) < b->n) {
        stk_err err = {0};
        int rc = b->job(b->arg, i, &err);
        if (rc != 0) {
            (void)pthread_mutex_lock(&b->lock);
            if (b->rc == 0) {
                b->rc = rc;
                b->err = err;
            }
            (void)pthread_mutex_unlock(&b->lock);
        }
    }
    return NULL;
}

/* The caller works too: without any thread it only takes longer. */
int stk_share_parallel(uint32_t at_once, uint64_t n,
                       int (*job)(void *arg, uint64_t i, stk_err *err), void *arg, stk_err *err)
{
    batch b = {.n = n, .job = job, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[SHARE_THREADS_MAX];
    uint32_t n_threads = 0;
    sigset_t all;
    sigset_t old;
    (void)sigfillset(&all); /* signals are for the caller's own thread */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    while (n_threads + 1 < at_once && n_threads < SHARE_THREADS_MAX && n_threads + 1 < n &&
           pthread_create(&threads[n_threads], NULL, do_jobs, &b) == 0) {
        n_threads++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)do_jobs(&b);
    while (n_threads > 0) {
        (void)pthread_join(threads[--n_threads], NULL);
    }
    if (b.rc != 0 && err != NULL) {
        *err = b.err;
    }
    return b.rc;
}
