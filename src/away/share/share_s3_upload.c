/* Files into a bucket: a small one by one request, others in parts, four at a time. Each part's
 * content is summed first and the sum is signed, so S3 takes nothing that was damaged on its way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_s3.h"
#include "base/text.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { READ_BYTES = 256 << 10, ETAG = 160, ID_SIZE = 1024, QUERY_SIZE = 4096, XML_MAX = 8 << 20 };
enum { COMPLETE_MS = 600000 };

typedef struct upload {
    stk_share *share;
    const char *key;
    const char *path;
    const char *digest;         /* or NULL */
    const char *const *headers; /* of the object, or NULL */
    int fd;
    int64_t size;
    int64_t part_size;
    uint64_t n;
    char id[ID_SIZE];          /* of the multipart upload */
    char query_id[QUERY_SIZE]; /* uploadId=…, encoded */
    char (*etags)[ETAG];       /* "": not there yet */
    unsigned char (*sums)[STK_DIGEST_BYTES];
    _Atomic bool gone; /* no such upload any more */
} upload;

typedef struct piece {
    const upload *u;
    int64_t from;
    int64_t end;
} piece;

static int64_t read_piece(void *arg, int64_t at, void *data, size_t n)
{
    const piece *p = arg;
    ssize_t got;
    if ((int64_t)n > p->end - p->from - at) {
        n = (size_t)(p->end - p->from - at);
    }
    do {
        got = pread(p->u->fd, data, n, p->from + at);
    } while (got < 0 && errno == EINTR);
    return got;
}

static piece piece_of(const upload *u, uint64_t i)
{
    int64_t from = (int64_t)i * u->part_size;
    int64_t end = MIN(from + u->part_size, u->size);
    return (piece){.u = u, .from = from, .end = end};
}

static int sum_piece(const piece *p, unsigned char sum[STK_DIGEST_BYTES], stk_err *err)
{
    unsigned char *buf = malloc(READ_BYTES);
    stk_sha256 sha;
    int64_t at = 0;
    int64_t got = 0;
    stk_sha256_init(&sha);
    while (buf != NULL && at < p->end - p->from &&
           (got = read_piece((void *)p, at, buf, READ_BYTES)) > 0) {
        stk_sha256_add(&sha, buf, (size_t)got);
        at += got;
    }
    int sys = 0;
    if (buf == NULL) {
        sys = ENOMEM;
    } else if (got < 0) {
        sys = errno;
    }
    stk_sha256_done(&sha, sum);
    free(buf);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't read '%s'", p->u->path);
    }
    if (at != p->end - p->from) {
        return stk_err_set(err, STK_E_STORE, "'%s' got shorter while Stoker read it", p->u->path);
    }
    return 0;
}

static void add_headers(const upload *u, stk_s3_ask *ask)
{
    for (size_t i = 0; u->headers != NULL && u->headers[i] != NULL && i + 1 < STK_S3_HEADERS; i++) {
        ask->headers[i] = u->headers[i];
    }
}

static int put_piece(const upload *u, uint64_t i, const char *query, char etag[ETAG], char code[80],
                     stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    piece p = piece_of(u, i);
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_digest_hex(u->sums[i], hex);
    stk_s3_ask ask = {.method = "PUT",
                      .key = u->key,
                      .query = query,
                      .n = (size_t)(p.end - p.from),
                      .sha256 = hex,
                      .read_body = read_piece,
                      .read_arg = &p};
    if (query == NULL) {
        add_headers(u, &ask);
    }
    STK_TRY(stk_s3_send(u->share, &ask, &r, code, NULL, err));
    if (etag != NULL && !stk_http_header(&r, "etag", etag, ETAG)) {
        return stk_err_set(err, STK_E_ENV, "store '%s' answers an upload of a part without an ETag",
                           u->share->url);
    }
    return 0;
}

/* --- in parts --- */

static int put_part(void *arg, uint64_t i, stk_err *err)
{
    upload *u = arg;
    piece p = piece_of(u, i);
    char query[QUERY_SIZE + 40];
    char code[80];
    int rc = sum_piece(&p, u->sums[i], err);
    if (rc < 0 || u->etags[i][0] != '\0') {
        return rc;
    }
    (void)snprintf(query, sizeof query, "partNumber=%llu&%s", (unsigned long long)i + 1,
                   u->query_id);
    rc = put_piece(u, i, query, u->etags[i], code, err);
    if (rc < 0 && strcmp(code, "NoSuchUpload") == 0) {
        u->gone = true;
    }
    return rc;
}

static void name_upload(upload *u, const char *id)
{
    STK_BUF_AUTO text = STK_BUF_INIT(QUERY_SIZE - 16);
    stk_aws_encode(&text, id, false);
    (void)snprintf(u->id, sizeof u->id, "%s", id);
    (void)snprintf(u->query_id, sizeof u->query_id, "uploadId=%s", stk_text_or(text.data, ""));
}

