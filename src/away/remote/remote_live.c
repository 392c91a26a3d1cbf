#include "away/remote/remote_live.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_private.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"
#include "store/metrics/metrics.h"
#include "sys/file.h"

enum {
    DIGITS = 12,
    SEND_PIECES = 16, /* of one file in one call */
    LIVE_PAUSES = 4,  /* a look that takes long is followed by so many times its time */
    MOST = 100000     /* objects that one call takes */
};

void stk_live_key(const char *key, char ret[STK_SHARE_KEY_MAX])
{
    const char *run = stk_text_behind_first(key, '/');
    int n = (int)(run - key) + (int)strcspn(run, "/");
    (void)snprintf(ret, STK_SHARE_KEY_MAX, "%.*s/live%s", n, key, key + n);
}

/* --- the agent's side --- */

bool stk_live_send(stk_share *share, const char *key, const char *dir, stk_live_file *file)
{
    char path[PATH_MAX], at[STK_SHARE_KEY_MAX], object[STK_SHARE_KEY_MAX + 128];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file->name);
    stk_live_key(key, at);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0) {
        return false;
    }
    char *data = malloc(STK_LIVE_PIECE);
    bool any = false;
    for (int i = 0; data != NULL && i < SEND_PIECES && file->from < file->most; i++) {
        ssize_t n = pread(fd, data, STK_LIVE_PIECE, file->from);
        int length = snprintf(object, sizeof object, "%s/%s/%0*lld", at, file->name, DIGITS,
                              (long long)file->from);
        if (n <= 0 || file->from + n <= file->until || length >= (int)sizeof object) {
            break;
        }
        any = true;
        if (stk_share_put(share, object, data, (size_t)n, false, NULL) < 0) {
            break;
        }
        file->until = file->from + n;
        if (n < STK_LIVE_SEAL) {
            break;
        }
        file->from = file->until;
    }
    free(data);
    return any;
}

/* --- the engine's side --- */

/* An object that has more than the file here. */
typedef struct news {
    const char *key, *path, *dir, *folder; /* the attempt's directory, and the file's below it */
    int64_t from;
} news;

typedef struct looking {
    stk_arena *arena;
    stk_live_task *tasks;
    stk_map by_key; /* index into `tasks` */
    news *items;
    uint32_t n, cap;
} looking;

static int64_t size_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* "stdout.log" and "stderr.log", the attempt's own. */
static bool is_log(const char *name, size_t n)
{
    return n == strlen("stdout.log") &&
           (strncmp(name, "stdout.log", n) == 0 || strncmp(name, "stderr.log", n) == 0);
}

/* A log, "metrics.jsonl", "rank-1/metrics.jsonl", or "tensorboard/…/NAME.tfevents.NAME". */
static bool is_name(const char *name, size_t n)
{
    static const char board[] = STK_METRICS_EVENTS "/";
    size_t digits = strspn(name + MIN(n, 5), "0123456789");
    const char *base = memrchr(name, '/', n);
    if (is_log(name, n)) {
        return true;
    }
    if (n > 5 && strncmp(name, "rank-", 5) == 0 && digits > 0 && name[5 + digits] == '/' &&
        !stk_remote_is_wild_rank(name)) {
        n -= 6 + digits;
        name += 6 + digits;
    }
    if (n == sizeof STK_METRICS_FILE - 1 && memcmp(name, STK_METRICS_FILE, n) == 0) {
        return true;
    }
    if (strncmp(name, board, sizeof board - 1) != 0 || base == NULL ||
        memmem(base, (size_t)(name + n - base), ".tfevents.", 10) == NULL) {
        return false;
    }
    for (size_t i = 0; i + 1 < n; i++) { /* no "..", no "" */
        if (name[i] == '/' && (name[i + 1] == '.' || name[i + 1] == '/')) {
            return false;
        }
    }
    return true;
}

/* "runs/<run>/live/<step>/<task>/<attempt>/<name>/<offset>": the length of the attempt's part, 0
 * for other keys, for anybody may write to the share. */
static size_t parse_key(const char *key, const char **ret_name, size_t *ret_n, int64_t *ret_from)
{
    size_t n = strlen(key);
    const char *name = key;
    for (int i = 0; i < 6 && name != NULL; i++) {
        name = stk_text_behind_first(name, '/');
    }
    if (name == NULL || n < DIGITS + 1 || key[n - DIGITS - 1] != '/' ||
        key + n - DIGITS - 1 <= name || strspn(key + n - DIGITS, "0123456789") != DIGITS ||
        !is_name(name, (size_t)(key + n - DIGITS - 1 - name))) {
        return 0;
    }
    *ret_from = strtoll(key + n - DIGITS, NULL, 10);
    *ret_name = name;
    *ret_n = (size_t)(key + n - DIGITS - 1 - name);
    return (size_t)(name - 1 - key);
}

