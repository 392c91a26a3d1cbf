/* A bucket of S3, or of what speaks it. */
#include "away/share/share_s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "sys/file.h"

enum {
    ARENA = 8 << 20,
    IDLE_MS = 60000,
    HURRY_MS = 2000,
    URL_MAX = 8192,
    COMPARE_MAX = 256 << 20,
    ERROR_MAX = 64 << 10
};

/* --- where it is --- */

static bool is_bucket(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '-' || c == '_')) {
            return false;
        }
    }
    return n > 0 && n < sizeof((stk_s3 *)0)->bucket;
}

/* Under the lock. In the bucket's own region, which may be another than ours. */
static int find_base(stk_s3 *s, stk_err *err)
{
    char endpoint[512];
    char region[64] = "us-east-1"; /* what anything but AWS itself is content with */
    const char *style = stk_aws_setting(s->aws, "s3.addressing_style");
    STK_TRY(stk_aws_endpoint(s->aws, "s3", endpoint, sizeof endpoint, &s->custom, err));
    if (stk_aws_region(s->aws, region, sizeof region, err) < 0 && !s->custom) {
        return STK_E_ENV;
    }
    if (s->region[0] == '\0') {
        (void)snprintf(s->region, sizeof s->region, "%s", region);
    }
    char in[80];
    (void)snprintf(in, sizeof in, ".%s.", region);
    char *at = s->custom ? NULL : strstr(endpoint, in);
    if (at != NULL && strcmp(region, s->region) != 0) {
        char rest[256];
        (void)snprintf(rest, sizeof rest, "%s", at + strlen(in));
        (void)snprintf(at, sizeof endpoint - (size_t)(at - endpoint), ".%s.%s", s->region, rest);
    }
    s->path_style = style != NULL && strcmp(style, "path") == 0;
    if (style == NULL || strcmp(style, "auto") == 0) { /* a dot has no certificate */
        s->path_style = s->custom || strchr(s->bucket, '.') != NULL;
    }
    char *host = strstr(endpoint, "://") + 3;
    if (s->path_style) {
        (void)snprintf(s->base, sizeof s->base, "%s/%s", endpoint, s->bucket);
    } else {
        (void)snprintf(s->base, sizeof s->base, "%.*s%s.%s", (int)(host - endpoint), endpoint,
                       s->bucket, host);
    }
    s->known = true;
    return 0;
}

static int write_url(stk_share *share, const stk_s3_ask *ask, char region[64], stk_buf *url,
                     stk_err *err)
{
    stk_s3 *s = share->s3;
    int rc = 0;
    (void)pthread_mutex_lock(&s->lock);
    if (!s->known) {
        rc = find_base(s, err);
    }
    if (rc == 0) {
        stk_buf_printf(url, "%s/", s->base);
        (void)snprintf(region, 64, "%s", s->region);
    }
    (void)pthread_mutex_unlock(&s->lock);
    STK_TRY(rc);
    if (ask->key != NULL) {
        stk_aws_encode(url, s->prefix, true);
        stk_aws_encode(url, ask->key, true);
    }
    if (ask->query != NULL) {
        stk_buf_printf(url, "?%s", ask->query);
    }
    if (!url->failed) {
        return 0;
    }
    return stk_share_no_memory(share, err);
}

/* true: it is in another region than was asked. */
static bool learn_region(stk_s3 *s, const stk_http_response *r, const char *asked)
{
    char region[64];
    if ((r->status != 301 && r->status != 307 && r->status != 400 && r->status != 403) ||
        !stk_http_header(r, "x-amz-bucket-region", region, sizeof region) ||
        strcmp(region, asked) == 0) {
        return false;
    }
    (void)pthread_mutex_lock(&s->lock);
    (void)snprintf(s->region, sizeof s->region, "%s", region);
    s->known = false;
    (void)pthread_mutex_unlock(&s->lock);
    return true;
}

/* --- requests --- */

