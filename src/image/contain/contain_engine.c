/* Calls to this host's container engine, and its streams. */
#include <ctype.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "image/contain/contain_private.h"
#include "net/http.h"
#include "sys/clock.h"

enum { ANSWER_MAX = 64 << 20 };
enum { CONNECT_MS = 5000, PING_MS = 10000, SILENT_MS = 30000, CALL_MS = 30 * 60 * 1000 };
enum { LIST_TRIES = 5, LIST_AGAIN_US = 50000 };

const stk_json_limits stk_engine_limits = {.bytes = ANSWER_MAX, .nodes = 2000000, .depth = 60};

/* --- calls --- */

/* "/v1.41/containers/…"; Podman's own calls have versions of their own. */
static void make_url(const stk_engine *e, const char *path, stk_buf *url)
{
    if (strncmp(path, "/libpod/", 8) == 0) {
        stk_buf_printf(url, "http://d/v4.0.0%s", path);
    } else if (strcmp(path, "/_ping") == 0) {
        stk_buf_text(url, "http://d/_ping");
    } else {
        stk_buf_printf(url, "http://d/v%s%s", e->api, path);
    }
}

/* Turns an answer of 400 and above, {"message": "…"}, into an error. */
static int refused_by_engine(const stk_engine *e, int status, const stk_buf *body, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    const char *words = NULL;
    if (arena != NULL && body->len > 0 &&
        stk_json_parse(body->data, body->len, "", &stk_engine_limits, arena, &root, NULL) == 0) {
        words = stk_json_get_text(&root, "message");
    }
    words = stk_text_or(words, stk_text_or(stk_text_if_any(body->data), "no reason given"));
    /* Podman 4 answers 500 if the container is just being removed. */
    int code = STK_E_ENV;
    if (status == 404 || strstr(words, "no such container") != NULL) {
        code = STK_E_NOT_FOUND;
    } else if (status == 409) {
        code = STK_E_BUSY;
    }
    stk_err_set(err, code, "%s: %.*s", stk_text_or(e->name, "the container engine"),
                (int)strcspn(words, "\n"), words);
    return code;
}

/* A long call to an engine that may fall silent. */
typedef struct patience {
    const stk_engine *engine;
    int64_t until_ms; /* INT64_MAX: no limit */
    bool is_deaf;
} patience;

int stk_engine_ping(const char *path, int cancel_fd, stk_http_response *r, stk_err *err)
{
    const stk_http_request request = {.method = "GET",
                                      .url = "http://d/_ping",
                                      .unix_socket = path,
                                      .connect_ms = CONNECT_MS,
                                      .idle_ms = PING_MS,
                                      .cancel_fd = cancel_fd};
    return stk_http_send(&request, r, err);
}

static bool still_lives(void *arg)
{
    patience *p = arg;
    stk_http_response r = {.body = STK_BUF_INIT(4096)};
    if (stk_clock_mono_ms(&stk_clock_real) >= p->until_ms) {
        return false;
    }
    p->is_deaf = stk_engine_ping(p->engine->socket, p->engine->cancel_fd, &r, NULL) < 0;
    stk_http_done(&r);
    return !p->is_deaf;
}

/* Sets a call's limits; `p` remembers them for the error. */
static void be_patient(patience *p, stk_http_request *request)
{
    const stk_engine *e = p->engine;
    request->connect_ms = CONNECT_MS;
    request->cancel_fd = e->cancel_fd;
    request->idle_ms = SILENT_MS;
    request->on_idle = still_lives;
    request->idle_arg = p;
    if (e->idle_ms > 0) {
        request->idle_ms = e->idle_ms;
        request->on_idle = NULL;
    }
}

static int explain_silence(const patience *p, int rc, stk_err *err)
{
    if (rc < 0 && p->is_deaf) {
        stk_err_set(err, STK_E_ENV, "%s has stopped answering at %s: no answer for %d s",
                    stk_text_or(p->engine->name, "the container engine"), p->engine->socket,
                    (SILENT_MS + PING_MS) / 1000);
        stk_err_hint(
            err, "restart it (systemctl restart docker, systemctl --user restart podman.socket)");
    }
    return rc;
}

int stk_engine_call(const stk_engine *engine, const char *method, const char *path,
                    const char *json, int *ret_status, stk_buf *ret_body, stk_err *err)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    STK_BUF_AUTO url = STK_BUF_INIT(1 << 20);
    make_url(engine, path, &url);
    STK_TRY(stk_buf_check(&url, err));
    stk_http_request request = {.method = method, .url = url.data, .unix_socket = engine->socket};
    if (json != NULL) {
        request.headers = headers;
        request.body = json;
        request.body_len = strlen(json);
    }
    patience p = {.engine = engine, .until_ms = stk_clock_mono_ms(&stk_clock_real) + CALL_MS};
    be_patient(&p, &request);
    stk_http_response r = {.body = STK_BUF_INIT(ANSWER_MAX)};
    int rc = explain_silence(&p, stk_http_send(&request, &r, err), err);
    if (rc == 0 && r.status >= 400) {
        rc = refused_by_engine(engine, r.status, &r.body, err);
    }
    if (ret_status != NULL) {
        *ret_status = r.status;
    }
    if (rc == 0 && ret_body != NULL) {
        stk_buf_add(ret_body, r.body.data, r.body.len);
        rc = stk_buf_check(ret_body, err);
    }
    stk_http_done(&r);
    return rc;
}

