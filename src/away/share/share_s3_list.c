/* Listing a bucket: ListObjectsV2, a thousand keys an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "away/share/share_s3.h"
#include "base/text.h"

enum { KEY_SIZE = 4096, TOKEN_SIZE = 4096, QUERY_MAX = 16384 };

static void undo_percent(char *text)
{
    char *to = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (c[0] == '%' && c[1] != '\0' && c[2] != '\0') {
            *to++ = (char)strtol((char[]){c[1], c[2], '\0'}, NULL, 16);
            c += 2;
        } else {
            *to++ = *c == '+' ? ' ' : *c;
        }
    }
    *to = '\0';
}

static int64_t time_of(const char *text)
{
    struct tm tm = {0};
    double seconds = 0;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%lf", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &seconds) != 6) {
        return -1;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (int64_t)timegm(&tm) * 1000 + (int64_t)(seconds * 1000);
}

/* The folders of one answer. */
static int list_answered_folders(const stk_share *share, const char *at, const stk_s3_listing *q)
{
    size_t n_prefix = strlen(share->s3->prefix);
    int rc = 0;
    while (rc == 0 && (at = strstr(at, "<CommonPrefixes>")) != NULL) {
        char key[KEY_SIZE];
        const char *a = at;
        at += strlen("<CommonPrefixes>");
        if (stk_aws_xml(&a, "Prefix", key, sizeof key)) {
            undo_percent(key);
            if (strncmp(key, share->s3->prefix, n_prefix) == 0) {
                rc = q->each(q->arg, key + n_prefix, -1, -1);
            }
        }
    }
    return rc;
}

/* The objects of one answer. */
static int list_answer(stk_share *share, const char *at, const stk_s3_listing *q)
{
    size_t n_prefix = strlen(share->s3->prefix);
    int rc = 0;
    while (rc == 0 && (at = strstr(at, "<Contents>")) != NULL) {
        char key[KEY_SIZE];
        char size[32] = "";
        char when[64] = "";
        const char *end = strstr(at, "</Contents>");
        const char *a = at;
        const char *b = at;
        const char *c = at;
        if (end == NULL) {
            break;
        }
        bool ok = stk_aws_xml(&a, "Key", key, sizeof key) &&
                  stk_aws_xml(&b, "Size", size, sizeof size) &&
                  stk_aws_xml(&c, "LastModified", when, sizeof when);
        at = end;
        if (ok) {
            undo_percent(key);
            size_t n = strlen(key); /* "a/" is some tools' folder */
            if (strncmp(key, share->s3->prefix, n_prefix) == 0 && n > n_prefix &&
                (q->all || key[n - 1] != '/')) {
                rc = q->each(q->arg, key + n_prefix, strtoll(size, NULL, 10), time_of(when));
            }
        }
    }
    return rc;
}

static void write_query(const stk_share *share, const stk_s3_listing *q, const char *token,
                        stk_buf *query)
{
    stk_buf_text(query, stk_text_when(q->level, "delimiter=%2F&"));
    stk_buf_text(query, "encoding-type=url&list-type=2&prefix=");
    stk_aws_encode(query, share->s3->prefix, false);
    stk_aws_encode(query, q->prefix, false);
    if (token[0] != '\0') {
        stk_buf_text(query, "&continuation-token=");
        stk_aws_encode(query, token, false);
    } else if (q->after != NULL && q->after[0] != '\0') {
        stk_buf_text(query, "&start-after=");
        stk_aws_encode(query, share->s3->prefix, false);
        stk_aws_encode(query, q->after, false);
    }
}

int stk_s3_list(stk_share *share, const char *prefix, const char *after, stk_share_each *each,
                void *arg, stk_err *err)
{
    stk_s3_listing q = {.prefix = prefix, .after = after, .each = each, .arg = arg};
    return stk_s3_list_as(share, &q, err);
}

int stk_s3_list_as(stk_share *share, const stk_s3_listing *q, stk_err *err)
{
    char token[TOKEN_SIZE] = "";
    char more[16] = "true";
    int rc = 0;
    while (rc == 0 && strcmp(more, "true") == 0) {
        STK_BUF_AUTO query = STK_BUF_INIT(QUERY_MAX);
        STK_HTTP_RESPONSE_AUTO r = {0};
        write_query(share, q, token, &query);
        if (query.failed) {
            return stk_share_no_memory(share, err);
        }
        stk_s3_ask ask = {.method = "GET", .query = query.data};
        STK_TRY(stk_s3_send(share, &ask, &r, NULL, NULL, err));
        const char *text = stk_text_or(r.body.data, "");
        const char *a = text;
        const char *b = text;
        /* One that was cut would say that what it lacks isn't there. */
        if (strstr(text, "</ListBucketResult>") == NULL ||
            !stk_aws_xml(&a, "IsTruncated", more, sizeof more) ||
            (strcmp(more, "true") == 0 &&
             !stk_aws_xml(&b, "NextContinuationToken", token, sizeof token))) {
            return stk_err_set(err, STK_E_ENV, "store '%s' answers a listing with invalid data",
                               share->url);
        }
        rc = list_answer(share, text, q);
        if (rc == 0 && q->level) {
            rc = list_answered_folders(share, text, q);
        }
    }
    return rc;
}

typedef struct folder_listing {
    size_t n_prefix;
    stk_share_each_folder *each;
    void *arg;
} folder_listing;

static int give_folder(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    const folder_listing *f = arg;
    char name[KEY_SIZE];
    size_t n = strlen(key);
    (void)mtime_ms;
    if (size >= 0 || n <= f->n_prefix + 1) {
        return 0; /* an object */
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)(n - 1 - f->n_prefix), key + f->n_prefix);
    return f->each(f->arg, name);
}

int stk_s3_list_folders(stk_share *share, const char *prefix, stk_share_each_folder *each,
                        void *arg, stk_err *err)
{
    folder_listing f = {.n_prefix = strlen(prefix), .each = each, .arg = arg};
    stk_s3_listing q = {.prefix = prefix, .level = true, .each = give_folder, .arg = &f};
    return stk_s3_list_as(share, &q, err);
}
