/* Files out of a bucket: ranges of 16 MiB, four at a time, straight into the file. What came is
 * noted beside it, so that a download that was interrupted goes on. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_s3.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { READ_BYTES = 256 << 10, RESTARTS = 3 };

/* A line of the notes: chunk `i` is in the file and has this sum. */
typedef struct noted {
    int64_t size; /* of the whole file */
    uint64_t i;
    unsigned char sum[STK_DIGEST_BYTES];
} noted;

typedef struct download {
    stk_share *share;
    const char *key;
    const char *digest; /* or NULL */
    char etag[128];     /* or "" */
    int64_t size;
    int fd;
    int notes; /* or -1 */
    uint64_t n_chunks;
    unsigned char (*sums)[STK_DIGEST_BYTES];
    bool *is_noted;
} download;

typedef struct range {
    download *d;
    int64_t from;
    int64_t end;
    int64_t at; /* the next byte that is awaited */
    stk_sha256 sha;
    int sys;   /* writing failed */
    bool over; /* more came than was asked for */
} range;

static int64_t end_of(const download *d, uint64_t i)
{
    int64_t end = (int64_t)(i + 1) * STK_S3_CHUNK;
    return MIN(end, d->size);
}

static bool write_body(void *arg, const void *data, size_t n)
{
    range *r = arg;
    const char *from = data;
    if ((int64_t)n > r->end - r->at) {
        r->over = true;
        return false;
    }
    if (r->d->digest != NULL) {
        stk_sha256_add(&r->sha, data, n);
    }
    while (n > 0) {
        ssize_t put = pwrite(r->d->fd, from, n, r->at);
        if (put < 0 && errno != EINTR) {
            r->sys = errno;
            return false;
        }
        put = MAX(put, 0);
        r->at += put;
        from += put;
        n -= (size_t)put;
    }
    return true;
}

/* The rest of a range, in one try. */
static int get_some(range *r, stk_aws_again *ret_again, stk_http_response *response, stk_err *err)
{
    download *d = r->d;
    char range_line[80];
    char match[160];
    char code[80];
    bool all = r->at == 0 && r->end == d->size;
    size_t n = 0;
    stk_s3_ask ask = {.method = "GET", .key = d->key, .on_body = write_body, .arg = r};
    (void)snprintf(range_line, sizeof range_line, "Range: bytes=%lld-%lld", (long long)r->at,
                   (long long)r->end - 1);
    (void)snprintf(match, sizeof match, "If-Match: %s", d->etag);
    if (!all) {
        ask.headers[n++] = range_line;
    }
    if (d->etag[0] != '\0') {
        ask.headers[n++] = match;
    }
    int64_t before = r->at;
    int rc = stk_s3_try(d->share, &ask, response, code, ret_again, err);
    if (r->sys != 0) {
        return stk_err_sys(err, STK_E_SYS, r->sys, "can't write data from store '%s'",
                           d->share->url);
    }
    if (rc == STK_E_NOT_FOUND) {
        return stk_share_absent(d->share, d->key, err);
    }
    if (r->over || (rc == 0 && !all && response->status != 206)) {
        *ret_again = STK_AWS_STOP;
        if (!r->over) {
            return stk_err_set(err, STK_E_ENV,
                               "'%s': store '%s' doesn't support reading a part of an object",
                               d->key, d->share->url);
        }
        return stk_err_set(err, d->digest != NULL ? STK_E_STORE : STK_E_ENV,
                           "'%s' in store '%s' is larger than it should be", d->key, d->share->url);
    }
    if (rc == 0 && r->at < r->end) {
        *ret_again = STK_AWS_AGAIN;
        rc = stk_err_set(err, STK_E_ENV, "'%s': store '%s' sent only %lld of %lld bytes", d->key,
                         d->share->url, (long long)(r->at - before), (long long)(r->end - before));
    }
    return rc;
}

/* Is what the notes say in the file? Its sum is, or d->sums[i] is made again. */
static bool is_still_there(const download *d, uint64_t i)
{
    unsigned char sum[STK_DIGEST_BYTES];
    unsigned char *buf = malloc(READ_BYTES);
    stk_sha256 sha;
    int64_t at = (int64_t)i * STK_S3_CHUNK;
    int64_t end = end_of(d, i);
    stk_sha256_init(&sha);
    while (buf != NULL && at < end) {
        ssize_t n = pread(d->fd, buf, (size_t)MIN(end - at, READ_BYTES), at);
        if (n <= 0) {
            break;
        }
        stk_sha256_add(&sha, buf, (size_t)n);
        at += n;
    }
    bool whole = buf != NULL && at == end;
    free(buf);
    stk_sha256_done(&sha, sum);
    return whole && memcmp(sum, d->sums[i], sizeof sum) == 0;
}