static stk_http_session *take_session(stk_s3 *s)
{
    stk_http_session *session = NULL;
    (void)pthread_mutex_lock(&s->lock);
    if (s->n_idle > 0) {
        session = s->idle[--s->n_idle];
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (session == NULL) {
        (void)stk_http_session_open(&session, NULL); /* without one it is only slower */
    }
    return session;
}

static void give_session(stk_s3 *s, stk_http_session *session)
{
    (void)pthread_mutex_lock(&s->lock);
    if (session != NULL && s->n_idle < STK_S3_SESSIONS) {
        s->idle[s->n_idle++] = session;
        session = NULL;
    }
    (void)pthread_mutex_unlock(&s->lock);
    stk_http_session_close(session);
}

static void name_trouble(stk_share *share, const stk_s3_ask *ask, const char *code,
                         const stk_http_response *r, stk_err *err)
{
    if (err == NULL) {
        return;
    }
    if (strcmp(code, "NoSuchBucket") == 0) {
        stk_err_set(err, STK_E_ENV, "bucket '%s' doesn't exist", share->s3->bucket);
        stk_err_hint(err, "create it (`aws s3 mb s3://%s`), or use another one", share->s3->bucket);
        return;
    }
    if (r->status == 403 && code[0] == '\0') {
        stk_err_set(err, STK_E_ENV, "AWS denies access (status 403)");
        stk_err_hint(err, "the credentials need s3:GetObject, s3:PutObject, s3:DeleteObject and "
                          "s3:ListBucket there");
    }
    (void)stk_err_context(err, "%s s3://%s/%s%s", ask->method, share->s3->bucket,
                          ask->key == NULL ? "" : share->s3->prefix, stk_text_or(ask->key, ""));
}

/* AWS's own never is; others have disks, and quotas. */
static bool is_full(int status, const char *code)
{
    static const char *const codes[] = {"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded",
                                        "QuotaExceeded", "InsufficientStorage", "StorageFull"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(code, codes[i]) == 0) {
            return true;
        }
    }
    return status == 507;
}

/* What a test has fail: 0 or errno. */
static int fault_of(const stk_s3_ask *ask)
{
    bool is_list = ask->key == NULL;
    if (strcmp(ask->method, "HEAD") == 0) {
        return STK_FAILPOINT_ERR("share.s3.look");
    }
    if (strcmp(ask->method, "DELETE") == 0) {
        return STK_FAILPOINT_ERR("share.s3.delete");
    }
    if (strcmp(ask->method, "GET") != 0) {
        return STK_FAILPOINT_ERR("share.s3.put");
    }
    if (is_list) {
        return STK_FAILPOINT_ERR("share.s3.list");
    }
    return STK_FAILPOINT_ERR("share.s3.get");
}

int stk_s3_try(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
               stk_aws_again *ret_again, stk_err *err)
{
    stk_s3 *s = share->s3;
    char region[64];
    STK_ARENA_AUTO arena = stk_arena_new(ARENA);
    STK_BUF_AUTO url = STK_BUF_INIT(URL_MAX);
    *ret_again = STK_AWS_STOP;
    code[0] = '\0';
    if (stk_share_is_cancelled(share)) {
        return stk_share_cancelled(share, err);
    }
    if (arena == NULL) {
        return stk_share_no_memory(share, err);
    }
    STK_TRY(write_url(share, ask, region, &url, err));
    stk_http_request q = {.method = ask->method,
                          .url = url.data,
                          .headers = ask->headers,
                          .body = ask->body,
                          .body_len = ask->n,
                          .read_body = ask->read_body,
                          .read_arg = ask->read_arg,
                          .on_body = ask->on_body,
                          .arg = ask->arg,
                          .ok_only = true,
                          .idle_ms = ask->idle_ms > 0 ? ask->idle_ms : IDLE_MS,
                          .cancel_fd = share->cancel_fd,
                          .tls = stk_aws_tls(s->aws)};
    if (share->hurries) {
        q.connect_ms = q.idle_ms = HURRY_MS;
    }
    STK_TRY(stk_aws_sign(s->aws, "s3", region, ask->sha256, &q, arena, err));
    int sys = fault_of(ask);
    if (sys != 0) { /* as a connection that breaks */
        *ret_again = STK_AWS_AGAIN;
        return stk_err_sys(err, STK_E_ENV, sys, "%s s3://%s", ask->method, s->bucket);
    }
    ret->body.max = ask->body_max;
    q.session = take_session(s);
    int rc = stk_http_send(&q, ret, err);
    give_session(s, q.session);
    if (rc == 0 && STK_FAILPOINT_ERR("share.s3.short") != 0) {
        ret->body.len /= 2;
        if (ret->body.data != NULL) {
            ret->body.data[ret->body.len] = '\0';
        }
    }
    bool was_sent = rc == 0;
    rc = stk_aws_settle(s->aws, rc, ret, code, ret_again, err);
    if (was_sent && rc < 0) {
        if (learn_region(s, ret, region)) {
            *ret_again = STK_AWS_AGAIN;
        } else if (strcmp(code, "NoSuchBucket") == 0) {
            rc = STK_E_ENV;
        }
        if (is_full(ret->status, code)) {
            *ret_again = STK_AWS_STOP;
            return stk_err_set(err, STK_E_FULL, "it answers %s%sstatus %d", code,
                               stk_text_when(code[0] != '\0', ", "), ret->status);
        }
        if (ret->status == 409 && strcmp(code, "ConditionalRequestConflict") == 0) {
            *ret_again = STK_AWS_AGAIN; /* somebody else is just creating it */
        }
        name_trouble(share, ask, code, ret, err);
        if (err != NULL && *ret_again == STK_AWS_STOP && ret->status >= 400 && ret->status < 500) {
            bool no_bucket = strcmp(code, "NoSuchBucket") == 0;
            err->sys = no_bucket ? ENXIO : EACCES; /* as it is, it won't be another time */
        }
    }
    return rc;
}

