#include "away/mirror/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "away/mirror/mirror_private.h"
#include "away/remote/remote_log.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { NAME = 16, UNUSED_S = 30 * 86400, LOCK_MS = 50, TOLD_MS = 1000 };
#define USED ".used" /* beside the mirror: its time is that of the last use */

int64_t stk_mirror_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

/* A store has a database; a shared folder has the records of runs, and no database. */
bool stk_mirror_is_share(const char *text)
{
    struct stat st;
    STK_TEXT_AUTO db = stk_file_join(text, "store.db");
    STK_TEXT_AUTO ignore = stk_file_join(text, ".stokerignore");
    if (strstr(text, "://") != NULL) {
        return true;
    }
    return db != NULL && ignore != NULL && lstat(db, &st) < 0 && lstat(ignore, &st) == 0;
}

/* --- locks --- */

static bool lock_file(int fd, int kind)
{
    struct flock lock = {.l_type = (short)kind, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Says for whom it waits, by what that one wrote into the file. */
static void note_wait(const stk_mirror *m)
{
    char holder[100];
    ssize_t n = pread(m->lock_fd, holder, sizeof holder - 1, 0);
    holder[MAX(n, 0)] = '\0';
    STK_TEXT_AUTO line = stk_file_printf("waiting for %.*s, which is bringing runs of %s",
                                         (int)strcspn(holder, "\n"),
                                         n > 0 ? holder : "another process", stk_mirror_url(m));
    if (m->note != NULL && line != NULL) {
        m->note(line);
    }
}

static void write_holder(const stk_mirror *m)
{
    char host[65] = "", text[100];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "process %d on %s\n", (int)getpid(), host);
    (void)!pwrite(m->lock_fd, text, (size_t)n, 0);
}

int stk_mirror_begin_write(stk_mirror *m, stk_err *err)
{
    for (int n = 0; !lock_file(m->lock_fd, F_WRLCK); n++) {
        if (n == TOLD_MS / LOCK_MS) {
            note_wait(m);
        }
        if (atomic_load(&m->is_over)) {
            return stk_err_set(err, STK_E_CANCELLED, "the mirror is being closed");
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_MS * 1000000l}, NULL);
    }
    write_holder(m);
    return 0;
}

void stk_mirror_end_write(stk_mirror *m)
{
    (void)lock_file(m->lock_fd, F_UNLCK);
}

/* --- the folder --- */

/* Removes a mirror that nobody has opened for long. */
static void remove_unused(const char *cache, const char *used, int64_t now_s)
{
    struct stat st;
    STK_TEXT_AUTO file = stk_file_join(cache, used);
    STK_TEXT_AUTO folder = file == NULL ? NULL : strndup(file, strlen(file) - strlen(USED));
    STK_FD_AUTO fd = folder == NULL ? -1 : stk_file_open_regular(file, O_RDWR, 0);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_mtime > now_s - UNUSED_S || !lock_file(fd, F_WRLCK)) {
        return;
    }
    if (stk_file_remove_tree(folder, NULL) == 0) {
        (void)unlink(file);
    }
}

static void remove_all_unused(const char *cache)
{
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(cache, &dir, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        if (strlen(name) == NAME + strlen(USED) && strcmp(name + NAME, USED) == 0) {
            remove_unused(cache, name, time(NULL));
        }
    }
}

static int open_lock(const char *path, int *ret, stk_err *err)
{
    *ret = stk_file_open_regular(path, O_RDWR | O_CREAT, 0600);
    if (*ret < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't open '%s'", path);
    }
    return 0;
}

static int open_folder(stk_mirror *m, stk_err *err)
{
    const char *url = stk_mirror_url(m);
    char hex[STK_DIGEST_HEX + 1];
    STK_TEXT_AUTO cache = stk_file_cache("shared");
    if (cache == NULL) {
        return stk_err_set(err, STK_E_ENV,
                           "there is no folder for a copy of '%s'; set HOME or XDG_CACHE_HOME",
                           url);
    }
    stk_digest_of(url, strlen(url), hex);
    STK_TRY(stk_file_mkdirs(cache, 0700, err));
    m->path = stk_file_printf("%s/%.*s", cache, NAME, hex);
    STK_TEXT_AUTO used = stk_file_printf("%s/%.*s" USED, cache, NAME, hex);
    STK_TRY(stk_err_if_null(m->path, err));
    STK_TRY(stk_err_if_null(used, err));
    STK_TRY(open_lock(used, &m->used_fd, err));
    (void)lock_file(m->used_fd, F_RDLCK);
    (void)futimens(m->used_fd, NULL);
    remove_all_unused(cache);
    STK_TRY(stk_store_open(m->path, STK_STORE_CREATE | STK_STORE_MIRROR, &m->store, err));
    STK_TEXT_AUTO lock = stk_file_join(m->path, "mirror.lock");
    STK_TRY(stk_err_if_null(lock, err));
    return open_lock(lock, &m->lock_fd, err);
}

