/* Files to and from a folder of another host: pieces, several at once. The next piece begins only
 * if it isn't far ahead of the first that is missing. So the size of what came by an earlier try
 * tells how much of it is whole: all but the last WINDOW pieces. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_ssh.h"
#include "base/text.h"
#include "sys/faults.h"
#include "sys/file.h"

enum {
    PIECE = STK_LINK_BODY_MAX,
    WINDOW = 8,  /* pieces; as many are on their way at once */
    TRIES = 3,   /* of a file whose content turns out to be wrong, or whose beginning went */
    READS = 100, /* of an object that others replace again and again */
    REPLACED = 1
};

typedef struct transfer {
    stk_share *share;
    const char *key, *path, *digest;
    int fd;           /* the file here; -1: */
    const char *data; /* the content */
    int64_t size;
    int64_t from; /* what is before it is there already */
    bool is_program, only_new;
    char part[40], boot[64]; /* to there: where the pieces go */
    int64_t ino;
    char id[96]; /* from there: of which object they are; "": of any */
    int (*move)(struct transfer *t, int64_t at, size_t n, stk_err *err);
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t moved;
    unsigned char *is_done; /* of each piece from `from` on */
    uint64_t n, low;        /* pieces before `low` are done */
    bool has_failed;
} transfer;

/* --- pieces --- */

/* False: another piece has failed. */
static bool enter_window(transfer *t, uint64_t i)
{
    (void)pthread_mutex_lock(&t->lock);
    while (!t->has_failed && i >= t->low + WINDOW) {
        (void)pthread_cond_wait(&t->moved, &t->lock);
    }
    bool goes = !t->has_failed;
    (void)pthread_mutex_unlock(&t->lock);
    return goes;
}

static void leave_window(transfer *t, uint64_t i, int rc)
{
    (void)pthread_mutex_lock(&t->lock);
    t->has_failed = t->has_failed || rc != 0;
    t->is_done[i] = rc == 0;
    while (t->low < t->n && t->is_done[t->low] != 0) {
        t->low++;
    }
    (void)pthread_cond_broadcast(&t->moved);
    (void)pthread_mutex_unlock(&t->lock);
}

static int move_one(void *arg, uint64_t i, stk_err *err)
{
    transfer *t = arg;
    int64_t at = t->from + (int64_t)i * PIECE;
    if (!enter_window(t, i)) {
        return 0;
    }
    int rc = t->move(t, at, (size_t)MIN((int64_t)PIECE, t->size - at), err);
    leave_window(t, i, rc);
    return rc;
}

/* All pieces from `from` on. */
static int move_pieces(transfer *t, stk_err *err)
{
    t->n = (uint64_t)(MAX(t->size - t->from, 0) + PIECE - 1) / PIECE;
    t->low = 0;
    t->has_failed = false;
    t->is_done = calloc(t->n + 1, 1);
    if (t->is_done == NULL) {
        return stk_share_no_memory(t->share, err);
    }
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->moved, NULL);
    int rc = stk_share_parallel(WINDOW, t->n, move_one, t, err);
    (void)pthread_cond_destroy(&t->moved);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->is_done);
    return rc;
}

/* How much of `have` bytes is whole for sure, in whole pieces. */
static int64_t sure_of(int64_t have)
{
    int64_t pieces = have / PIECE - WINDOW;
    return MAX(pieces, 0) * PIECE;
}

/* --- to there --- */

