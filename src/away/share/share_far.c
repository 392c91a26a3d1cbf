/* The far end of ssh:// stores: a folder of this machine, for requests from another one. The folder
 * has the URL that the other end knows it by, so that errors name it. */
#include "away/share/share_far.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { LIST_KEYS = 2000, LIST_BYTES = 1 << 20, HERE_MAX = 64 };

/* --- the stores --- */

static struct {
    pthread_mutex_t lock;
    stk_share *at[HERE_MAX];
    uint32_t n;
} here = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* "~" and "~/x" are this user's home and below it. malloc'd; NULL: no memory. */
static char *folder_of(const char *path)
{
    const struct passwd *user = *path == '~' ? getpwuid(getuid()) : NULL;
    const char *home = getenv("HOME");
    if (*path != '~') {
        return strdup(path);
    }
    if (home == NULL || *home != '/') {
        home = user == NULL ? "/" : user->pw_dir;
    }
    return stk_file_printf("%s%s", home, path + 1);
}

static int open_here(const char *url, const char *path, stk_share **ret, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TEXT_AUTO folder = folder_of(path);
    char *name = strdup(url);
    if (folder == NULL || name == NULL) {
        free(name);
        return stk_err_nomem(err);
    }
    int rc = stk_share_open(folder, &share, err);
    if (rc < 0) {
        free(name);
        return rc;
    }
    free(share->url);
    share->url = name;
    *ret = share;
    share = NULL;
    return 0;
}

static int find_here(const char *url, const char *path, stk_share **ret, stk_err *err)
{
    for (uint32_t i = 0; i < here.n; i++) {
        if (strcmp(here.at[i]->url, url) == 0) {
            *ret = here.at[i];
            return 0;
        }
    }
    if (here.n == HERE_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "too many stores are open at once");
    }
    STK_TRY(open_here(url, path, ret, err));
    here.at[here.n++] = *ret;
    return 0;
}

