/* Signature version 4: https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <time.h>

#include "away/aws/aws_private.h"
#include "base/digest.h"
#include "base/text.h"

enum { TEXT_MAX = 1 << 20, HEADERS_MAX = 64, PARAMETERS_MAX = 256 };

void stk_aws_encode(stk_buf *out, const char *text, bool slashes)
{
    (void)stk_buf_percent(out, text, strlen(text), stk_text_when(slashes, "/"));
}

/* --- the canonical request --- */

typedef struct place {
    const char *host;
    size_t n_host;
    const char *path;
    size_t n_path;
    const char *query;
    size_t n_query;
} place;

static bool split_url(const char *url, place *ret)
{
    const char *host = strstr(url, "://");
    if (host == NULL) {
        return false;
    }
    host += 3;
    *ret = (place){.host = host, .n_host = strcspn(host, "/?#")};
    ret->path = host + ret->n_host;
    ret->n_path = strcspn(ret->path, "?#");
    const char *rest = ret->path + ret->n_path;
    ret->query = rest + (*rest == '?');
    ret->n_query = *rest == '?' ? strcspn(ret->query, "#") : 0;
    const char *port = strncasecmp(url, "https:", 6) == 0 ? ":443" : ":80";
    size_t n = strlen(port); /* the Host header leaves the default port out, too */
    if (ret->n_host > n && memcmp(host + ret->n_host - n, port, n) == 0) {
        ret->n_host -= n;
    }
    return true;
}

/* Adds the path without ".", ".." and empty parts. Encodes it once more: the URL is encoded
 * already. */
static void add_path(stk_buf *out, const char *path, size_t n)
{
    struct {
        const char *at;
        size_t n;
    } parts[256];
    size_t n_parts = 0;
    size_t i = 0;
    while (i < n) {
        size_t len = 0;
        while (i + len < n && path[i + len] != '/') {
            len++;
        }
        if (len == 2 && memcmp(path + i, "..", 2) == 0) {
            n_parts -= n_parts > 0;
        } else if (len > 0 && !(len == 1 && path[i] == '.') && n_parts < 256) {
            parts[n_parts].at = path + i;
            parts[n_parts++].n = len;
        }
        i += len + 1;
    }
    bool ends = n > 0 && path[n - 1] == '/';
    for (size_t k = 0; k < n_parts; k++) {
        stk_buf_char(out, '/');
        (void)stk_buf_percent(out, parts[k].at, parts[k].n, "");
    }
    if (n_parts == 0 || ends) {
        stk_buf_char(out, '/');
    }
}

typedef struct pair {
    char *name;
    char *value;
} pair;

static int by_pair(const void *a, const void *b)
{
    const pair *p = a;
    const pair *q = b;
    int order = strcmp(p->name, q->name);
    return order != 0 ? order : strcmp(p->value, q->value);
}

static char *decoded(const char *text, size_t n, stk_arena *arena)
{
    char *to = stk_arena_alloc(arena, n + 1);
    STK_BUF_AUTO out = STK_BUF_INIT(TEXT_MAX);
    size_t len = 0;
    if (to == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        char hex[3] = {0};
        if (text[i] == '%' && i + 2 < n && isxdigit((unsigned char)text[i + 1]) &&
            isxdigit((unsigned char)text[i + 2])) {
            memcpy(hex, text + i + 1, 2);
            to[len++] = (char)strtol(hex, NULL, 16);
            i += 2;
        } else {
            to[len++] = text[i];
        }
    }
    (void)stk_buf_percent(&out, to, len, "");
    if (out.failed) {
        return NULL;
    }
    return stk_arena_dup(arena, stk_text_or(out.data, ""));
}

static size_t length_until(const char *text, char end, size_t n)
{
    const char *at = memchr(text, end, n);
    return at == NULL ? n : (size_t)(at - text);
}

