/* Requests on objects of buckets, as JSON: what flows' S3 clients ask for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/share/share_objects.h"
#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

enum { REQUESTS_MAX = 1 << 20, ANSWER_MAX = 1 << 30, BUCKETS_MAX = 64, META_LINE = 4200 };

typedef struct request {
    const stk_json *said;
    stk_share *share; /* of its bucket */
    const char *key;
    stk_buf out;
} request;

typedef struct requests {
    request *all;
    uint32_t n;
    stk_share *buckets[BUCKETS_MAX];
    uint32_t n_buckets;
} requests;

/* --- answers --- */

static void put_error(request *q, const stk_err *why)
{
    char text[1400];
    const char *word = "failed";
    if (why->code == STK_E_NOT_FOUND) {
        word = "not_found";
    } else if (why->sys == ENXIO) {
        word = "no_bucket";
    } else if (why->sys == EACCES) {
        word = "denied";
    } else if (why->code == STK_E_USAGE) {
        word = "range";
    } else if (why->code == STK_E_FULL) {
        word = "full";
    }
    stk_buf_clear(&q->out);
    stk_json_open(&q->out, NULL, '{');
    stk_json_put_text(&q->out, "error", word);
    stk_json_put_text(&q->out, "text", stk_err_format(why, text, (int)sizeof text));
    stk_json_close(&q->out, '}');
}

static void put_known(stk_buf *out, const char *key, const char *text)
{
    stk_json_put_text(out, key, text[0] == '\0' ? NULL : text);
}

static void put_facts(request *q, const stk_object_facts *facts)
{
    stk_json_open(&q->out, NULL, '{');
    stk_json_put_int(&q->out, "size", facts->size);
    stk_json_put_int(&q->out, "from", facts->from);
    stk_json_put_int(&q->out, "n", facts->n);
    stk_json_put_int(&q->out, "modified", facts->modified_s);
    put_known(&q->out, "type", facts->type);
    put_known(&q->out, "encryption", facts->encryption);
    put_known(&q->out, "meta", facts->meta);
    stk_json_close(&q->out, '}');
}

/* --- what is asked for --- */

static int do_look(request *q, stk_err *err)
{
    stk_object_facts facts;
    STK_TRY(stk_object_look(q->share, q->key, &facts, err));
    put_facts(q, &facts);
    return 0;
}

static int do_get(request *q, stk_err *err)
{
    stk_object_facts facts;
    stk_object_range range = {.from = stk_json_get_whole(q->said, "from", 0),
                              .n = stk_json_get_whole(q->said, "n", -1)};
    range.given = range.from != 0 || range.n != -1;
    STK_TRY(
        stk_object_get(q->share, q->key, &range, stk_json_get_text(q->said, "path"), &facts, err));
    put_facts(q, &facts);
    return 0;
}

static int do_put(request *q, stk_err *err)
{
    static const struct {
        const char *key, *header;
    } known[] = {{"type", "Content-Type"},
                 {"encryption", "x-amz-server-side-encryption"},
                 {"meta", "x-amz-meta-metaflow-user-attributes"}};
    enum { N = sizeof known / sizeof *known };
    char lines[N][META_LINE];
    const char *headers[N + 1] = {NULL};
    uint32_t n = 0;
    for (size_t i = 0; i < N; i++) {
        const char *text = stk_json_get_text(q->said, known[i].key);
        if (text != NULL &&
            snprintf(lines[n], META_LINE, "%s: %s", known[i].header, text) >= META_LINE) {
            return stk_err_set(err, STK_E_LIMIT, "'%s': its metadata has more than 4 KB", q->key);
        }
        if (text != NULL) {
            headers[n] = lines[n];
            n++;
        }
    }
    stk_object_facts facts;
    bool is_there = false;
    if (stk_json_is_true(stk_json_get(q->said, "only_new"))) {
        int rc = stk_object_look(q->share, q->key, &facts, err);
        STK_TRY(stk_err_but(rc, STK_E_NOT_FOUND));
        is_there = rc == 0;
    }
    if (!is_there) {
        STK_TRY(stk_s3_put_file_with(q->share, q->key, stk_json_get_text(q->said, "path"), headers,
                                     err));
    }
    stk_json_open(&q->out, NULL, '{');
    stk_json_put_bool(&q->out, "put", !is_there);
    stk_json_close(&q->out, '}');
    return 0;
}

static int note_listed(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    stk_buf *out = arg;
    (void)mtime_ms;
    stk_json_open(out, NULL, '[');
    stk_json_put_text(out, NULL, key);
    stk_json_put_int(out, NULL, size);
    stk_json_close(out, ']');
    return out->failed;
}