/* Second names of objects that were created only once; their creator knows that it did. */
static void remove_second_names(stk_share *share, const stk_json *names)
{
    STK_FD_AUTO dir = -1;
    if (stk_json_n_items(names) == 0 || stk_share_open_tmp(share, &dir, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < stk_json_n_items(names); i++) {
        const char *name = stk_json_text(stk_json_item(names, i));
        if (name != NULL && stk_share_is_temporary(name)) {
            (void)unlinkat(dir, name, 0);
        }
    }
}

int stk_share_far_open(const stk_json *ask, stk_share **ret, const char **ret_key, stk_err *err)
{
    const char *url = stk_json_get_text(ask, "url"), *path = stk_json_get_text(ask, "folder");
    const char *key = stk_json_get_text(ask, "key");
    if (url == NULL || path == NULL || (ret_key != NULL && key == NULL)) {
        return stk_err_set(err, STK_E_PROTOCOL, "a request for a store lacks its name or key");
    }
    (void)pthread_mutex_lock(&here.lock);
    int rc = find_here(url, path, ret, err);
    (void)pthread_mutex_unlock(&here.lock);
    STK_TRY(rc);
    if (stk_json_is_true(stk_json_get(ask, "seen"))) {
        (*ret)->seen = true;
    }
    remove_second_names(*ret, stk_json_get(ask, "done"));
    if (ret_key != NULL) {
        STK_TRY(stk_share_check_key(*ret, key, err));
        *ret_key = key;
    }
    return 0;
}

/* --- objects --- */

typedef struct put_how {
    const char *token;  /* of a call: names of its tries begin with it; NULL: not only once */
    const char *digest; /* NULL: unknown content */
    bool is_program;
} put_how;

/* Is the object of this key one that an earlier try of the same call has made? */
static bool is_of_call(const stk_share *share, int tmp, const char *key, const char *token,
                       char ret_name[40])
{
    STK_DIR_AUTO dir = {0};
    struct stat object, st;
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, false, &last);
    if (at < 0 || fstatat(at, last, &object, AT_SYMLINK_NOFOLLOW) < 0 ||
        stk_dir_read_fd(tmp, share->folder, &dir, NULL) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        if (strncmp(name, token, strlen(token)) == 0 &&
            fstatat(dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == object.st_ino &&
            st.st_dev == object.st_dev) {
            (void)snprintf(ret_name, 40, "%s", name);
            return true;
        }
    }
    return false;
}

static int write_temporary(const stk_share_temporary *t, const char *key, const void *data,
                           size_t n, const put_how *how, stk_err *err)
{
    STK_FD_AUTO fd = openat(t->dir, t->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool syncs = how->digest == NULL && stk_share_syncs();
    if (fd < 0 || stk_file_write_all(fd, data, n) < 0 || (syncs && fdatasync(fd) < 0)) {
        return stk_share_failed("write", key, err);
    }
    if (how->digest != NULL && fchmod(fd, how->is_program ? 0555 : 0444) < 0) {
        return stk_share_failed("make read-only", key, err);
    }
    return 0;
}

/* Content with a digest is the same whoever has put it. */
static bool has_content(stk_share *share, const char *key, size_t n)
{
    int64_t size = 0;
    return share->ops->look(share, key, &size, NULL) == 0 && size == (int64_t)n;
}

/* Of an object that may exist only once, a second name below .tmp stays until its creator has the
 * answer: if the answer is lost, the creator asks again, and learns from it that it was the one. */
static int put_object(stk_share *share, const char *key, const void *data, size_t n,
                      const put_how *how, char ret_name[40], stk_err *err)
{
    STK_SHARE_TEMPORARY_AUTO t = {.dir = -1};
    STK_TRY(stk_share_new_temporary(share, &t, err));
    if (how->token != NULL) {
        memcpy(t.name, how->token, strlen(how->token));
    }
    STK_TRY(write_temporary(&t, key, data, n, how, err));
    bool syncs = how->digest == NULL && stk_share_syncs();
    int rc = stk_share_publish(share, &t, key, how->token != NULL, syncs, err);
    if (rc == STK_E_BUSY && is_of_call(share, t.dir, key, how->token, ret_name)) {
        return 0;
    }
    if (rc == 0 && how->token != NULL) {
        t.stays = true;
        (void)snprintf(ret_name, 40, "%s", t.name);
    }
    return rc;
}

static int answer_put(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    const char *key = NULL;
    char name[40] = "";
    (void)ret_body;
    STK_TRY(stk_share_far_open(ask, &share, &key, err));
    put_how how = {.token = stk_json_get_text(ask, "token"),
                   .digest = stk_json_get_text(ask, "digest"),
                   .is_program = stk_json_is_true(stk_json_get(ask, "x"))};
    if (how.token != NULL && strspn(how.token, "0123456789abcdef") != 16) {
        return stk_err_set(err, STK_E_PROTOCOL, "a request has no valid token");
    }
    if (how.digest != NULL && has_content(share, key, n)) {
        return 0;
    }
    int rc = put_object(share, key, body, n, &how, name, err);
    STK_TRY(stk_share_name_full(share, key, (int64_t)n, rc, err));
    if (name[0] != '\0') {
        stk_json_put_text(ret, "name", name);
    }
    return 0;
}

/* Adopts memory: a part of a file needs no second copy. */
static int read_part(int fd, int64_t from, size_t n, const char *key, stk_buf *ret, stk_err *err)
{
    char *data = malloc(n + 1);
    size_t have = 0;
    STK_TRY(stk_err_if_null(data, err));
    while (have < n) {
        ssize_t got = pread(fd, data + have, n - have, from + (int64_t)have);
        if (got < 0 && errno != EINTR) {
            int rc = stk_share_failed("read", key, err);
            free(data);
            return rc;
        }
        if (got == 0) {
            break;
        }
        have += (size_t)MAX(got, 0);
    }
    data[have] = '\0';
    stk_buf_done(ret);
    *ret = (stk_buf){.data = data, .len = have, .cap = n + 1, .max = STK_LINK_BODY_MAX};
    return 0;
}

/* "id" tells an object from the one that replaces it. */
static int answer_get(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    STK_FD_AUTO fd = -1;
    stk_share *share = NULL;
    const char *key = NULL;
    struct stat st;
    char id[96];
    (void)body, (void)n;
    STK_TRY(stk_share_far_open(ask, &share, &key, err));
    STK_TRY(stk_share_open_read(share, key, &fd, &st, err));
    (void)snprintf(id, sizeof id, "%llx-%llx-%llx-%lx", (unsigned long long)st.st_ino,
                   (unsigned long long)st.st_size, (unsigned long long)st.st_mtim.tv_sec,
                   (unsigned long)st.st_mtim.tv_nsec);
    int64_t from = MAX(stk_json_get_whole(ask, "from", 0), 0);
    int64_t most = MIN(MAX(stk_json_get_whole(ask, "n", 0), 0), STK_LINK_BODY_MAX);
    int64_t left = MAX(st.st_size - from, 0);
    stk_json_put_whole(ret, "size", st.st_size);
    stk_json_put_text(ret, "id", id);
    return read_part(fd, from, (size_t)MIN(most, left), key, ret_body, err);
}

static int answer_look(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    const char *key = NULL;
    int64_t size = 0;
    (void)body, (void)n, (void)ret_body;
    STK_TRY(stk_share_far_open(ask, &share, &key, err));
    STK_TRY(share->ops->look(share, key, &size, err));
    stk_json_put_whole(ret, "size", size);
    return 0;
}

typedef struct listed {
    stk_buf *out;
    uint32_t n;
} listed;

static int add_listed(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    listed *l = arg;
    if (l->n == LIST_KEYS || l->out->len > LIST_BYTES) {
        return 1;
    }
    stk_json_open(l->out, NULL, '[');
    stk_json_put_text(l->out, NULL, key);
    stk_json_put_whole(l->out, NULL, size);
    stk_json_put_whole(l->out, NULL, mtime_ms);
    stk_json_close(l->out, ']');
    l->n++;
    return 0;
}

static int answer_list(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    listed l = {.out = ret};
    (void)body, (void)n, (void)ret_body;
    STK_TRY(stk_share_far_open(ask, &share, NULL, err));
    stk_json_open(ret, "keys", '[');
    int rc = stk_share_list(share, stk_json_get_text(ask, "prefix"),
                            stk_json_get_text(ask, "after"), add_listed, &l, err);
    stk_json_close(ret, ']');
    STK_TRY(rc);
    stk_json_put_bool(ret, "more", rc > 0);
    return 0;
}

static int answer_remove(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                         stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    const char *key = NULL;
    (void)body, (void)n, (void)ret, (void)ret_body;
    STK_TRY(stk_share_far_open(ask, &share, &key, err));
    if (stk_json_is_true(stk_json_get(ask, "below"))) {
        return stk_share_delete_all(share, key, err);
    }
    return stk_share_delete(share, key, err);
}

static int answer_sync(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    (void)body, (void)n, (void)ret, (void)ret_body;
    STK_TRY(stk_share_far_open(ask, &share, NULL, err));
    if (share->ops->sync == NULL) {
        return 0;
    }
    return share->ops->sync(share, err);
}

/* What every request has done first is all. */
static int answer_sweep(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                        stk_buf *ret_body, stk_err *err)
{
    stk_share *share = NULL;
    (void)body, (void)n, (void)ret, (void)ret_body;
    return stk_share_far_open(ask, &share, NULL, err);
}

const stk_link_op stk_share_far_ops[] = {{"share.put", answer_put},
                                         {"share.get", answer_get},
                                         {"share.look", answer_look},
                                         {"share.list", answer_list},
                                         {"share.remove", answer_remove},
                                         {"share.sync", answer_sync},
                                         {"share.sweep", answer_sweep},
                                         {"share.begin", stk_share_far_begin},
                                         {"share.piece", stk_share_far_piece},
                                         {"share.end", stk_share_far_end},
                                         {"share.drop", stk_share_far_drop},
                                         {NULL, NULL}};
