/* A folder of another host, which that host's end (share_far.c) reads and writes. */
#include "away/share/share_ssh.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>

#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    ANSWER_MS = 15 * 60000, /* a host that is gone is noticed much earlier (link_io.c) */
    HURRY_MS = 5000,
    TROUBLE_MS = 60000, /* how long a request is tried again after the connection broke */
    WAIT_MIN_MS = 100,
    WAIT_MAX_MS = 5000,
    HEAD_BYTES = 64 << 10,
    SMALL_BYTES = 16 << 10
};

/* --- one request --- */

void stk_share_ask_done(stk_share_ask *ask)
{
    stk_buf_done(&ask->head);
    stk_arena_free(ask->arena);
}

static void put_done(stk_share *share, stk_buf *head)
{
    struct stk_share_ssh *ssh = share->ssh;
    (void)pthread_mutex_lock(&ssh->lock);
    if (ssh->n_done > 0) {
        stk_json_open(head, "done", '[');
        while (ssh->n_done > 0) {
            stk_json_put_text(head, NULL, ssh->done[--ssh->n_done]);
        }
        stk_json_close(head, ']');
    }
    (void)pthread_mutex_unlock(&ssh->lock);
}

/* One that isn't noted goes after a week, as leftovers do. */
void stk_share_ssh_done(stk_share *share, const char *name)
{
    struct stk_share_ssh *ssh = share->ssh;
    (void)pthread_mutex_lock(&ssh->lock);
    if (ssh->n_done < STK_SHARE_DONE) {
        (void)snprintf(ssh->done[ssh->n_done++], sizeof ssh->done[0], "%s", name);
    }
    (void)pthread_mutex_unlock(&ssh->lock);
}

void stk_share_ask_begin(stk_share *share, const char *op, const char *key, stk_share_ask *ask)
{
    *ask = (stk_share_ask){.head = STK_BUF_INIT(HEAD_BYTES), .arena = stk_arena_new(0)};
    stk_json_open(&ask->head, NULL, '{');
    stk_json_put_text(&ask->head, "op", op);
    stk_json_put_text(&ask->head, "url", share->url);
    stk_json_put_text(&ask->head, "folder", share->ssh->folder);
    stk_json_put_known_text(&ask->head, "key", key);
    if (share->seen) {
        stk_json_put_bool(&ask->head, "seen", true);
    }
    put_done(share, &ask->head);
}

/* Errors of the folder name its store. */
static int name_store(stk_share *share, int rc, stk_err *err)
{
    if (rc == STK_E_CANCELLED) {
        return stk_share_cancelled(share, err);
    }
    bool is_of_host = rc == STK_E_ENV || rc == STK_E_UNTRUSTED || rc == STK_E_PROTOCOL ||
                      rc == STK_E_VERSION || rc == STK_E_USAGE;
    if (rc < 0 && err != NULL && !is_of_host && strstr(err->text, share->url) == NULL) {
        return stk_err_context(err, "store '%s'", share->url);
    }
    return rc;
}

/* False: the share was cancelled meanwhile. */
static bool rest(const stk_share *share, int64_t ms)
{
    struct pollfd cancel = {.fd = share->cancel_fd, .events = POLLIN};
    return poll(&cancel, 1, (int)ms) <= 0;
}

int stk_share_ask_send(stk_share *share, stk_share_ask *ask, stk_err *err)
{
    stk_err why = {0};
    int64_t trouble_ms = 0, wait_ms = WAIT_MIN_MS;
    stk_link_ask how = {.body = ask->body,
                        .n = ask->n,
                        .cancel_fd = share->cancel_fd,
                        .timeout_ms = ANSWER_MS,
                        .limit_ms = share->hurries ? HURRY_MS : 0};
    size_t body_len = ask->ret_body == NULL ? 0 : ask->ret_body->len;
    stk_json_close(&ask->head, '}');
    if (ask->arena == NULL || ask->head.failed) {
        return stk_share_no_memory(share, err);
    }
    how.head = ask->head.data;
    for (;;) {
        int rc =
            stk_link_call(share->ssh->link, &how, ask->arena, &ask->answer, ask->ret_body, &why);
        int64_t now = stk_clock_mono_ms(&stk_clock_real);
        trouble_ms = trouble_ms == 0 ? now : trouble_ms;
        bool again = rc < 0 && stk_link_may_pass(&why) && !share->hurries &&
                     stk_link_round(share->ssh->link) > 0 && now - trouble_ms < TROUBLE_MS;
        if (!again || !rest(share, wait_ms)) {
            if (rc < 0 && err != NULL) {
                *err = why;
            }
            return name_store(share, rc, err);
        }
        wait_ms = MIN(2 * wait_ms, WAIT_MAX_MS);
        if (ask->ret_body != NULL) {
            ask->ret_body->len = body_len;
        }
    }
}