static int do_list(request *q, stk_err *err)
{
    stk_s3_listing how = {.prefix = q->key,
                          .level = !stk_json_is_true(stk_json_get(q->said, "deep")),
                          .all = true,
                          .each = note_listed,
                          .arg = &q->out};
    stk_json_open(&q->out, NULL, '{');
    stk_json_open(&q->out, "objects", '[');
    int rc = stk_s3_list_as(q->share, &how, err);
    if (rc > 0) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' has too many objects", q->key);
    }
    stk_json_close(&q->out, ']');
    stk_json_close(&q->out, '}');
    return rc;
}

static const struct {
    const char *word;
    bool has_file;
    int (*run)(request *q, stk_err *err);
} ops[] = {{"look", false, do_look},
           {"get", true, do_get},
           {"put", true, do_put},
           {"list", false, do_list}};
enum { N_OPS = sizeof ops / sizeof *ops };

static size_t find_op(const request *q)
{
    const char *word = stk_text_or(stk_json_get_text(q->said, "op"), "");
    size_t i = 0;
    while (i < N_OPS && strcmp(ops[i].word, word) != 0) {
        i++;
    }
    return i;
}

static int do_request(void *arg, uint64_t i, stk_err *err)
{
    request *q = &((requests *)arg)->all[i];
    stk_err why = {0};
    (void)err;
    if (ops[find_op(q)].run(q, &why) < 0) {
        put_error(q, &why);
    }
    return 0;
}

/* --- reading them --- */

static int find_bucket(requests *r, request *q, const char *bucket, size_t n, stk_err *err)
{
    char url[300];
    if (n == 0 || snprintf(url, sizeof url, "s3://%.*s", (int)n, bucket) >= (int)sizeof url) {
        return stk_err_set(err, STK_E_USAGE, "'%.*s' isn't the name of a bucket", (int)n, bucket);
    }
    for (uint32_t i = 0; i < r->n_buckets; i++) {
        if (strcmp(stk_share_url(r->buckets[i]), url) == 0) {
            q->share = r->buckets[i];
            return 0;
        }
    }
    if (r->n_buckets == BUCKETS_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "more than %d buckets at once", BUCKETS_MAX);
    }
    STK_TRY(stk_share_open(url, &q->share, err));
    r->buckets[r->n_buckets++] = q->share;
    return 0;
}

static int read_request(requests *r, stk_arena *arena, const char *line, size_t n, stk_err *err)
{
    static const char scheme[] = "s3://";
    request *q = &r->all[r->n];
    q->said = stk_json_readn(arena, line, n);
    const char *url = stk_json_get_text(q->said, "url");
    size_t i = find_op(q);
    if (url == NULL || strncmp(url, scheme, sizeof scheme - 1) != 0 || i == N_OPS ||
        (ops[i].has_file && stk_json_get_text(q->said, "path") == NULL)) {
        return stk_err_set(err, STK_E_USAGE, "'%.*s' isn't a request on an object of S3", (int)n,
                           line);
    }
    const char *bucket = url + sizeof scheme - 1;
    size_t n_bucket = strcspn(bucket, "/");
    q->key = bucket + n_bucket + (bucket[n_bucket] == '/' ? 1 : 0);
    q->out = STK_BUF_INIT(ANSWER_MAX);
    r->n++;
    return find_bucket(r, q, bucket, n_bucket, err);
}

static void requests_done(requests *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        stk_buf_done(&r->all[i].out);
    }
    for (uint32_t i = 0; i < r->n_buckets; i++) {
        stk_share_close(r->buckets[i]);
    }
    free(r->all);
}

static size_t count_lines(const char *text, size_t n)
{
    size_t found = 1;
    for (size_t i = 0; i < n; i++) {
        found += text[i] == '\n';
    }
    return found;
}

static int read_requests(requests *r, stk_arena *arena, const char *text, size_t n, stk_err *err)
{
    size_t most = count_lines(text, n);
    if (most > REQUESTS_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "more than %d requests at once", REQUESTS_MAX);
    }
    r->all = calloc(most, sizeof *r->all);
    STK_TRY(stk_err_if_null(r->all, err));
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end == NULL ? n - at : (size_t)(end - (text + at));
        if (len > 0) {
            STK_TRY(read_request(r, arena, text + at, len, err));
        }
        at += len + 1;
    }
    return 0;
}

int stk_share_answer(const char *text, size_t n, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    __attribute__((cleanup(requests_done))) requests r = {0};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(read_requests(&r, arena, text, n, err));
    STK_TRY(stk_share_parallel(SHARE_FILES, r.n, do_request, &r, err));
    for (uint32_t i = 0; i < r.n; i++) {
        stk_buf_add(out, r.all[i].out.data, r.all[i].out.len);
        stk_buf_text(out, "\n");
        if (r.all[i].out.failed || out->failed) {
            return stk_err_set(err, STK_E_LIMIT, "the answers have more than %d MB",
                               ANSWER_MAX >> 20);
        }
    }
    return 0;
}