static int get_chunk(void *arg, uint64_t i, stk_err *err)
{
    download *d = arg;
    range r = {.d = d, .from = (int64_t)i * STK_S3_CHUNK, .end = end_of(d, i)};
    stk_aws_tries tries = {0};
    stk_aws_again again = STK_AWS_STOP;
    STK_HTTP_RESPONSE_AUTO response = {0};
    int64_t wait = 0;
    int rc;
    if (d->is_noted[i] && is_still_there(d, i)) {
        return 0;
    }
    r.at = r.from;
    stk_sha256_init(&r.sha);
    do {
        int64_t before = r.at;
        (void)stk_aws_wait(wait, d->share->cancel_fd); /* cancelled: the try says so */
        rc = get_some(&r, &again, &response, err);
        if (r.at > before) {
            tries.n = 0; /* it goes on */
        }
    } while (rc < 0 && stk_aws_next(&tries, again, &response, &wait));
    if (rc == 0 && d->digest != NULL) {
        noted line = {.size = d->size, .i = i};
        stk_sha256_done(&r.sha, line.sum);
        memcpy(d->sums[i], line.sum, sizeof line.sum);
        if (d->notes >= 0) { /* without them it only can't be continued */
            (void)!stk_file_write_all(d->notes, &line, sizeof line);
        }
    }
    return rc;
}

/* What an earlier download noted. */
static void read_notes(download *d)
{
    noted line;
    off_t at = 0;
    while (d->notes >= 0 && pread(d->notes, &line, sizeof line, at) == (ssize_t)sizeof line) {
        if (line.size == d->size && line.i < d->n_chunks) {
            memcpy(d->sums[line.i], line.sum, sizeof line.sum);
            d->is_noted[line.i] = true;
        }
        at += (off_t)sizeof line;
    }
}

static int verify_chunks(const download *d, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(d->sums, d->n_chunks * STK_DIGEST_BYTES, hex);
    return stk_share_check_digest(d->key, hex, d->digest, err);
}

static int get_all(download *d, const char *path, const char *notes, stk_err *err)
{
    int flags = O_RDWR | O_CREAT | O_CLOEXEC;
    if (d->digest == NULL) { /* nothing in it can be trusted */
        flags |= O_TRUNC;
    }
    d->fd = open(path, flags, 0666);
    if (d->fd < 0 || ftruncate(d->fd, d->size) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", path);
    }
    d->n_chunks = (uint64_t)((d->size + STK_S3_CHUNK - 1) / STK_S3_CHUNK);
    d->n_chunks = MAX(d->n_chunks, 1);
    d->sums = calloc(d->n_chunks, sizeof *d->sums);
    d->is_noted = calloc(d->n_chunks, sizeof *d->is_noted);
    if (d->sums == NULL || d->is_noted == NULL) {
        return stk_share_no_memory(d->share, err);
    }
    if (d->digest != NULL && d->n_chunks > 1) {
        d->notes = open(notes, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        read_notes(d);
    }
    int rc = stk_share_parallel(SHARE_PARTS, d->n_chunks, get_chunk, d, err);
    if (rc == 0 && d->digest != NULL) {
        rc = verify_chunks(d, err);
    }
    if (d->digest != NULL && (rc == 0 || rc == STK_E_STORE)) {
        (void)unlink(notes);
    }
    return rc;
}

static void download_done(download *d)
{
    stk_file_close(&d->fd);
    stk_file_close(&d->notes);
    free(d->sums);
    free(d->is_noted);
}

int stk_s3_get_file(stk_share *share, const char *key, const char *path, const char *digest,
                    int64_t size, stk_err *err)
{
    STK_TEXT_AUTO notes = NULL;
    int rc = STK_E_BUSY;
    if (asprintf(&notes, "%s.done", path) < 0) {
        notes = NULL;
        return stk_share_no_memory(share, err);
    }
    /* Busy: somebody replaced it meanwhile (If-Match). */
    for (int i = 0; rc == STK_E_BUSY && i < RESTARTS; i++) {
        __attribute__((cleanup(download_done))) download d = {
            .share = share, .key = key, .digest = digest, .size = size, .fd = -1, .notes = -1};
        if (size < 0) {
            STK_TRY(stk_s3_head(share, key, &d.size, d.etag, err));
        }
        rc = get_all(&d, path, notes, err);
    }
    return rc;
}