int stk_s3_send(stk_share *share, const stk_s3_ask *ask, stk_http_response *ret, char code[80],
                uint32_t *ret_tries, stk_err *err)
{
    stk_aws_tries tries = {.max = 2 * share->hurries};
    stk_aws_again again;
    STK_HTTP_RESPONSE_AUTO own = {0};
    char buf[80];
    int64_t wait = 0;
    int rc;
    if (ret == NULL) {
        ret = &own;
    }
    if (code == NULL) {
        code = buf;
    }
    do {
        (void)stk_aws_wait(wait, share->cancel_fd); /* cancelled: the try says so */
        rc = stk_s3_try(share, ask, ret, code, &again, err);
    } while (rc < 0 && stk_aws_next(&tries, again, ret, &wait));
    if (ret_tries != NULL) {
        *ret_tries = tries.n + (rc == 0);
    }
    return rc;
}

/* --- objects --- */

/* HEAD has no body to say why it fails: a GET of one byte does (and so credentials that expired,
 * or a wrong clock, are known). */
static int ask_why(stk_share *share, const char *key, int64_t *ret_size, stk_err *err)
{
    char text[80];
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_s3_ask ask = {.method = "GET", .key = key, .headers = {"Range: bytes=0-0"}};
    int rc = stk_s3_send(share, &ask, &r, NULL, NULL, err);
    *ret_size = (int64_t)r.body.len;
    if (rc == 0 && stk_http_header(&r, "content-range", text, sizeof text) &&
        strchr(text, '/') != NULL) {
        *ret_size = strtoll(strchr(text, '/') + 1, NULL, 10);
    }
    return r.status == 416 ? 0 : rc; /* 416: it is empty */
}

int stk_s3_head(stk_share *share, const char *key, int64_t *ret_size, char etag[128], stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO r = {0};
    char text[32];
    char code[80];
    stk_s3_ask ask = {.method = "HEAD", .key = key};
    int rc = stk_s3_send(share, &ask, &r, code, NULL, err);
    if (rc == 0) {
        *ret_size = 0;
        if (stk_http_header(&r, "content-length", text, sizeof text)) {
            *ret_size = strtoll(text, NULL, 10);
        }
    } else if (code[0] == '\0' && (r.status == 400 || r.status == 403)) {
        rc = ask_why(share, key, ret_size, err);
    }
    if (rc == STK_E_NOT_FOUND) {
        rc = stk_share_absent(share, key, err);
    }
    if (etag != NULL && (rc < 0 || !stk_http_header(&r, "etag", etag, 128))) {
        etag[0] = '\0';
    }
    return rc;
}

static int head_object(stk_share *share, const char *key, int64_t *ret_size, stk_err *err)
{
    return stk_s3_head(share, key, ret_size, NULL, err);
}