static int look_at(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    looking *l = arg;
    const char *name = NULL;
    size_t n_name = 0;
    int64_t from = 0;
    uint64_t i = 0;
    (void)mtime_ms;
    size_t n = parse_key(key, &name, &n_name, &from);
    if (n == 0 || !stk_map_getn(&l->by_key, key, n, &i)) {
        return 0;
    }
    l->tasks[i].has_any = true;
    char *path = stk_arena_printf(l->arena, "%s/%.*s", l->tasks[i].dir, (int)n_name, name);
    if (path == NULL || l->n >= MOST || size > STK_LIVE_PIECE || from >= STK_LIVE_BYTES ||
        from + size <= size_of(path) || (is_log(name, n_name) && !l->tasks[i].wants_logs)) {
        return 0;
    }
    news *items = stk_arena_grow(l->arena, l->items, l->n, sizeof *items, &l->cap);
    char *copy = stk_arena_dup(l->arena, key);
    if (items == NULL || copy == NULL) {
        return 0;
    }
    l->items = items;
    items[l->n++] =
        (news){.key = copy,
               .path = path,
               .dir = l->tasks[i].dir,
               .folder = stk_arena_dupn(l->arena, path, (size_t)(strrchr(path, '/') - path)),
               .from = from};
    return 0;
}

/* Appends, unless the file has changed meanwhile: at the end a whole one takes its place. */
static int append_news(stk_share *share, const news *one, stk_err *err)
{
    STK_BUF_AUTO more = STK_BUF_INIT(STK_LIVE_PIECE);
    int64_t size = size_of(one->path);
    struct stat st;
    if (one->from > size) {
        return 0; /* something between is missing */
    }
    STK_TRY(stk_share_get_range(share, one->key, size - one->from, &more, err));
    if (one->folder != NULL && strcmp(one->folder, one->dir) != 0 && stk_file_exists(one->dir)) {
        (void)stk_file_mkdirs(one->folder, 0755, NULL);
    }
    STK_FD_AUTO fd = stk_file_open_regular(one->path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", one->path);
    }
    if (st.st_size == size && more.len > 0 &&
        pwrite(fd, more.data, more.len, size) != (ssize_t)more.len) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", one->path);
    }
    return 0;
}

int stk_live_fetch(stk_share *share, stk_live_task *tasks, uint32_t n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    looking l = {.arena = arena, .tasks = tasks};
    char at[STK_SHARE_KEY_MAX], below[STK_SHARE_KEY_MAX + 1] = "";
    int rc = stk_err_if_null(arena, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        stk_live_key(tasks[i].key, at);
        const char *copy = stk_arena_dup(arena, at);
        rc = stk_err_if_null(copy, err);
        if (rc == 0) {
            rc = stk_map_put(&l.by_key, copy, i);
        }
    }
    if (rc == 0 && n > 0) {
        char *run_end = strstr(at, "/live/");
        if (n > 1 && run_end != NULL) { /* "runs/<run>/live" */
            run_end[strlen("/live")] = '\0';
        }
        (void)snprintf(below, sizeof below, "%s/", at);
        rc = stk_share_list(share, below, NULL, look_at, &l, err);
    }
    for (uint32_t i = 0; rc == 0 && i < l.n; i++) {
        rc = append_news(share, &l.items[i], err);
        if (rc != STK_E_CANCELLED) {
            rc = 0; /* the others' may do */
        }
    }
    stk_map_done(&l.by_key);
    return rc;
}

/* --- the backend --- */

/* The attempts whose programs run: copies, for they may end meanwhile. The caller has the lock. */
static stk_live_task *list_running(const remote_backend *b, stk_arena *arena, uint32_t *ret_n)
{
    stk_live_task *tasks = stk_arena_array(arena, b->n_tasks, sizeof *tasks);
    for (uint32_t i = 0; tasks != NULL && i < b->n_slots; i++) {
        for (const remote_task *t = b->table[i]; t != NULL; t = t->same_slot) {
            const char *key = NULL, *dir = NULL;
            if (t->phase == REMOTE_WITH_DRIVER && t->is_running) {
                key = stk_arena_dup(arena, t->key);
                dir = stk_arena_dup(arena, t->order.dir);
            }
            if (key != NULL && dir != NULL) {
                tasks[(*ret_n)++] = (stk_live_task){
                    .key = key, .dir = dir, .id = t->job.id, .attempt = t->job.attempt};
            }
        }
    }
    return tasks;
}

void stk_remote_look_live(remote_backend *b)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    uint32_t n = 0;
    int64_t began_ms = stk_remote_now_ms();
    stk_live_task *tasks = NULL;
    b->live_due_ms = INT64_MAX; /* no other worker looks */
    if (b->n_tasks > 0 && arena != NULL) {
        tasks = list_running(b, arena, &n);
    }
    if (n > 0 && b->live_share == NULL &&
        stk_share_open(b->config.share_url, &b->live_share, NULL) == 0) {
        stk_share_hurry(b->live_share);
    }
    if (n > 0 && b->live_share != NULL) {
        pthread_mutex_unlock(&b->lock);
        (void)stk_live_fetch(b->live_share, tasks, n, NULL);
        pthread_mutex_lock(&b->lock);
    }
    for (uint32_t i = 0; i < n; i++) {
        remote_task *t = stk_remote_find(b, tasks[i].id);
        if (t != NULL && t->job.attempt == tasks[i].attempt && tasks[i].has_any) {
            t->has_live = true;
        }
    }
    int64_t now_ms = stk_remote_now_ms();
    b->live_due_ms = now_ms + MAX(STK_LIVE_MS, LIVE_PAUSES * (now_ms - began_ms));
}
