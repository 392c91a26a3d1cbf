/* Objects as users see them: whole or in part, with type, time and attributes. The first request
 * brings the facts and the beginning; a larger object's other parts follow, several at a time. */
#include "away/share/share_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "sys/faults.h"
#include "sys/file.h"

enum { FIRST_BYTES = 8 << 20, RESTARTS = 3, ERROR_BYTES = 64 << 10 };

typedef struct fetch {
    stk_share *share;
    const char *key;
    int fd;
    const char *path;
    int64_t from; /* of the object: the file's first byte */
    int64_t done; /* bytes that the first request brought */
    int64_t end;
    char etag[128];
} fetch;

static int64_t time_of_header(const stk_http_response *r)
{
    char text[64];
    struct tm tm = {0};
    if (!stk_http_header(r, "last-modified", text, sizeof text) ||
        strptime(text, "%a, %d %b %Y %H:%M:%S", &tm) == NULL) {
        return -1;
    }
    return (int64_t)timegm(&tm);
}

static void copy_header(const stk_http_response *r, const char *name, char *to, size_t size)
{
    if (!stk_http_header(r, name, to, size)) {
        to[0] = '\0';
    }
}

static void note_facts(const stk_http_response *r, stk_object_facts *ret)
{
    ret->modified_s = time_of_header(r);
    copy_header(r, "etag", ret->etag, sizeof ret->etag);
    copy_header(r, "content-type", ret->type, sizeof ret->type);
    copy_header(r, "x-amz-server-side-encryption", ret->encryption, sizeof ret->encryption);
    copy_header(r, "x-amz-meta-metaflow-user-attributes", ret->meta, sizeof ret->meta);
}

int stk_object_look(stk_share *share, const char *key, stk_object_facts *ret, stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO r = {0};
    char text[32];
    stk_s3_ask ask = {.method = "HEAD", .key = key};
    int rc = stk_s3_send(share, &ask, &r, NULL, NULL, err);
    *ret = (stk_object_facts){.modified_s = -1};
    if (rc == 0) {
        note_facts(&r, ret);
        copy_header(&r, "content-length", text, sizeof text);
        ret->size = strtoll(text, NULL, 10);
        return 0;
    }
    if (rc == STK_E_NOT_FOUND) {
        return stk_share_absent(share, key, err);
    }
    return stk_s3_head(share, key, &ret->size, NULL, err); /* it can say why */
}

static int write_part(const fetch *f, const stk_buf *body, int64_t at, stk_err *err)
{
    size_t done = 0;
    while (done < body->len) {
        ssize_t n = pwrite(f->fd, body->data + done, body->len - done, at + (int64_t)done);
        if (n < 0 && errno != EINTR) {
            return stk_err_sys(err, errno == ENOSPC ? STK_E_FULL : STK_E_SYS, errno,
                               "can't write '%s'", f->path);
        }
        done += (size_t)MAX(n, 0);
    }
    return 0;
}

/* A later part, of the object as it was at the first request (STK_E_BUSY: it was replaced). */
static int get_part(void *arg, uint64_t i, stk_err *err)
{
    const fetch *f = arg;
    char range[80];
    char match[160];
    STK_HTTP_RESPONSE_AUTO r = {0};
    int64_t from = f->from + f->done + (int64_t)i * STK_S3_CHUNK;
    int64_t end = MIN(from + STK_S3_CHUNK, f->end);
    (void)snprintf(range, sizeof range, "Range: bytes=%lld-%lld", (long long)from,
                   (long long)end - 1);
    (void)snprintf(match, sizeof match, "If-Match: %s", f->etag);
    stk_s3_ask ask = {.method = "GET",
                      .key = f->key,
                      .headers = {range, f->etag[0] == '\0' ? NULL : match},
                      .body_max = (size_t)STK_S3_CHUNK + ERROR_BYTES};
    STK_TRY(stk_s3_send(f->share, &ask, &r, NULL, NULL, err));
    if ((int64_t)r.body.len != end - from) {
        return stk_err_set(err, STK_E_ENV, "'%s': store '%s' sent %zu of %lld bytes", f->key,
                           f->share->url, r.body.len, (long long)(end - from));
    }
    return write_part(f, &r.body, from - f->from, err);
}