static int begin_upload(upload *u, stk_err *err)
{
    char id[ID_SIZE];
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_s3_ask ask = {.method = "POST", .key = u->key, .query = "uploads="};
    add_headers(u, &ask);
    STK_TRY(stk_s3_send(u->share, &ask, &r, NULL, NULL, err));
    const char *at = stk_text_or(r.body.data, "");
    if (!stk_aws_xml(&at, "UploadId", id, sizeof id)) {
        return stk_err_set(err, STK_E_ENV,
                           "store '%s' answers the start of an upload without an id",
                           u->share->url);
    }
    name_upload(u, id);
    return 0;
}

/* One of the same artifact that was interrupted, or that another machine is making just now:
 * both may go on with it, the content is the same. */
static int find_open(upload *u, stk_err *err)
{
    STK_BUF_AUTO query = STK_BUF_INIT(QUERY_SIZE);
    STK_BUF_AUTO whole = STK_BUF_INIT(QUERY_SIZE);
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_buf_printf(&whole, "%s%s", u->share->s3->prefix, u->key);
    stk_buf_text(&query, "prefix=");
    stk_aws_encode(&query, whole.data, false);
    stk_buf_text(&query, "&uploads=");
    stk_s3_ask ask = {.method = "GET", .query = query.data};
    int rc = stk_s3_send(u->share, &ask, &r, NULL, NULL, err);
    if (rc < 0) {
        return rc == STK_E_ENV ? 0 : rc; /* one may not list them: a new one, then */
    }
    const char *at = stk_text_or(r.body.data, "");
    while ((at = strstr(at, "<Upload>")) != NULL) {
        char key[2048];
        char id[ID_SIZE];
        const char *a = at;
        const char *b = at;
        if (stk_aws_xml(&a, "Key", key, sizeof key) && stk_aws_xml(&b, "UploadId", id, sizeof id) &&
            strcmp(key, whole.data) == 0) {
            name_upload(u, id);
        }
        at += 8;
    }
    return 0;
}

/* A part that is there; one of another size than ours is of no use. */
static void note_part(upload *u, const char *at)
{
    char number[32];
    char size[32];
    char etag[ETAG];
    const char *a = at;
    const char *b = at;
    const char *c = at;
    if (!stk_aws_xml(&a, "PartNumber", number, sizeof number) ||
        !stk_aws_xml(&b, "Size", size, sizeof size) ||
        !stk_aws_xml(&c, "ETag", etag, sizeof etag)) {
        return;
    }
    uint64_t i = strtoull(number, NULL, 10) - 1;
    if (i < u->n) {
        piece p = piece_of(u, i);
        if (strtoll(size, NULL, 10) == p.end - p.from) {
            memcpy(u->etags[i], etag, sizeof etag);
        }
    }
}

static int find_parts(upload *u, stk_err *err)
{
    char marker[32] = "0";
    char more[16] = "true";
    while (strcmp(more, "true") == 0) {
        char query[QUERY_SIZE + 60];
        STK_HTTP_RESPONSE_AUTO r = {0};
        (void)snprintf(query, sizeof query, "part-number-marker=%s&%s", marker, u->query_id);
        stk_s3_ask ask = {.method = "GET", .key = u->key, .query = query};
        STK_TRY(stk_s3_send(u->share, &ask, &r, NULL, NULL, err));
        const char *text = stk_text_or(r.body.data, "");
        for (const char *at = text; (at = strstr(at, "<Part>")) != NULL; at += 6) {
            note_part(u, at);
        }
        const char *a = text;
        const char *b = text;
        if (!stk_aws_xml(&a, "IsTruncated", more, sizeof more) ||
            !stk_aws_xml(&b, "NextPartNumberMarker", marker, sizeof marker)) {
            more[0] = '\0';
        }
    }
    return 0;
}

static bool is_complete(upload *u)
{
    int64_t size = -1;
    return stk_s3_head(u->share, u->key, &size, NULL, NULL) == 0 && size == u->size;
}

