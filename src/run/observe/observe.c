#include "run/observe/observe.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "run/observe/observe_private.h"
#include "sys/clock.h"

enum { MAX_HEADERS = 64, END_MS = 20000 };

typedef struct observer {
    observe_channel *channel;
    int (*tell)(const observe_of *of, stk_err *err);
} observer;

enum { LINEAGE, SPANS, TRACKERS, N_OBSERVERS };

struct stk_observe {
    stk_observe_config config;
    stk_arena *arena, *scratch;
    observer observers[N_OBSERVERS];
    stk_buf text;
    int64_t begun_ms;
    bool is_broken; /* a text couldn't be made; said */
};

static void tell_user(const stk_observe *o, const stk_err *err)
{
    if (o->config.say != NULL) {
        o->config.say(o->config.arg, err);
    }
}

/* --- what receivers need --- */

/* `url` ends in `tail` already, or gets it appended. */
static const char *with_tail(const char *url, const char *tail, bool only_bare, stk_arena *arena)
{
    size_t n = strlen(url), n_tail = strlen(tail);
    n -= url[n - 1] == '/';
    const char *path = strchr(strstr(url, "://") + 3, '/');
    bool is_bare = path == NULL || path[1] == '\0';
    bool ends_so = n >= n_tail && strncmp(url + n - n_tail, tail, n_tail) == 0;
    if (ends_so || (only_bare && !is_bare)) {
        return url;
    }
    return stk_arena_printf(arena, "%.*s%s", (int)n, url, tail);
}

static const char *const *json_headers(const char *const *more, uint32_t n, stk_arena *arena)
{
    const char **headers = stk_arena_array(arena, n + 2, sizeof *headers);
    if (headers != NULL) {
        headers[0] = "Content-Type: application/json";
        memcpy(headers + 1, more, n * sizeof *headers);
        headers[n + 1] = NULL;
    }
    return headers;
}

