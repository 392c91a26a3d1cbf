/* The container engine of this host: where it answers, what it can, what it says. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/text.h"
#include "image/contain/contain_private.h"
#include "net/http.h"
#include "sys/clock.h"
#include "sys/file.h"

/* The newest API version that this file was written against; an older engine is asked with its own,
 * a newer one understands this. */
enum { API_MINOR = 47, CONFIG_MAX = 4 << 20, ANSWER_MAX = 64 << 20 };
enum { CONNECT_MS = 5000, PING_MS = 10000, SILENT_MS = 30000, CALL_MS = 30 * 60 * 1000 };

const stk_json_limits stk_engine_limits = {.bytes = ANSWER_MAX, .nodes = 2000000, .depth = 60};

/* --- calls --- */

/* "/v1.41/containers/…"; Podman's own are versioned by themselves. */
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

/* What it says in an answer of 400 and above: {"message": "…"}. */
static int refused_by_engine(const stk_engine *e, int status, const stk_buf *body, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    const char *words = NULL;
    if (arena != NULL && body->len > 0 &&
        stk_json_parse(body->data, body->len, "", &stk_engine_limits, arena, &root, NULL) == 0) {
        words = stk_json_get_text(&root, "message");
    }
    if (words == NULL) {
        words = body->len > 0 ? body->data : "no reason given";
    }
    /* Podman 4 says 500 of a container that goes just now. */
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

/* A call that takes long, while the engine is silent. */
typedef struct patience {
    const stk_engine *engine;
    int64_t until_ms; /* INT64_MAX: as long as it takes */
    bool is_deaf;
} patience;

static int ask_ping(const char *path, int cancel_fd, stk_http_response *r, stk_err *err)
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
    p->is_deaf = ask_ping(p->engine->socket, p->engine->cancel_fd, &r, NULL) < 0;
    stk_http_done(&r);
    return !p->is_deaf;
}

/* What a call's limits are, and what is said where they ended it. */
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
        stk_err_set(err, STK_E_ENV, "%s doesn't answer any more at %s: it is silent for %d s",
                    stk_text_or(p->engine->name, "the container engine"), p->engine->socket,
                    (SILENT_MS + PING_MS) / 1000);
        stk_err_hint(err, "start it anew (systemctl restart docker, systemctl --user restart "
                          "podman.socket)");
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
        return stk_err_set(err, STK_E_PROTOCOL, "%s answers %s with what isn't JSON: %s",
                           engine->name, path, why.text);
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
    char *out = stk_arena_alloc(arena, 3 * strlen(text) + 1);
    char *p = out;
    for (const char *c = text; out != NULL && *c != '\0'; c++) {
        if (isalnum((unsigned char)*c) || strchr("-._~", *c) != NULL) {
            *p++ = *c;
        } else {
            p += snprintf(p, 4, "%%%02X", (unsigned char)*c);
        }
    }
    return out;
}

const char *stk_engine_filter(const char *key, const char *const *texts, stk_arena *arena)
{
    STK_BUF_AUTO json = STK_BUF_INIT(1 << 20);
    stk_json_open(&json, NULL, '{');
    stk_json_put_texts(&json, key, texts);
    stk_json_close(&json, '}');
    return json.failed ? NULL : stk_engine_escape(json.data, arena);
}

/* --- a stream of objects --- */

typedef struct stream {
    const stk_http_response *response;
    bool (*on_json)(void *arg, const char *json, size_t n);
    void *arg;
    stk_buf part; /* an object that hasn't ended, or an error's whole body */
    int depth;
    bool quoted, escaped, full;
} stream;

/* Objects follow each other with anything or nothing between them. */
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
        rc = stk_err_set(err, STK_E_LIMIT, "%s: one message of more than %d bytes", engine->name,
                         ANSWER_MAX);
    }
    stk_buf_done(&s.part);
    stk_http_done(&r);
    return rc;
}

/* --- where it is --- */

typedef struct search {
    stk_arena *arena;
    int cancel_fd;
    bool is_cancelled;
    stk_buf tried; /* "path (why not)", for the message */
    stk_err *err;
} search;

/* "unix:///x", "/x"; NULL: something else. */
static const char *socket_path(const char *address)
{
    if (strncmp(address, "unix://", 7) == 0) {
        return address + 7;
    }
    return address[0] == '/' ? address : NULL;
}