static int get_object(stk_share *share, const char *key, int64_t from, bool whole, stk_buf *ret,
                      stk_err *err)
{
    char range[80];
    char code[80];
    STK_HTTP_RESPONSE_AUTO r = {0};
    size_t room = ret->max - ret->len;
    /* An error has to fit, too. */
    stk_s3_ask ask = {.method = "GET", .key = key, .body_max = MAX(room, ERROR_MAX)};
    if (!whole) {
        if (room == 0) {
            return 0;
        }
        (void)snprintf(range, sizeof range, "Range: bytes=%lld-%lld", (long long)from,
                       (long long)(from + (int64_t)room - 1));
        ask.headers[0] = range;
    }
    int rc = stk_s3_send(share, &ask, &r, code, NULL, err);
    if (rc == STK_E_NOT_FOUND) {
        return stk_share_absent(share, key, err);
    }
    if (!whole && r.status == 416) { /* it ends here */
        return 0;
    }
    if (rc == STK_E_LIMIT || (rc == 0 && r.body.len > room)) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' in store '%s' has more than %zu bytes", key,
                           share->url, room);
    }
    STK_TRY(rc);
    if (!whole && from > 0 && r.status != 206) {
        return stk_err_set(err, STK_E_ENV, "store '%s' doesn't support reading a part of an object",
                           share->url);
    }
    if (r.body.len > 0 && stk_buf_add(ret, r.body.data, r.body.len) < 0) {
        return stk_share_no_memory(share, err);
    }
    return 0;
}

/* A try whose answer was lost may have been the one that created it: then the content is ours. */
static bool has_content(stk_share *share, const char *key, const void *data, size_t n)
{
    STK_BUF_AUTO there = STK_BUF_INIT(COMPARE_MAX);
    return get_object(share, key, 0, true, &there, NULL) == 0 && there.len == n &&
           (n == 0 || memcmp(there.data, data, n) == 0);
}

static int put_object(stk_share *share, const char *key, const void *data, size_t n, bool only_new,
                      stk_err *err)
{
    uint32_t tries = 0;
    stk_s3_ask ask = {.method = "PUT", .key = key, .body = n == 0 ? "" : data, .n = n};
    if (only_new) {
        ask.headers[0] = "If-None-Match: *";
    }
    int rc = stk_s3_send(share, &ask, NULL, NULL, &tries, err);
    if (rc != STK_E_BUSY) {
        return rc;
    }
    if (tries > 1 && has_content(share, key, data, n)) {
        return 0;
    }
    return stk_share_taken(share, key, err);
}

static int remove_object(stk_share *share, const char *key, stk_err *err)
{
    stk_s3_ask ask = {.method = "DELETE", .key = key};
    int rc = stk_s3_send(share, &ask, NULL, NULL, NULL, err);
    return stk_err_but(rc, STK_E_NOT_FOUND);
}

static int link_to(stk_share *share, const char *key, int64_t seconds, stk_buf *ret, stk_err *err)
{
    char region[64];
    STK_BUF_AUTO url = STK_BUF_INIT(URL_MAX);
    stk_s3_ask ask = {.key = key};
    STK_TRY(write_url(share, &ask, region, &url, err));
    return stk_aws_presign(share->s3->aws, "s3", region, "GET", url.data, seconds, ret, err);
}

/* --- open --- */

static void close_s3(stk_share *share)
{
    stk_s3 *s = share->s3;
    for (uint32_t i = 0; i < s->n_idle; i++) {
        stk_http_session_close(s->idle[i]);
    }
    stk_aws_close(s->aws);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->prefix);
    free(s);
}

static const stk_share_ops s3_ops = {.put = put_object,
                                     .put_file = stk_s3_put_file,
                                     .get = get_object,
                                     .get_file = stk_s3_get_file,
                                     .look = head_object,
                                     .list = stk_s3_list,
                                     .list_folders = stk_s3_list_folders,
                                     .remove = remove_object,
                                     .link = link_to,
                                     .close = close_s3};

int stk_share_open_s3(const char *where, stk_share *share, stk_err *err)
{
    size_t n = strcspn(where, "/");
    const char *prefix = where[n] == '/' ? where + n + 1 : "";
    if (!is_bucket(where, n)) {
        const char *url = share->url;
        if (strchr(url, '@') != NULL) { /* perhaps with a key */
            url = "s3://…@…";
        }
        return stk_err_set(err, STK_E_USAGE, "'%s' names no bucket; write s3://bucket/prefix", url);
    }
    stk_s3 *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return stk_share_no_memory(share, err);
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)snprintf(s->bucket, sizeof s->bucket, "%.*s", (int)n, where);
    share->s3 = s;
    share->ops = &s3_ops;
    if (asprintf(&s->prefix, "%s%s", prefix, stk_text_when(prefix[0] != '\0', "/")) < 0) {
        s->prefix = NULL;
        return stk_share_no_memory(share, err);
    }
    return stk_aws_open(NULL, &s->aws, err);
}
