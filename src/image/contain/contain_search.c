/* Finds the socket of this host's container engine, and the engine's features. */
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
#include "sys/file.h"

/* API_MINOR: the newest API version that our calls support; for an older engine we use the engine's
 * own. */
enum { API_MINOR = 47, CONFIG_MAX = 4 << 20 };

typedef struct search {
    stk_arena *arena;
    int cancel_fd;
    bool is_cancelled;
    stk_buf tried; /* "path (reason)", for the error */
    stk_err *err;
} search;

/* The path in "unix:///x" or "/x"; NULL: another kind of address. */
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
    int rc = stk_engine_ping(path, s->cancel_fd, &r, err);
    if (rc == 0 && r.status != 200) {
        rc = stk_err_set(err, STK_E_ENV, "it answers %d to /_ping", r.status);
    } else if (rc == 0 && (!stk_http_header(&r, "Api-Version", value, sizeof value) ||
                           sscanf(value, "1.%d", &minor) != 1)) {
        rc = stk_err_set(err, STK_E_ENV, "what answers isn't a container engine");
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
        stk_buf_printf(&s->tried, "%s (%s): it must be a Unix socket of this host", address,
                       source);
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
                                 "podman.socket), or set DOCKER_HOST=unix:///path to its socket"));
    }
    stk_buf_done(&s.tried);
    return rc;
}

/* --- features --- */

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
        return stk_err_context(err, "asking %s for its abilities", engine->socket);
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
    if (engine->is_podman) { /* reads CDI specifications itself since 4.1 */
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