int stk_engine_parse(const stk_engine *engine, const char *path, const stk_buf *body,
                     stk_arena *arena, stk_json *ret, stk_err *err)
{
    stk_err why = {0};
    if (stk_json_parse(stk_text_or(body->data, ""), body->len, path, &stk_engine_limits, arena, ret,
                       &why) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s answers %s with invalid JSON: %s", engine->name,
                           path, why.text);
    }
    return 0;
}

int stk_engine_get(const stk_engine *engine, const char *path, stk_arena *arena, stk_json *ret,
                   stk_err *err)
{
    STK_BUF_AUTO body = STK_BUF_INIT(ANSWER_MAX);
    STK_TRY(stk_engine_call(engine, "GET", path, NULL, NULL, &body, err));
    return stk_engine_parse(engine, path, &body, arena, ret, err);
}

const char *stk_engine_escape(const char *text, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(4 << 20);
    stk_buf_percent(&out, text, strlen(text), "");
    return stk_buf_keep(&out, arena);
}

const char *stk_engine_filter(const char *key, const char *const *texts, stk_arena *arena)
{
    STK_BUF_AUTO json = STK_BUF_INIT(1 << 20);
    stk_json_open(&json, NULL, '{');
    stk_json_put_texts(&json, key, texts);
    stk_json_close(&json, '}');
    if (json.failed) {
        return NULL;
    }
    return stk_engine_escape(json.data, arena);
}

int stk_engine_containers(const stk_engine *engine, const char *const *labels, stk_arena *arena,
                          stk_json *ret_list, stk_err *err)
{
    int rc = 0;
    const char *query = stk_engine_filter("label", labels, arena);
    STK_TRY(stk_err_if_null(query, err));
    const char *path = stk_arena_printf(arena, "/containers/json?all=true&filters=%s", query);
    STK_TRY(stk_err_if_null(path, err));
    for (int i = 0; i < LIST_TRIES; i++) {
        int status = 0;
        STK_BUF_AUTO body = STK_BUF_INIT(ANSWER_MAX);
        rc = stk_engine_call(engine, "GET", path, NULL, &status, &body, err);
        if (rc == 0) {
            return stk_engine_parse(engine, path, &body, arena, ret_list, err);
        }
        if (status < 400) {
            return rc;
        }
        (void)usleep(LIST_AGAIN_US);
    }
    return rc;
}

void stk_engine_split_log(const stk_buf *body, stk_buf *out, stk_buf *log)
{
    const unsigned char *data = (const unsigned char *)body->data;
    for (size_t at = 0; at + 8 <= body->len;) {
        size_t n = (size_t)data[at + 4] << 24 | (size_t)data[at + 5] << 16 |
                   (size_t)data[at + 6] << 8 | data[at + 7];
        n = MIN(n, body->len - at - 8);
        if (data[at] != 2) {
            stk_buf_add(out, data + at + 8, n);
        } else if (log != NULL) {
            stk_buf_add(log, data + at + 8, n);
        }
        at += 8 + n;
    }
}

/* --- a stream of objects --- */

typedef struct stream {
    const stk_http_response *response;
    bool (*on_json)(void *arg, const char *json, size_t n);
    void *arg;
    stk_buf part; /* an unfinished object, or an error's whole body */
    int depth;
    bool quoted, escaped, full;
} stream;

/* Splits the stream into objects; any bytes, or none, may stand between them. */
static bool on_bytes(void *arg, const void *data, size_t n)
{
    stream *s = arg;
    const char *bytes = data;
    if (s->response->status >= 400) {
        return stk_buf_add(&s->part, data, n) == 0;
    }
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        if (s->depth == 0 && c != '{') {
            continue;
        }
        if (s->quoted) {
            s->quoted = c != '"' || s->escaped;
            s->escaped = c == '\\' && !s->escaped;
        } else {
            s->quoted = c == '"';
            s->depth += (c == '{') - (c == '}');
        }
        if (stk_buf_char(&s->part, c) < 0) {
            s->full = true;
            return false;
        }
        if (s->depth == 0) {
            bool more = s->on_json(s->arg, s->part.data, s->part.len);
            stk_buf_clear(&s->part);
            if (!more) {
                return false;
            }
        }
    }
    return true;
}

int stk_engine_stream(const stk_engine *engine, const char *method, const char *path,
                      const char *const *headers, int body_fd,
                      bool (*on_json)(void *arg, const char *json, size_t n), void *arg,
                      stk_err *err)
{
    STK_BUF_AUTO url = STK_BUF_INIT(1 << 20);
    make_url(engine, path, &url);
    STK_TRY(stk_buf_check(&url, err));
    stk_http_response r = {0};
    stream s = {.response = &r, .on_json = on_json, .arg = arg, .part = STK_BUF_INIT(ANSWER_MAX)};
    stk_http_request request = {.method = method,
                                .url = url.data,
                                .unix_socket = engine->socket,
                                .headers = headers,
                                .body_fd = body_fd,
                                .on_body = on_bytes,
                                .arg = &s};
    patience p = {.engine = engine, .until_ms = INT64_MAX};
    be_patient(&p, &request);
    int rc = explain_silence(&p, stk_http_send(&request, &r, err), err);
    if (rc == 0 && r.status >= 400) {
        rc = refused_by_engine(engine, r.status, &s.part, err);
    } else if (s.full) {
        rc = stk_err_set(err, STK_E_LIMIT, "%s: a message has more than %d bytes", engine->name,
                         ANSWER_MAX);
    }
    stk_buf_done(&s.part);
    stk_http_done(&r);
    return rc;
}