/* Adds the query: sorted, encoded as AWS does, with a '=' after each name. */
static bool add_query(stk_buf *out, const char *query, size_t n, stk_arena *arena)
{
    pair pairs[PARAMETERS_MAX];
    size_t n_pairs = 0;
    for (size_t i = 0; i < n;) {
        const char *from = query + i;
        size_t len = length_until(from, '&', n - i);
        size_t n_name = length_until(from, '=', len);
        if (len > 0) {
            if (n_pairs == PARAMETERS_MAX) {
                return false;
            }
            pair *p = &pairs[n_pairs++];
            p->name = decoded(from, n_name, arena);
            size_t skip = MIN(n_name + 1, len);
            p->value = decoded(from + skip, len - skip, arena);
            if (p->name == NULL || p->value == NULL) {
                return false;
            }
        }
        i += len + 1;
    }
    qsort(pairs, n_pairs, sizeof *pairs, by_pair);
    for (size_t i = 0; i < n_pairs; i++) {
        stk_buf_printf(out, "%s%s=%s", stk_text_when(i > 0, "&"), pairs[i].name, pairs[i].value);
    }
    return !out->failed;
}

/* "Name: value" → the name in lower case, the value trimmed and with single blanks. */
static bool read_header(const char *line, pair *ret, stk_arena *arena)
{
    static const char *const unsigned_ones[] = {"authorization",  "user-agent", "content-length",
                                                "expect",         "connection", "accept-encoding",
                                                "x-amzn-trace-id"};
    size_t n = strcspn(line, ":");
    ret->name = stk_arena_dupn(arena, line, n);
    const char *value = line + n + (line[n] == ':');
    ret->value = stk_arena_alloc(arena, strlen(value) + 1);
    if (ret->name == NULL || ret->value == NULL) {
        return false;
    }
    for (char *c = ret->name; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    size_t len = 0;
    for (; *value != '\0'; value++) {
        bool blank = *value == ' ' || *value == '\t';
        if (!blank || (len > 0 && ret->value[len - 1] != ' ')) {
            ret->value[len++] = blank ? ' ' : *value;
        }
    }
    while (len > 0 && ret->value[len - 1] == ' ') {
        len--;
    }
    ret->value[len] = '\0';
    for (size_t i = 0; i < sizeof unsigned_ones / sizeof *unsigned_ones; i++) {
        if (strcmp(ret->name, unsigned_ones[i]) == 0) {
            ret->name[0] = '\0';
        }
    }
    return true;
}

typedef struct headers {
    pair at[HEADERS_MAX];
    size_t n;
} headers;

static bool add_header(headers *h, const char *line, stk_arena *arena)
{
    if (line == NULL || h->n == HEADERS_MAX || !read_header(line, &h->at[h->n], arena)) {
        return false;
    }
    h->n += h->at[h->n].name[0] != '\0';
    return true;
}

/* Sorts by name; stable, so headers of one name keep their order. */
static void sort_headers(headers *h)
{
    for (size_t i = 1; i < h->n; i++) {
        pair p = h->at[i];
        size_t k = i;
        for (; k > 0 && strcmp(h->at[k - 1].name, p.name) > 0; k--) {
            h->at[k] = h->at[k - 1];
        }
        h->at[k] = p;
    }
}

static bool collect_headers(const stk_aws_to_sign *q, const place *where, const stk_aws_keys *keys,
                            const char *date, headers *h, stk_arena *arena)
{
    bool has_host = false;
    bool has_date = false;
    for (size_t i = 0; q->headers != NULL && q->headers[i] != NULL; i++) {
        has_host |= strncasecmp(q->headers[i], "host:", 5) == 0;
        has_date |= strncasecmp(q->headers[i], "x-amz-date:", 11) == 0;
        if (!add_header(h, q->headers[i], arena)) {
            return false;
        }
    }
    bool ok =
        has_host ||
        add_header(h, stk_arena_printf(arena, "host:%.*s", (int)where->n_host, where->host), arena);
    if (ok && q->presign_s == 0) {
        ok = has_date || add_header(h, stk_arena_printf(arena, "x-amz-date:%s", date), arena);
        if (ok && keys->token[0] != '\0') {
            ok = add_header(h, stk_arena_printf(arena, "x-amz-security-token:%s", keys->token),
                            arena);
        }
    }
    sort_headers(h);
    return ok;
}

static void add_names(stk_buf *out, const headers *h)
{
    for (size_t i = 0; i < h->n; i++) {
        if (i == 0 || strcmp(h->at[i].name, h->at[i - 1].name) != 0) {
            stk_buf_printf(out, "%s%s", stk_text_when(i > 0, ";"), h->at[i].name);
        }
    }
}

static void sign_text(const stk_aws_to_sign *q, const stk_aws_keys *keys, const char *date,
                      const char *canonical, size_t n, char ret_hex[STK_DIGEST_HEX + 1])
{
    unsigned char key[STK_DIGEST_BYTES];
    char first[sizeof keys->secret + 4];
    char hash[STK_DIGEST_HEX + 1];
    char text[512];
    int n_first = snprintf(first, sizeof first, "AWS4%s", keys->secret);
    stk_digest_of(canonical, n, hash);
    int n_text = snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%.8s/%s/%s/aws4_request\n%s",
                          date, date, q->region, q->service, hash);
    stk_hmac_sha256(first, (size_t)n_first, date, 8, key);
    stk_hmac_sha256(key, sizeof key, q->region, strlen(q->region), key);
    stk_hmac_sha256(key, sizeof key, q->service, strlen(q->service), key);
    stk_hmac_sha256(key, sizeof key, "aws4_request", 12, key);
    stk_hmac_sha256(key, sizeof key, text, (size_t)n_text, key);
    stk_digest_hex(key, ret_hex);
}