static int complete_upload(upload *u, stk_err *err)
{
    STK_BUF_AUTO body = STK_BUF_INIT(XML_MAX);
    char code[80];
    STK_HTTP_RESPONSE_AUTO r = {0};
    stk_buf_text(&body, "<CompleteMultipartUpload>");
    for (uint64_t i = 0; i < u->n; i++) {
        stk_buf_printf(&body, "<Part><PartNumber>%llu</PartNumber><ETag>",
                       (unsigned long long)i + 1);
        stk_buf_html(&body, u->etags[i]);
        stk_buf_text(&body, "</ETag></Part>");
    }
    stk_buf_text(&body, "</CompleteMultipartUpload>");
    if (body.failed) {
        return stk_share_no_memory(u->share, err);
    }
    stk_s3_ask ask = {.method = "POST",
                      .key = u->key,
                      .query = u->query_id,
                      .idle_ms = COMPLETE_MS, /* minutes of work, of which not all servers tell */
                      .headers = {"Content-Type: application/xml"},
                      .body = body.data,
                      .n = body.len};
    int rc = stk_s3_send(u->share, &ask, &r, code, NULL, err);
    const char *at = stk_text_or(r.body.data, "");
    if (rc == 0 && strstr(at, "<Error>") != NULL) { /* said after the 200 was on its way */
        (void)stk_aws_xml(&at, "Code", code, sizeof code);
        rc = stk_err_set(err, STK_E_ENV, "'%s': store '%s' can't complete the upload: %s", u->key,
                         u->share->url, code);
    }
    /* It was, and the answer was lost; or somebody else did. */
    return rc < 0 && is_complete(u) ? 0 : rc;
}

static void abandon(upload *u)
{
    stk_s3_ask ask = {.method = "DELETE", .key = u->key, .query = u->query_id};
    (void)stk_s3_send(u->share, &ask, NULL, NULL, NULL, NULL);
}

/* The digest is of chunks that are parts here; of larger parts it is checked when they are read. */
static int verify_parts(const upload *u, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(u->sums, u->n * STK_DIGEST_BYTES, hex);
    if (u->digest == NULL || u->part_size != STK_S3_CHUNK) {
        return 0;
    }
    return stk_share_check_digest(u->path, hex, u->digest, err);
}

static int send_parts(upload *u, stk_err *err)
{
    STK_TRY(stk_share_parallel(SHARE_PARTS, u->n, put_part, u, err));
    STK_TRY(verify_parts(u, err));
    return complete_upload(u, err);
}

static int put_parts(upload *u, stk_err *err)
{
    u->id[0] = '\0';
    u->gone = false;
    memset(u->etags, 0, u->n * sizeof *u->etags);
    if (u->digest != NULL) {
        STK_TRY(find_open(u, err));
    }
    if (u->id[0] == '\0') {
        STK_TRY(begin_upload(u, err));
    } else {
        int rc = find_parts(u, err);
        u->gone = rc == STK_E_NOT_FOUND; /* just completed or given up by somebody else */
        STK_TRY(rc);
    }
    int rc = send_parts(u, err);
    if (rc < 0 && (u->digest == NULL || rc == STK_E_STORE)) {
        abandon(u);
    }
    return rc;
}

static int put_open(upload *u, stk_err *err)
{
    int64_t chunks = (u->size + STK_S3_CHUNK - 1) / STK_S3_CHUNK;
    chunks = MAX(chunks, 1);
    u->part_size = STK_S3_CHUNK * ((chunks + STK_S3_PARTS - 1) / STK_S3_PARTS);
    u->n = (uint64_t)((u->size + u->part_size - 1) / u->part_size);
    u->n = MAX(u->n, 1);
    u->sums = calloc(u->n, sizeof *u->sums);
    u->etags = calloc(u->n, sizeof *u->etags);
    if (u->sums == NULL || u->etags == NULL) {
        return stk_share_no_memory(u->share, err);
    }
    if (u->n == 1) {
        piece p = piece_of(u, 0);
        STK_TRY(sum_piece(&p, u->sums[0], err));
        STK_TRY(verify_parts(u, err));
        return put_piece(u, 0, NULL, NULL, (char[80]){0}, err);
    }
    int rc = put_parts(u, err);
    if (rc < 0 && u->gone && !is_complete(u)) { /* else another machine has completed it */
        return put_parts(u, err);
    }
    return u->gone ? 0 : rc;
}

static void upload_done(upload *u)
{
    stk_file_close(&u->fd);
    free(u->sums);
    free(u->etags);
}

static int put_object_file(stk_share *share, const char *key, const char *path, const char *digest,
                           const char *const *headers, stk_err *err)
{
    struct stat st;
    __attribute__((cleanup(upload_done)))
    upload u = {.share = share, .key = key, .path = path, .digest = digest, .headers = headers};
    u.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (u.fd < 0 || fstat(u.fd, &st) < 0) {
        int sys = errno;
        return stk_err_sys(err, sys == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, sys, "can't read '%s'",
                           path);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' isn't a file", path);
    }
    u.size = st.st_size;
    return put_open(&u, err);
}

int stk_s3_put_file(stk_share *share, const char *key, const char *path, const char *digest,
                    stk_err *err)
{
    return put_object_file(share, key, path, digest, NULL, err);
}

int stk_s3_put_file_with(stk_share *share, const char *key, const char *path,
                         const char *const *headers, stk_err *err)
{
    return put_object_file(share, key, path, NULL, headers, err);
}