/* "bytes 0-9/100" */
static bool read_content_range(const stk_http_response *r, stk_object_facts *ret)
{
    char text[120];
    long long from = 0, last = 0, size = 0;
    if (!stk_http_header(r, "content-range", text, sizeof text) ||
        sscanf(text, "bytes %lld-%lld/%lld", &from, &last, &size) != 3) {
        return false;
    }
    ret->from = from;
    ret->n = last - from + 1;
    ret->size = size;
    return true;
}

/* An empty object has no first byte to ask for. */
static int get_empty(const fetch *f, const stk_object_range *range, stk_object_facts *ret,
                     stk_err *err)
{
    STK_TRY(stk_object_look(f->share, f->key, ret, err));
    if (ret->size > 0 || range->given) {
        return stk_err_set(err, STK_E_USAGE,
                           "'%s' has %lld bytes: the range that is asked for isn't in it", f->key,
                           (long long)ret->size);
    }
    return 0;
}

/* The last bytes of an object: where they begin is known once its size is. */
static int find_start(const fetch *f, stk_object_range *range, stk_err *err)
{
    stk_object_facts facts;
    if (range->from >= 0) {
        return 0;
    }
    STK_TRY(stk_object_look(f->share, f->key, &facts, err));
    range->from = MAX(facts.size + range->from, 0);
    range->n = -1;
    return 0;
}

static int get_once(fetch *f, stk_object_range range, stk_object_facts *ret, stk_err *err)
{
    char line[80];
    STK_HTTP_RESPONSE_AUTO r = {0};
    STK_TRY(find_start(f, &range, err));
    int64_t first = range.n < 0 ? FIRST_BYTES : MIN(range.n, FIRST_BYTES);
    (void)snprintf(line, sizeof line, "Range: bytes=%lld-%lld", (long long)range.from,
                   (long long)(range.from + first) - 1);
    stk_s3_ask ask = {
        .method = "GET", .key = f->key, .headers = {line}, .body_max = FIRST_BYTES + ERROR_BYTES};
    int rc = stk_s3_send(f->share, &ask, &r, NULL, NULL, err);
    *ret = (stk_object_facts){.modified_s = -1};
    if (rc < 0 && r.status == 416) {
        return get_empty(f, &range, ret, err);
    }
    if (rc == STK_E_NOT_FOUND) {
        return stk_share_absent(f->share, f->key, err);
    }
    STK_TRY(rc);
    note_facts(&r, ret);
    if (!read_content_range(&r, ret)) { /* the answer is the whole object */
        ret->from = 0;
        ret->n = ret->size = (int64_t)r.body.len;
    }
    f->from = ret->from;
    f->done = (int64_t)r.body.len;
    f->end = range.n < 0 ? ret->size : MIN(range.from + range.n, ret->size);
    ret->n = f->end - f->from;
    (void)snprintf(f->etag, sizeof f->etag, "%s", ret->etag);
    STK_TRY(write_part(f, &r.body, 0, err));
    int64_t left = f->end - f->from - f->done;
    uint64_t n = left <= 0 ? 0 : (uint64_t)((left + STK_S3_CHUNK - 1) / STK_S3_CHUNK);
    return stk_share_parallel(SHARE_PARTS, n, get_part, f, err);
}

static void fetch_done(fetch *f)
{
    stk_file_close(&f->fd);
}

int stk_object_get(stk_share *share, const char *key, const stk_object_range *range,
                   const char *path, stk_object_facts *ret, stk_err *err)
{
    __attribute__((cleanup(fetch_done)))
    fetch f = {.share = share, .key = key, .path = path, .fd = -1};
    f.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f.fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", path);
    }
    int rc = STK_E_BUSY;
    for (int i = 0; rc == STK_E_BUSY && i < RESTARTS; i++) {
        if (ftruncate(f.fd, 0) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", path);
        }
        rc = get_once(&f, *range, ret, err);
    }
    if (rc < 0) {
        (void)unlink(path);
    }
    return rc;
}