/* The query of a presigned URL, without the signature. */
static void add_presigned(stk_buf *query, const place *where, const stk_aws_to_sign *q,
                          const stk_aws_keys *keys, const char *date, const headers *h)
{
    STK_BUF_AUTO text = STK_BUF_INIT(TEXT_MAX);
    stk_buf_printf(query,
                   "%.*s%sX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=", (int)where->n_query,
                   where->query, stk_text_when(where->n_query > 0, "&"));
    stk_buf_printf(&text, "%s/%.8s/%s/%s/aws4_request", keys->id, date, q->region, q->service);
    stk_aws_encode(query, text.data, false);
    stk_buf_printf(query, "&X-Amz-Date=%s&X-Amz-Expires=%lld&X-Amz-SignedHeaders=", date,
                   (long long)q->presign_s);
    stk_buf_clear(&text);
    add_names(&text, h);
    stk_aws_encode(query, text.data, false);
    if (keys->token[0] != '\0') {
        stk_buf_text(query, "&X-Amz-Security-Token=");
        stk_aws_encode(query, keys->token, false);
    }
    query->failed |= text.failed;
}

void stk_aws_signature_done(stk_aws_signature *s)
{
    stk_buf_done(&s->canonical);
    stk_buf_done(&s->query);
    stk_buf_done(&s->authorization);
}