/* --- objects --- */

static void make_token(char ret[17])
{
    uint64_t random = 0;
    (void)!getrandom(&random, sizeof random, 0);
    (void)snprintf(ret, 17, "%016llx", (unsigned long long)random);
}

static int put_there(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
                     stk_err *err)
{
    if (n > STK_LINK_BODY_MAX) {
        return stk_share_ssh_put_large(share, key, data, n, only_new, err);
    }
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.put", key, &ask);
    ask.body = data;
    ask.n = n;
    if (only_new) {
        char token[17];
        make_token(token);
        stk_json_put_text(&ask.head, "token", token);
    }
    STK_TRY(stk_share_ask_send(share, &ask, err));
    const char *name = stk_json_get_text(&ask.answer, "name");
    if (name != NULL) {
        stk_share_ssh_done(share, name);
    }
    share->seen = true;
    return 0;
}

/* Appends the part from `from`. *id: of which object; "": of any, and is set. */
static int get_part(stk_share *share, const char *key, int64_t from, size_t n, char id[96],
                    stk_buf *ret, int64_t *ret_size, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.get", key, &ask);
    stk_json_put_whole(&ask.head, "from", from);
    stk_json_put_whole(&ask.head, "n", (int64_t)MIN(n, STK_LINK_BODY_MAX));
    ask.ret_body = ret;
    STK_TRY(stk_share_ask_send(share, &ask, err));
    share->seen = true;
    *ret_size = stk_json_get_whole(&ask.answer, "size", 0);
    const char *is = stk_text_or(stk_json_get_text(&ask.answer, "id"), "");
    if (id[0] != '\0' && strcmp(id, is) != 0) {
        return 1; /* it was replaced meanwhile */
    }
    (void)snprintf(id, 96, "%s", is);
    return 0;
}

static int get_parts(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
                     stk_err *err)
{
    char id[96] = "";
    int64_t size = 0;
    size_t most = ret->max - ret->len;
    for (;;) {
        size_t len = ret->len;
        int rc = get_part(share, key, from, ret->max - len, id, ret, &size, err);
        if (rc != 0) {
            return rc;
        }
        from += (int64_t)(ret->len - len);
        if (whole && size - from > (int64_t)(ret->max - ret->len)) {
            return stk_err_set(err, STK_E_LIMIT, "'%s' in store '%s' has more than %zu bytes", key,
                               share->url, most);
        }
        if (ret->len == len || ret->len == ret->max || from >= size) {
            return 0;
        }
    }
}

/* All or nothing; if the object is replaced meanwhile, from the beginning: nobody gets the halves
 * of two. */
static int get_there(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
                     stk_err *err)
{
    size_t len = ret->len;
    int rc;
    do {
        rc = get_parts(share, key, from, whole, ret, err);
        if (rc != 0 && ret->data != NULL) {
            ret->len = len;
            ret->data[len] = '\0';
        }
    } while (rc > 0);
    return rc;
}

static int look_there(stk_share *share, const char *key, int64_t *ret_size, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.look", key, &ask);
    STK_TRY(stk_share_ask_send(share, &ask, err));
    *ret_size = stk_json_get_whole(&ask.answer, "size", 0);
    return 0;
}

static int give_listed(const stk_json *keys, char after[STK_SHARE_KEY_MAX + 1],
                       stk_share_each *each, void *arg)
{
    for (uint32_t i = 0; i < stk_json_n_items(keys); i++) {
        const stk_json *one = stk_json_item(keys, i);
        const char *key = stk_json_text(stk_json_item(one, 0));
        if (key == NULL) {
            continue;
        }
        int rc = each(arg, key, stk_json_whole(stk_json_item(one, 1), 0),
                      stk_json_whole(stk_json_item(one, 2), 0));
        if (rc != 0) {
            return rc;
        }
        (void)snprintf(after, STK_SHARE_KEY_MAX + 1, "%s", key);
    }
    return 0;
}

/* Page by page. */
static int list_there(stk_share *share, const char *prefix, const char *from, stk_share_each *each,
                      void *arg, stk_err *err)
{
    char after[STK_SHARE_KEY_MAX + 1];
    (void)snprintf(after, sizeof after, "%s", from);
    for (bool more = true; more;) {
        STK_SHARE_ASK_AUTO ask;
        stk_share_ask_begin(share, "share.list", NULL, &ask);
        stk_json_put_text(&ask.head, "prefix", prefix);
        stk_json_put_text(&ask.head, "after", after);
        STK_TRY(stk_share_ask_send(share, &ask, err));
        const stk_json *keys = stk_json_get(&ask.answer, "keys");
        int rc = give_listed(keys, after, each, arg);
        if (rc != 0) {
            return rc;
        }
        more = stk_json_is_true(stk_json_get(&ask.answer, "more")) && stk_json_n_items(keys) > 0;
    }
    return 0;
}