static char hex_value(char c)
{
    return (char)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

/* "a=b,c=d", percent-encoded, as "a: b" and "c: d". */
static uint32_t otlp_headers(const char *text, const char **ret, stk_arena *arena)
{
    uint32_t n = 0;
    for (; text != NULL && n < MAX_HEADERS; text = stk_text_behind_first(text, ',')) {
        STK_BUF_AUTO header = STK_BUF_INIT(1u << 16);
        size_t len = strcspn(text, ","), n_name = strcspn(text, "=");
        if (n_name >= len) {
            continue;
        }
        stk_buf_printf(&header, "%.*s: ", (int)n_name, text);
        for (size_t i = n_name + 1; i < len; i++) {
            bool is_coded = text[i] == '%' && i + 2 < len &&
                            strspn(text + i + 1, "0123456789abcdefABCDEF") >= 2;
            char c = text[i];
            if (is_coded) {
                c = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
                i += 2;
            }
            stk_buf_char(&header, c);
        }
        ret[n] = stk_buf_keep(&header, arena);
        n += ret[n] != NULL && strpbrk(ret[n], "\r\n") == NULL;
    }
    return n;
}

static observe_receiver lineage_receiver(stk_observe *o)
{
    const char *to = o->config.openlineage;
    const char *key = stk_text_if_any(getenv("OPENLINEAGE_API_KEY"));
    const char *bearer =
        stk_arena_printf(o->arena, "Authorization: Bearer %s", stk_text_or(key, ""));
    observe_receiver r = {.name = "OpenLineage", .file = to};
    if (to[0] != '/') {
        r.file = NULL;
        r.url = with_tail(to, "/api/v1/lineage", true, o->arena);
        r.headers = json_headers(&bearer, key != NULL, o->arena);
    }
    return r;
}

static observe_receiver spans_receiver(stk_observe *o)
{
    const char *to = o->config.opentelemetry;
    const char *more[MAX_HEADERS];
    observe_receiver r = {.name = "OpenTelemetry", .file = to};
    if (to[0] != '/') {
        uint32_t n = otlp_headers(getenv("OTEL_EXPORTER_OTLP_HEADERS"), more, o->arena);
        r.file = NULL;
        r.url = with_tail(to, "/v1/traces", false, o->arena);
        r.headers = json_headers(more, n, o->arena);
    }
    return r;
}

/* The environment of the trackers' program: it imports the package that belongs to us. */
static const char *const *program_env(const stk_observe *o)
{
    const char *before = stk_text_if_any(getenv("PYTHONPATH"));
    size_t n = 0, n_path = (size_t)(strrchr(o->config.front, '/') - o->config.front);
    while (environ[n] != NULL) {
        n++;
    }
    const char **env = stk_arena_array(o->arena, n + 2, sizeof *env);
    if (env == NULL) {
        return NULL;
    }
    n = 0;
    for (char **e = environ; *e != NULL; e++) {
        if (strncmp(*e, "PYTHONPATH=", 11) != 0) {
            env[n++] = *e;
        }
    }
    env[n++] = stk_arena_printf(o->arena, "PYTHONPATH=%.*s%s%s", (int)n_path, o->config.front,
                                stk_text_when(before != NULL, ":"), stk_text_or(before, ""));
    env[n] = NULL;
    return env;
}

static observe_receiver trackers_receiver(stk_observe *o)
{
    const stk_observe_config *c = &o->config;
    const char *argv[] = {c->python, "-m", "stoker._trackers", c->trackers, NULL};
    const char **kept = stk_arena_array(o->arena, 5, sizeof *kept);
    if (kept != NULL) {
        memcpy(kept, argv, sizeof argv);
    }
    return (observe_receiver){
        .name = "the trackers' program",
        .argv = kept,
        .env = program_env(o),
        .log = stk_arena_printf(o->arena, "%s/runs/%s/trackers.log", c->store, c->run)};
}

/* --- opening --- */

/* A receiver that can't be had is said, and the run goes on without it. */
static void open_channel(stk_observe *o, int i, const observe_receiver *receiver,
                         int (*tell)(const observe_of *of, stk_err *err))
{
    stk_err err = {0};
    if (stk_observe_channel_open(receiver, &o->observers[i].channel, &err) < 0) {
        stk_err_context(&err, "%s lacks this run", receiver->name);
        tell_user(o, &err);
        stk_observe_channel_close(o->observers[i].channel);
        o->observers[i].channel = NULL;
    }
    o->observers[i].tell = tell;
}

int stk_observe_open(const stk_observe_config *config, stk_observe **ret, stk_err *err)
{
    *ret = NULL;
    bool is_any =
        config->openlineage != NULL || config->opentelemetry != NULL || config->trackers != NULL;
    if (!is_any) {
        return 0;
    }
    stk_observe *o = calloc(1, sizeof *o);
    STK_TRY(stk_err_if_null(o, err));
    *o = (stk_observe){.config = *config,
                       .arena = stk_arena_new(0),
                       .scratch = stk_arena_new(0),
                       .text = STK_BUF_INIT(OBSERVE_TEXT_BYTES)};
    *ret = o;
    if (o->arena == NULL || o->scratch == NULL) {
        return stk_err_nomem(err);
    }
    if (config->openlineage != NULL) {
        observe_receiver r = lineage_receiver(o);
        open_channel(o, LINEAGE, &r, stk_observe_lineage);
    }
    if (config->opentelemetry != NULL) {
        observe_receiver r = spans_receiver(o);
        open_channel(o, SPANS, &r, stk_observe_span);
    }
    if (config->trackers != NULL && config->front != NULL) {
        observe_receiver r = trackers_receiver(o);
        open_channel(o, TRACKERS, &r, stk_observe_tracked);
    }
    return 0;
}

/* --- telling --- */

void stk_observe_say(const stk_observe *o)
{
    for (int i = 0; o != NULL && i < N_OBSERVERS; i++) {
        stk_err said = {0};
        while (o->observers[i].channel != NULL &&
               stk_observe_channel_said(o->observers[i].channel, &said)) {
            tell_user(o, &said);
        }
    }
}

static void tell_receiver(stk_observe *o, const observer *to, const stk_event_row *row, int part)
{
    observe_of of = {.view = o->config.view,
                     .row = row,
                     .arena = o->scratch,
                     .out = &o->text,
                     .begun_ms = o->begun_ms,
                     .part = part};
    stk_err err = {0};
    int rc = to->tell(&of, &err);
    if (rc == 0) {
        rc = stk_buf_check(&o->text, &err);
    }
    if (rc == 0 && o->text.len > 0) {
        stk_observe_channel_put(to->channel, &o->text);
    }
    if (rc < 0) {
        stk_buf_done(&o->text);
        o->text = STK_BUF_INIT(OBSERVE_TEXT_BYTES);
    }
    if (rc < 0 && !o->is_broken) {
        o->is_broken = true;
        stk_err_context(&err, "other tools lack an event of this run");
        tell_user(o, &err);
    }
    stk_arena_reset(o->scratch);
}

void stk_observe_event(stk_observe *o, const stk_event_row *row)
{
    if (o == NULL) {
        return;
    }
    if (o->begun_ms == 0) {
        o->begun_ms = row->time_ms;
    }
    for (int i = 0; i < N_OBSERVERS; i++) {
        for (int part = 0; part < 2 && o->observers[i].channel != NULL; part++) {
            tell_receiver(o, &o->observers[i], row, part);
        }
    }
    stk_observe_say(o);
}

/* --- the end --- */

/* Does the trackers' program still work? */
static bool is_late(const stk_observe *o)
{
    observe_channel *c = o->observers[TRACKERS].channel;
    return c != NULL && stk_observe_channel_end(c) >= 0;
}

void stk_observe_end(stk_observe *o, int signal_fd)
{
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + END_MS;
    while (o != NULL) {
        struct pollfd fds[N_OBSERVERS + 1] = {{.fd = signal_fd, .events = POLLIN}};
        nfds_t n = 1;
        stk_observe_say(o);
        for (int i = 0; i < N_OBSERVERS; i++) {
            observe_channel *c = o->observers[i].channel;
            int fd = -1;
            if (c != NULL) {
                fd = stk_observe_channel_end(c);
            }
            if (fd >= 0) {
                fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
            }
        }
        int64_t left = until - stk_clock_mono_ms(&stk_clock_real);
        if (n > 1 && left <= 0 && is_late(o)) {
            stk_err late = {0};
            stk_err_set(
                &late, STK_E_ENV,
                "the trackers don't have all of this run yet; they go on in the background");
            tell_user(o, &late);
        }
        if (n == 1 || left <= 0 || poll(fds, n, (int)left) <= 0 || fds[0].revents != 0) {
            break;
        }
    }
}

void stk_observe_close(stk_observe *o)
{
    if (o == NULL) {
        return;
    }
    for (int i = 0; i < N_OBSERVERS; i++) {
        if (o->observers[i].channel != NULL) {
            stk_observe_channel_stop(o->observers[i].channel);
        }
    }
    stk_observe_say(o);
    for (int i = 0; i < N_OBSERVERS; i++) {
        stk_observe_channel_close(o->observers[i].channel);
    }
    stk_buf_done(&o->text);
    stk_arena_free(o->arena);
    stk_arena_free(o->scratch);
    free(o);
}

/* --- shared by the texts --- */

const char *stk_observe_id(const observe_of *of, uint32_t task, uint32_t attempt, size_t n)
{
    char hex[STK_DIGEST_HEX + 1];
    STK_BUF_AUTO key = STK_BUF_INIT(1024);
    stk_buf_printf(&key, "stoker %s", stk_view_get_run(of->view)->id);
    if (task != UINT32_MAX) {
        stk_buf_printf(&key, " %u %u", task, attempt);
    }
    stk_digest_of(stk_text_or(key.data, ""), key.len, hex);
    return stk_arena_dupn(of->arena, hex, n);
}

bool stk_observe_ends(const observe_of *of)
{
    switch (of->row->kind) {
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_FAILED:
        return true;
    case STK_EV_TASK_CANCELLED:
        return stk_view_get_task(of->view, of->row->task)->attempt > 0;
    default:
        return false;
    }
}