int stk_aws_make_signature(const stk_aws_to_sign *q, const stk_aws_keys *keys,
                           stk_aws_signature *ret, stk_err *err)
{
    place where;
    headers h = {0};
    struct tm tm;
    char hex[STK_DIGEST_HEX + 1];
    time_t seconds = (time_t)(q->time_ms / 1000);
    STK_ARENA_AUTO arena = stk_arena_new(TEXT_MAX * 8);
    *ret = (stk_aws_signature){.canonical = STK_BUF_INIT(TEXT_MAX),
                               .query = STK_BUF_INIT(TEXT_MAX),
                               .authorization = STK_BUF_INIT(TEXT_MAX)};
    if (!split_url(q->url, &where)) {
        return stk_err_set(err, STK_E_USAGE, "'%.80s' isn't a valid URL", q->url);
    }
    (void)strftime(ret->date, sizeof ret->date, "%Y%m%dT%H%M%SZ", gmtime_r(&seconds, &tm));
    if (arena == NULL || !collect_headers(q, &where, keys, ret->date, &h, arena)) {
        return stk_err_nomem(err);
    }
    if (q->presign_s > 0) {
        add_presigned(&ret->query, &where, q, keys, ret->date, &h);
        where.query = ret->query.data;
        where.n_query = ret->query.len;
    }
    stk_buf *c = &ret->canonical;
    stk_buf_printf(c, "%s\n", q->method);
    if (strcmp(q->service, "s3") == 0) { /* the path is unchanged: keys may contain "//" and ".." */
        if (where.n_path == 0) {
            where.path = "/";
            where.n_path = 1;
        }
        stk_buf_add(c, where.path, where.n_path);
    } else {
        add_path(c, where.path, where.n_path);
    }
    stk_buf_char(c, '\n');
    if (!add_query(c, where.query, where.n_query, arena)) {
        return stk_err_set(err, STK_E_LIMIT, "a request with more than %d parameters",
                           PARAMETERS_MAX);
    }
    stk_buf_char(c, '\n');
    for (size_t i = 0; i < h.n; i++) {
        if (i > 0 && strcmp(h.at[i].name, h.at[i - 1].name) == 0) {
            stk_buf_printf(c, ",%s", h.at[i].value);
        } else {
            stk_buf_printf(c, "%s%s:%s", stk_text_when(i > 0, "\n"), h.at[i].name, h.at[i].value);
        }
    }
    stk_buf_text(c, "\n\n"); /* there is always a host */
    add_names(c, &h);
    stk_buf_printf(c, "\n%s", q->payload_sha256);
    if (c->failed || ret->query.failed) {
        return stk_err_nomem(err);
    }
    sign_text(q, keys, ret->date, c->data, c->len, hex);
    if (q->presign_s > 0) {
        stk_buf_printf(&ret->query, "&X-Amz-Signature=%s", hex);
    }
    stk_buf_printf(&ret->authorization,
                   "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=",
                   keys->id, ret->date, q->region, q->service);
    add_names(&ret->authorization, &h);
    stk_buf_printf(&ret->authorization, ", Signature=%s", hex);
    if (ret->authorization.failed || ret->query.failed) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* --- into a request --- */

int stk_aws_sign_with(const stk_aws_to_sign *q, const stk_aws_keys *keys, stk_http_request *request,
                      stk_arena *arena, stk_err *err)
{
    bool s3 = strcmp(q->service, "s3") == 0;
    size_t n = 0;
    while (request->headers != NULL && request->headers[n] != NULL) {
        n++;
    }
    const char **lines = stk_arena_array(arena, n + 5, sizeof *lines);
    STK_TRY(stk_err_if_null(lines, err));
    for (size_t i = 0; i < n; i++) {
        lines[i] = request->headers[i];
    }
    if (s3) { /* other services don't need it */
        lines[n] = stk_arena_printf(arena, "x-amz-content-sha256: %s", q->payload_sha256);
        n += lines[n] != NULL;
    }
    stk_aws_to_sign to_sign = *q;
    stk_aws_signature s;
    to_sign.headers = lines;
    int rc = stk_aws_make_signature(&to_sign, keys, &s, err);
    if (rc == 0) {
        bool has_token = keys->token[0] != '\0';
        lines[n] = stk_arena_printf(arena, "X-Amz-Date: %s", s.date);
        lines[n + 1] = stk_arena_printf(arena, "Authorization: %s", s.authorization.data);
        if (has_token) {
            lines[n + 2] = stk_arena_printf(arena, "X-Amz-Security-Token: %s", keys->token);
        }
        request->headers = lines;
        if (lines[n] == NULL || lines[n + 1] == NULL || (has_token && lines[n + 2] == NULL)) {
            rc = stk_err_nomem(err);
        }
    }
    stk_aws_signature_done(&s);
    return rc;
}