static int remove_there(stk_share *share, const char *key, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.remove", key, &ask);
    return stk_share_ask_send(share, &ask, err);
}

static int remove_all_there(stk_share *share, const char *below, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.remove", below, &ask);
    stk_json_put_bool(&ask.head, "below", true);
    return stk_share_ask_send(share, &ask, err);
}

static int sync_there(stk_share *share, stk_err *err)
{
    STK_SHARE_ASK_AUTO ask;
    stk_share_ask_begin(share, "share.sync", NULL, &ask);
    return stk_share_ask_send(share, &ask, err);
}

/* --- open and close --- */

/* Second names that are left are removed, if the connection is still there. */
static void close_there(stk_share *share)
{
    struct stk_share_ssh *ssh = share->ssh;
    if (ssh->n_done > 0 && !share->cancelled) {
        STK_SHARE_ASK_AUTO ask;
        share->hurries = true;
        stk_share_ask_begin(share, "share.sweep", NULL, &ask);
        (void)stk_share_ask_send(share, &ask, NULL);
    }
    stk_link_close(ssh->link);
    (void)pthread_mutex_destroy(&ssh->lock);
    free(ssh->folder);
    free(ssh);
}

static const stk_share_ops ssh_ops = {.put = put_there,
                                      .put_file = stk_share_ssh_put_file,
                                      .get = get_there,
                                      .get_file = stk_share_ssh_get_file,
                                      .look = look_there,
                                      .list = list_there,
                                      .remove = remove_there,
                                      .remove_all = remove_all_there,
                                      .sync = sync_there,
                                      .close = close_there,
                                      .small = SMALL_BYTES};

static int refuse_url(const stk_share *share, const char *why, stk_err *err)
{
    if (strchr(share->url, '@') != NULL) { /* perhaps with a password */
        stk_err_set(err, STK_E_USAGE, "the store's URL is no folder of a host: %s", why);
    } else {
        stk_err_set(err, STK_E_USAGE, "store '%s' is no folder of a host: %s", share->url, why);
    }
    stk_err_hint(err, "write ssh://host/folder, or ssh://host/~/folder for one below the home "
                      "there");
    return STK_E_USAGE;
}

/* NULL: it is a host and a folder. */
static const char *wrong_with(const char *where)
{
    size_t n = strcspn(where, "/");
    const char *at = memchr(where, '@', n), *path = where + n;
    for (const char *c = where; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            return "it has a control character";
        }
    }
    if (n == 0) {
        return "it names no host";
    }
    if (at != NULL && memchr(where, ':', (size_t)(at - where)) != NULL) {
        return "a password in it would end up in logs; ssh has keys";
    }
    if (path[0] == '\0' || path[1] == '\0') {
        return "it names no folder";
    }
    if (path[1] == '~' && path[2] != '/' && path[2] != '\0') {
        return "only '~' alone stands for a home";
    }
    return NULL;
}

/* As ssh takes it: with a port, or an address in brackets, only in a URL. */
static char *host_of(const char *where)
{
    int n = (int)strcspn(where, "/");
    const char *name = memchr(where, '@', (size_t)n);
    name = name == NULL ? where : name + 1;
    if (memchr(name, ':', (size_t)(where + n - name)) != NULL) {
        return stk_file_printf("ssh://%.*s", n, where);
    }
    return stk_file_printf("%.*s", n, where);
}

int stk_share_open_ssh(const char *where, stk_share *share, stk_err *err)
{
    const char *wrong = wrong_with(where);
    if (wrong != NULL) {
        return refuse_url(share, wrong, err);
    }
    const char *path = where + strcspn(where, "/");
    STK_TEXT_AUTO host = host_of(where);
    struct stk_share_ssh *ssh = calloc(1, sizeof *ssh);
    if (ssh != NULL) {
        ssh->folder = strdup(path[1] == '~' ? path + 1 : path);
    }
    if (host == NULL || ssh == NULL || ssh->folder == NULL) {
        free(ssh);
        return stk_share_no_memory(share, err);
    }
    int rc = stk_link_open(host, &ssh->link, err);
    if (rc < 0) {
        free(ssh->folder);
        free(ssh);
        return rc;
    }
    (void)pthread_mutex_init(&ssh->lock, NULL);
    share->ssh = ssh;
    share->ops = &ssh_ops;
    return 0;
}