static int ping(const search *s, const char *path, const char *source, stk_engine *ret,
                stk_err *err)
{
    stk_arena *arena = s->arena;
    char value[128];
    int minor = 0;
    struct stat st;
    stk_http_response r = {.body = STK_BUF_INIT(4096)};
    stk_engine e = {
        .socket = stk_arena_dup(arena, path), .source = source, .cancel_fd = s->cancel_fd};
    int rc = ask_ping(path, s->cancel_fd, &r, err);
    if (rc == 0 && r.status != 200) {
        rc = stk_err_set(err, STK_E_ENV, "it answers %d to /_ping", r.status);
    } else if (rc == 0 && (!stk_http_header(&r, "Api-Version", value, sizeof value) ||
                           sscanf(value, "1.%d", &minor) != 1)) {
        rc = stk_err_set(err, STK_E_ENV, "what answers there is no container engine");
    }
    if (rc == 0) {
        e.api = stk_arena_printf(arena, "1.%d", MIN(minor, API_MINOR));
        e.is_podman = stk_http_header(&r, "Libpod-API-Version", value, sizeof value);
        if (e.is_podman) {
            e.name = stk_arena_printf(arena, "Podman %s", value);
        } else if (stk_http_header(&r, "Server", value, sizeof value) &&
                   strncmp(value, "Docker/", 7) == 0) {
            e.name =
                stk_arena_printf(arena, "Docker %.*s", (int)strcspn(value + 7, " "), value + 7);
        } else {
            e.name = "the container engine";
        }
        e.is_rootless = stat(path, &st) == 0 && st.st_uid != 0;
        e.limits_memory = true;
        *ret = e;
        if (e.api == NULL || e.name == NULL || e.socket == NULL) {
            rc = stk_err_nomem(err);
        }
    }
    stk_http_done(&r);
    return rc;
}

static bool try_one(search *s, const char *address, const char *source, stk_engine *ret)
{
    stk_err why = {0};
    const char *path = socket_path(address);
    stk_buf_separate(&s->tried, ", ");
    if (path == NULL) {
        stk_buf_printf(&s->tried, "%s (%s): only an engine of this host, by a unix socket, will do",
                       address, source);
        return false;
    }
    if (!s->is_cancelled) {
        int rc = ping(s, path, source, ret, &why);
        if (rc == 0) {
            return true;
        }
        s->is_cancelled = rc == STK_E_CANCELLED;
    }
    const char *words = why.text;
    if (access(path, F_OK) != 0) {
        words = "isn't there";
    } else if (access(path, R_OK | W_OK) != 0) {
        words = strerror(errno);
    }
    stk_buf_printf(&s->tried, "%s (%s): %s", path, source, words);
    if (why.hint[0] != '\0') {
        stk_err_hint(s->err, "%s", why.hint);
    }
    return false;
}

/* The address of the docker context in use; NULL: the default one, or none. */
static const char *context_address(stk_arena *arena, const char **ret_source)
{
    const char *folder = getenv("DOCKER_CONFIG");
    const char *home = getenv("HOME");
    const char *name = getenv("DOCKER_CONTEXT");
    char hex[STK_DIGEST_HEX + 1];
    char *text = NULL;
    size_t n = 0;
    stk_json root = {0};
    folder = stk_text_if_any(folder);
    if (folder == NULL && home != NULL) {
        folder = stk_arena_printf(arena, "%s/.docker", home);
    }
    if (folder == NULL) {
        return NULL;
    }
    if (name == NULL || name[0] == '\0') {
        const char *path = stk_arena_printf(arena, "%s/config.json", folder);
        if (path != NULL && stk_file_read(path, CONFIG_MAX, &text, &n, NULL) == 0 &&
            stk_json_parse(text, n, path, &stk_engine_limits, arena, &root, NULL) == 0) {
            name = stk_json_get_text(&root, "currentContext");
        }
        free(text);
        text = NULL;
    }
    if (name == NULL || name[0] == '\0' || strcmp(name, "default") == 0) {
        return NULL;
    }
    stk_digest_of(name, strlen(name), hex);
    const char *path = stk_arena_printf(arena, "%s/contexts/meta/%s/meta.json", folder, hex);
    const char *address = NULL;
    if (path != NULL && stk_file_read(path, CONFIG_MAX, &text, &n, NULL) == 0 &&
        stk_json_parse(text, n, path, &stk_engine_limits, arena, &root, NULL) == 0) {
        const stk_json *docker = stk_json_get(stk_json_get(&root, "Endpoints"), "docker");
        address = stk_json_get_text(docker, "Host");
    }
    free(text);
    *ret_source = stk_arena_printf(arena, "docker context '%s'", name);
    return stk_text_or(address, "");
}