int stk_mirror_open(const char *url, stk_mirror **ret, stk_err *err)
{
    STK_MIRROR_AUTO m = calloc(1, sizeof *m);
    STK_TRY(stk_err_if_null(m, err));
    m->used_fd = m->lock_fd = -1;
    m->end_ms = INT64_MAX;
    m->most = MIRROR_SMALL;
    (void)pthread_mutex_init(&m->lock, NULL);
    stk_clock_cond_init(&m->wake);
    stk_clock_cond_init(&m->told);
    STK_TRY(stk_mirror_wants_open(&m->wants, err));
    STK_TRY(stk_share_open(url, &m->share, err));
    STK_TRY(open_folder(m, err));
    *ret = m;
    m = NULL;
    return 0;
}

void stk_mirror_close(stk_mirror *m)
{
    if (m == NULL) {
        return;
    }
    if (m->is_following) {
        pthread_mutex_lock(&m->lock);
        atomic_store(&m->is_over, true);
        pthread_cond_signal(&m->wake);
        pthread_mutex_unlock(&m->lock);
        stk_share_cancel(m->share);
        (void)pthread_join(m->thread, NULL);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->runs[i]->damage);
        free(m->runs[i]);
    }
    free(m->runs);
    stk_map_done(&m->by_id);
    stk_mirror_wants_done(&m->wants);
    stk_store_close(m->store);
    stk_share_close(m->share);
    stk_file_close(&m->lock_fd);
    stk_file_close(&m->used_fd);
    (void)pthread_cond_destroy(&m->wake);
    (void)pthread_cond_destroy(&m->told);
    (void)pthread_mutex_destroy(&m->lock);
    free(m->path);
    free(m);
}

const char *stk_mirror_url(const stk_mirror *m)
{
    return stk_text_or(stk_share_folder(m->share), stk_share_url(m->share));
}

const char *stk_mirror_path(const stk_mirror *m)
{
    return m->path;
}

/* --- for commands --- */

void stk_mirror_set_note(stk_mirror *m, void (*note)(const char *line))
{
    m->note = note;
}

static void note_left(const stk_mirror *m, const char *what, const char *why)
{
    STK_TEXT_AUTO line = stk_file_printf("leaving out %s%s", what, why);
    if (m->note != NULL && line != NULL) {
        m->note(line);
    }
}

static int bring_one(stk_mirror *m, mirror_run *run, stk_mirror_depth depth, stk_err *err)
{
    static const int64_t most[] = {[STK_MIRROR_EVENTS] = 0,
                                   [STK_MIRROR_VALUES] = MIRROR_SMALL,
                                   [STK_MIRROR_FILES] = INT64_MAX};
    m->most = most[depth];
    run->is_ended = false; /* more of its files may be asked for than before */
    STK_TRY(stk_mirror_bring_run(m, run, true, err));
    if (run->damage != NULL) {
        note_left(m, "", run->damage);
    }
    return 0;
}

int stk_mirror_bring(stk_mirror *m, const char *run, stk_mirror_depth depth, char ret_run[40],
                     stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_run found;
    mirror_run *one = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_remote_run_find(m->share, run, arena, &found, err));
    if (strcmp(run, found.id) != 0) { /* what is gone has no name any more */
        STK_TRY(stk_mirror_list_runs(m, NULL, err));
    }
    if (stk_mirror_get_run(m, found.id, &one) < 0) {
        return stk_err_nomem(err);
    }
    one->is_here = stk_store_has_run(m->store, one->id);
    (void)snprintf(ret_run, 40, "%s", one->id);
    return bring_one(m, one, depth, err);
}

int stk_mirror_bring_newest(stk_mirror *m, uint32_t limit, stk_mirror_depth depth, stk_err *err)
{
    char text[1400];
    STK_TRY(stk_mirror_list_runs(m, NULL, err));
    for (uint32_t i = m->n; i-- > 0 && limit > 0;) {
        mirror_run *run = m->runs[i];
        stk_err why = {0};
        int rc = run->is_listed ? bring_one(m, run, depth, &why) : STK_E_NOT_FOUND;
        if (rc == STK_E_NOT_FOUND) { /* or it is just beginning */
            continue;
        }
        if (rc < 0 && !stk_remote_log_is_damage(&why)) {
            *err = why;
            return rc;
        }
        if (rc < 0) { /* the mirrors of the other runs are intact */
            STK_TEXT_AUTO what = stk_file_printf("run %s: ", run->id);
            note_left(m, stk_text_or(what, ""), stk_err_format(&why, text, (int)sizeof text));
        }
        limit -= rc == 0;
    }
    return 0;
}