static void make_random_name(char ret[40])
{
    uint64_t random[2] = {0};
    (void)!getrandom(random, sizeof random, 0);
    (void)snprintf(ret, 40, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
}

/* The same for each try to send this content to this key. */
static int name_part(transfer *t, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(STK_SHARE_KEY_MAX + 256);
    char hex[STK_DIGEST_HEX + 1];
    if (t->digest == NULL) {
        make_random_name(t->part);
        return 0;
    }
    stk_buf_printf(&text, "%s\n%s", t->digest, t->key);
    STK_TRY(stk_buf_check(&text, err));
    stk_digest_of(text.data, text.len, hex);
    (void)snprintf(t->part, sizeof t->part, "%.32s", hex);
    return 0;
}

static void begin_part_ask(transfer *t, const char *op, stk_share_ask *ask)
{
    stk_share_ask_begin(t->share, op, t->key, ask);
    stk_json_put_text(&ask->head, "part", t->part);
    stk_json_put_whole(&ask->head, "size", t->size);
}

static int read_here(const transfer *t, char *data, size_t n, int64_t at, stk_err *err)
{
    for (size_t have = 0; have < n;) {
        ssize_t got = pread(t->fd, data + have, n - have, at + (int64_t)have);
        if (got == 0) {
            return stk_err_set(err, STK_E_STORE, "'%s' became shorter while it was sent", t->path);
        }
        if (got < 0 && errno != EINTR) {
            return stk_share_failed("read", t->path, err);
        }
        have += (size_t)MAX(got, 0);
    }
    return 0;
}

static int send_piece(transfer *t, int64_t at, size_t n, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    STK_TEXT_AUTO data = t->data == NULL ? malloc(n) : NULL;
    begin_part_ask(t, "share.piece", &ask);
    stk_json_put_whole(&ask.head, "at", at);
    stk_json_put_whole(&ask.head, "ino", t->ino);
    if (t->data == NULL) {
        STK_TRY(stk_err_if_null(data, err));
        STK_TRY(read_here(t, data, n, at, err));
    }
    ask.body = t->data == NULL ? data : t->data + at;
    ask.n = n;
    return stk_share_ask_send(t->share, &ask, err);
}

static int begin_sending(transfer *t, bool anew, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    begin_part_ask(t, "share.begin", &ask);
    if (anew) {
        stk_json_put_bool(&ask.head, "anew", true);
    }
    STK_TRY(stk_share_ask_send(t->share, &ask, err));
    int64_t have = stk_json_get_whole(&ask.answer, "size", 0);
    t->from = have > t->size ? 0 : sure_of(have);
    t->ino = stk_json_get_whole(&ask.answer, "ino", -1);
    (void)snprintf(t->boot, sizeof t->boot, "%s",
                   stk_text_or(stk_json_get_text(&ask.answer, "boot"), ""));
    return 0;
}

static int end_sending(transfer *t, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    begin_part_ask(t, "share.end", &ask);
    stk_json_put_whole(&ask.head, "ino", t->ino);
    stk_json_put_text(&ask.head, "boot", t->boot);
    stk_json_put_known_text(&ask.head, "digest", t->digest);
    stk_json_put_bool(&ask.head, "x", t->is_program);
    stk_json_put_bool(&ask.head, "only_new", t->only_new);
    STK_TRY(stk_share_ask_send(t->share, &ask, err));
    if (t->only_new) {
        stk_share_ssh_done(t->share, t->part);
    }
    t->share->seen = true;
    return 0;
}

static int send_once(transfer *t, bool anew, stk_err *err)
{
    STK_TRY(begin_sending(t, anew, err));
    int rc = move_pieces(t, err);
    if (rc == STK_E_NOT_FOUND && t->digest != NULL) { /* perhaps because another one has sent it */
        rc = 0;
    }
    STK_TRY(rc);
    return end_sending(t, err);
}

/* What can be gone on with stays: it has a digest, and the fault may pass. */
static void give_up_part(transfer *t, const stk_err *why)
{
    bool stays = t->digest != NULL && why->code != STK_E_FULL && why->code != STK_E_STORE;
    if (!stays && !stk_link_may_pass(why) && !stk_share_is_cancelled(t->share)) {
        STK_SHARE_ASK_AUTO ask;
        begin_part_ask(t, "share.drop", &ask);
        (void)stk_share_ask_send(t->share, &ask, NULL);
    }
}

static int send_large(transfer *t, stk_err *err)
{
    stk_err why = {0};
    int rc = name_part(t, err);
    STK_TRY(rc);
    t->move = send_piece;
    for (int i = 0; i < TRIES; i++) {
        rc = send_once(t, i > 0, &why);
        if (rc != STK_E_STORE && rc != STK_E_NOT_FOUND) {
            break;
        }
    }
    if (rc < 0) {
        give_up_part(t, &why);
        if (err != NULL) {
            *err = why;
        }
    }
    return rc;
}

int stk_share_ssh_put_large(stk_share *share, const char *key, const void *data, size_t n,
                            bool only_new, stk_err *err)
{
    transfer t = {.share = share,
                  .key = key,
                  .path = key,
                  .fd = -1,
                  .data = data,
                  .size = (int64_t)n,
                  .only_new = only_new};
    return send_large(&t, err);
}

static int send_small(const transfer *t, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    STK_TEXT_AUTO data = malloc((size_t)t->size + 1);
    stk_share_ask_begin(t->share, "share.put", t->key, &ask);
    STK_TRY(stk_err_if_null(data, err));
    STK_TRY(read_here(t, data, (size_t)t->size, 0, err));
    stk_json_put_known_text(&ask.head, "digest", t->digest);
    stk_json_put_bool(&ask.head, "x", t->is_program);
    ask.body = data;
    ask.n = (size_t)t->size;
    STK_TRY(stk_share_ask_send(t->share, &ask, err));
    t->share->seen = true;
    return 0;
}

int stk_share_ssh_put_file(stk_share *share, const char *key, const char *path, const char *digest,
                           stk_err *err)
{
    struct stat st;
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return stk_share_failed("read", path, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' isn't a file", path);
    }
    transfer t = {.share = share,
                  .key = key,
                  .path = path,
                  .digest = digest,
                  .fd = fd,
                  .size = st.st_size,
                  .is_program = (st.st_mode & 0111) != 0};
    if (t.size <= PIECE) {
        return send_small(&t, err);
    }
    return send_large(&t, err);
}

/* --- from there --- */

static int write_here(const transfer *t, const char *data, size_t n, int64_t at, stk_err *err)
{
    while (n > 0) {
        ssize_t put = pwrite(t->fd, data, n, at);
        if (put < 0 && errno != EINTR) {
            return stk_share_failed("write", t->path, err);
        }
        if (put > 0) {
            data += put;
            n -= (size_t)put;
            at += put;
        }
    }
    return 0;
}

/* REPLACED: the object is another one, or not as long as it was. Objects with a digest are the same
 * whoever has put them. */
static int fetch_part(transfer *t, int64_t at, size_t n, stk_buf *ret, int64_t *ret_size,
                      stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(t->share, "share.get", t->key, &ask);
    stk_json_put_whole(&ask.head, "from", at);
    stk_json_put_whole(&ask.head, "n", (int64_t)n);
    ask.ret_body = ret;
    STK_TRY(stk_share_ask_send(t->share, &ask, err));
    t->share->seen = true;
    const char *id = stk_text_or(stk_json_get_text(&ask.answer, "id"), "");
    *ret_size = stk_json_get_whole(&ask.answer, "size", 0);
    if (t->id[0] == '\0') {
        (void)snprintf(t->id, sizeof t->id, "%s", id);
        return 0;
    }
    bool same = t->digest != NULL ? *ret_size == t->size : strcmp(t->id, id) == 0;
    return same && ret->len == n ? 0 : REPLACED;
}

static int fetch_piece(transfer *t, int64_t at, size_t n, stk_err *err)
{
    STK_BUF_AUTO body = STK_BUF_INIT(PIECE);
    int64_t size = 0;
    int rc = fetch_part(t, at, n, &body, &size, err);
    if (rc != 0) {
        return rc;
    }
    return write_here(t, body.data, n, at, err);
}

/* The first piece tells the object's size. */
static int fetch_first(transfer *t, stk_err *err)
{
    STK_BUF_AUTO body = STK_BUF_INIT(PIECE);
    t->id[0] = '\0';
    STK_TRY(fetch_part(t, t->from, PIECE, &body, &t->size, err));
    if (t->fd < 0) {
        t->fd = open(t->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    }
    if (t->fd < 0 || ftruncate(t->fd, MIN(t->from, t->size)) < 0) {
        return stk_share_failed("write", t->path, err);
    }
    STK_TRY(write_here(t, stk_text_or(body.data, ""), body.len, t->from, err));
    t->from += (int64_t)body.len;
    return 0;
}

/* REPLACED: once more, from the beginning. */
static int fetch_all(transfer *t, stk_err *err)
{
    bool is_resumed = t->from > 0;
    STK_TRY(fetch_first(t, err));
    int rc = move_pieces(t, err);
    if (rc != 0 || t->digest == NULL) {
        return rc;
    }
    rc = stk_share_verify(t->share, t->path, t->key, t->digest, err);
    if (rc == STK_E_STORE && is_resumed) { /* what an earlier try has left was wrong */
        return REPLACED;
    }
    return rc;
}

int stk_share_ssh_get_file(stk_share *share, const char *key, const char *path, const char *digest,
                           int64_t size, stk_err *err)
{
    struct stat st;
    transfer t = {
        .share = share, .key = key, .path = path, .digest = digest, .fd = -1, .move = fetch_piece};
    if (digest != NULL && stat(path, &st) == 0 && (size < 0 || st.st_size <= size)) {
        t.from = sure_of(st.st_size);
    }
    int rc = REPLACED;
    for (int i = 0; rc == REPLACED && i < READS; i++) {
        rc = fetch_all(&t, err);
        t.from = 0;
    }
    stk_file_close(&t.fd);
    if (rc == REPLACED) {
        return stk_err_set(err, STK_E_BUSY, "'%s' in store '%s' is replaced again and again", key,
                           share->url);
    }
    return rc;
}