static bool try_usual(search *s, stk_engine *ret)
{
    const char *run = stk_text_if_any(getenv("XDG_RUNTIME_DIR"));
    const char *home = getenv("HOME");
    const char *usual[6];
    size_t n = 0;
    if (run == NULL && geteuid() != 0) {
        run = stk_arena_printf(s->arena, "/run/user/%u", (unsigned)geteuid());
    }
    if (run != NULL) {
        usual[n++] = stk_arena_printf(s->arena, "%s/docker.sock", run);
        usual[n++] = stk_arena_printf(s->arena, "%s/podman/podman.sock", run);
    }
    if (home != NULL) {
        usual[n++] = stk_arena_printf(s->arena, "%s/.docker/run/docker.sock", home);
    }
    usual[n++] = "/var/run/docker.sock";
    usual[n++] = "/run/podman/podman.sock";
    for (size_t i = 0; i < n; i++) {
        if (usual[i] != NULL && try_one(s, usual[i], "a default socket", ret)) {
            return true;
        }
    }
    return false;
}

static bool look_for_engine(search *s, const char *socket, stk_engine *ret)
{
    static const char *const variables[] = {"DOCKER_HOST", "CONTAINER_HOST"};
    const char *source = NULL;
    if (socket != NULL && socket[0] != '\0') {
        return try_one(s, socket, "as named", ret);
    }
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *address = getenv(variables[i]);
        if (address != NULL && address[0] != '\0') {
            return try_one(s, address, variables[i], ret);
        }
    }
    const char *address = context_address(s->arena, &source);
    if (address == NULL) {
        return try_usual(s, ret);
    }
    return try_one(s, address, stk_text_or(source, "docker context"), ret);
}

int stk_engine_open(const char *socket, int cancel_fd, stk_arena *arena, stk_engine *ret,
                    stk_err *err)
{
    stk_err mine = {0};
    search s = {
        .arena = arena, .cancel_fd = cancel_fd, .tried = STK_BUF_INIT(64 << 10), .err = &mine};
    bool found = look_for_engine(&s, socket, ret);
    int rc = 0;
    if (!found && s.is_cancelled) {
        rc = stk_err_set(err, STK_E_CANCELLED, "the search for a container engine: cancelled");
    } else if (!found) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "no container engine answers: %s",
                         stk_text_or(s.tried.data, ""));
        stk_err_hint(err, "%s",
                     stk_text_or(stk_text_if_any(mine.hint),
                                 "start one (systemctl start docker, or systemctl --user start "
                                 "podman.socket), or name its socket: DOCKER_HOST=unix:///path"));
    }
    stk_buf_done(&s.tried);
    return rc;
}

/* --- what it can --- */

static bool in_path(const char *program)
{
    static const char *const folders[] = {"/usr/bin", "/usr/local/bin", "/usr/sbin", "/bin"};
    char path[256];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folders[i], program);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static const char *arch_word(const char *machine)
{
    static const char *const words[][2] = {
        {"x86_64", "amd64"}, {"aarch64", "arm64"}, {"armv7l", "arm"}, {"i686", "386"}};
    for (size_t i = 0; machine != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(machine, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return machine;
}

int stk_engine_ask(stk_engine *engine, stk_arena *arena, stk_err *err)
{
    stk_json info = {0};
    int major = 0;
    int minor = 0;
    int rc = stk_engine_get(engine, "/info", arena, &info, err);
    if (rc < 0) {
        return stk_err_context(err, "asking %s what it can", engine->socket);
    }
    engine->root = stk_json_get_text(&info, "DockerRootDir");
    engine->arch = arch_word(stk_json_get_text(&info, "Architecture"));
    const stk_json *limits = stk_json_get(&info, "MemoryLimit");
    engine->limits_memory = limits == NULL || (limits->kind == STK_JSON_BOOL && limits->truth);
    const stk_json *security = stk_json_get(&info, "SecurityOptions");
    for (uint32_t i = 0; i < stk_json_n_items(security); i++) {
        const char *word = stk_json_text(&security->items[i]);
        engine->is_rootless |= word != NULL && strstr(word, "rootless") != NULL;
    }
    if (engine->is_podman) { /* reads the specifications itself since 4.1 */
        engine->has_cdi =
            sscanf(engine->name, "Podman %d.%d", &major, &minor) == 2 && major * 100 + minor >= 401;
        return 0;
    }
    const stk_json *folders = stk_json_get(&info, "CDISpecDirs");
    engine->has_cdi = stk_json_n_items(folders) > 0;
    engine->has_nvidia = stk_json_get(stk_json_get(&info, "Runtimes"), "nvidia") != NULL ||
                         in_path("nvidia-container-runtime-hook");
    return 0;
}

int stk_engine_find(const char *socket, stk_arena *arena, stk_engine *ret, stk_err *err)
{
    STK_TRY(stk_engine_open(socket, 0, arena, ret, err));
    return stk_engine_ask(ret, arena, err);
}
