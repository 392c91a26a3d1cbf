/* Credentials for a registry, where Docker and Podman keep them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_private.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { MAX_FILE = 4 << 20, MAX_ANSWER = 64 << 10, HELPER_MS = 30000 };

const char *stk_image_base64(const char *text, size_t n, bool url_safe, stk_arena *arena)
{
    char *out = NULL;
    if (n <= INT_MAX / 2) {
        out = stk_arena_alloc(arena, 4 * ((n + 2) / 3) + 1);
    }
    if (out == NULL) {
        return NULL;
    }
    (void)EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
    for (char *c = out; url_safe && *c != '\0'; c++) {
        if (*c == '+') {
            *c = '-';
        } else if (*c == '/') {
            *c = '_';
        }
    }
    return out;
}

static const char *decode_base64(const char *text, stk_arena *arena)
{
    size_t n = strlen(text);
    if (n % 4 != 0 || n == 0) {
        return NULL;
    }
    char *out = stk_arena_alloc(arena, n);
    if (out == NULL) {
        return NULL;
    }
    int len = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
    for (size_t i = n; len > 0 && i > 0 && text[i - 1] == '='; i--) {
        len--;
    }
    if (len < 0) {
        return NULL;
    }
    out[len] = '\0';
    return out;
}

/* --- helpers --- */

/* Asks the helper `program` for the login of `server`, within HELPER_MS. */
static int ask_program(const char *program, const char *server, stk_buf *out, int *ret_status,
                       stk_err *err)
{
    const char *const argv[] = {program, "get", NULL};
    STK_FD_AUTO in = memfd_create("question", MFD_CLOEXEC);
    if (in < 0 || stk_file_write_all(in, server, strlen(server)) < 0 ||
        lseek(in, 0, SEEK_SET) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "asking %s", program);
    }
    const stk_spawn spawn = {.argv = argv, .stdin_fd = in, .stderr_fd = -1};
    return stk_image_capture(&spawn, HELPER_MS, out, ret_status, err);
}

/* What is wrong with credentials is the environment's fault, whatever the cause. */
static int as_env(stk_err *err)
{
    if (err != NULL) {
        err->code = STK_E_ENV;
    }
    return STK_E_ENV;
}

static int ask_helper(const char *name, const char *server, const char *file, stk_arena *arena,
                      stk_image_login *ret, stk_err *err)
{
    static const stk_json_limits limits = {MAX_ANSWER, 100, 8};
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_ANSWER);
    const char *program = stk_arena_printf(arena, "docker-credential-%s", name);
    int status = 0;
    stk_json root;
    STK_TRY(stk_err_if_null(program, err));
    if (ask_program(program, server, &out, &status, err) < 0) {
        stk_err_context(err, "the credentials of %s (%s)", server, file);
        stk_err_hint(err, "install %s, or remove it from %s", program, file);
        return as_env(err);
    }
    if (status != 0 && out.data != NULL && strstr(out.data, "not found") != NULL) {
        return 0; /* it has none */
    }
    if (status != 0) {
        return stk_err_set(err, STK_E_ENV, "%s has no credentials for %s: %.200s", program, server,
                           stk_text_or(out.data, "no message"));
    }
    if (stk_json_parse(stk_text_or(out.data, ""), out.len, program, &limits, arena, &root, NULL) <
        0) {
        return stk_err_set(err, STK_E_ENV,
                           "%s answers the request for the credentials of %s with invalid JSON",
                           program, server);
    }
    const char *user = stk_json_get_text(&root, "Username");
    const char *secret = stk_json_get_text(&root, "Secret");
    if (user == NULL || secret == NULL) {
        return 0;
    }
    if (strcmp(user, "<token>") == 0) {
        *ret = (stk_image_login){.token = secret, .source = program};
    } else {
        *ret = (stk_image_login){.user = user, .secret = secret, .source = program};
    }
    return 0;
}

/* --- files --- */

/* "https://index.docker.io/v1/" → "docker.io"; "https://x/" → "x". */
static const char *normal(const char *key, stk_arena *arena)
{
    const char *scheme = strstr(key, "://");
    const char *from = key;
    if (scheme != NULL) {
        from = scheme + 3;
    }
    size_t n = strlen(from);
    while (n > 0 && from[n - 1] == '/') {
        n--;
    }
    for (int v = 1; v <= 2; v++) { /* older clients wrote this behind the host */
        char end[4];
        (void)snprintf(end, sizeof end, "/v%d", v);
        if (n > 3 && strncmp(from + n - 3, end, 3) == 0) {
            n -= 3;
        }
    }
    const char *name = stk_arena_dupn(arena, from, n);
    if (name != NULL &&
        (strcmp(name, "index.docker.io") == 0 || strcmp(name, "registry-1.docker.io") == 0)) {
        return "docker.io";
    }
    return name;
}

/* Does this key speak for `where` ("host/a/b")? As many characters as fit; 0: it doesn't. */
static size_t speaks_for(const char *key, const char *where, stk_arena *arena)
{
    const char *name = normal(key, arena);
    size_t n = strlen(stk_text_or(name, ""));
    bool speaks = n > 0 && strncmp(name, where, n) == 0 && (where[n] == '\0' || where[n] == '/');
    return speaks ? n : 0;
}

static void read_entry(const stk_json *entry, const char *file, stk_arena *arena,
                       stk_image_login *ret)
{
    const char *auth = stk_json_get_text(entry, "auth");
    const char *token = stk_json_get_text(entry, "identitytoken");
    const char *user = stk_json_get_text(entry, "username");
    const char *secret = stk_json_get_text(entry, "password");
    const char *pair = decode_base64(stk_text_or(auth, ""), arena);
    const char *colon = strchr(stk_text_or(pair, ""), ':');
    if (colon != NULL) {
        user = stk_arena_dupn(arena, pair, (size_t)(colon - pair));
        secret = colon + 1;
    }
    if (token != NULL && *token != '\0') {
        *ret = (stk_image_login){.token = token, .source = file};
    } else if (user != NULL && secret != NULL) {
        *ret = (stk_image_login){user, secret, NULL, file};
    }
}

static const stk_json *best(const stk_json *map, const char *where, stk_arena *arena,
                            const char **ret_key)
{
    const stk_json *found = NULL;
    size_t most = 0;
    for (uint32_t i = 0; i < stk_json_n_members(map); i++) {
        size_t n = speaks_for(stk_json_key(map, i)->text, where, arena);
        if (n > most) {
            most = n;
            found = stk_json_value(map, i);
            *ret_key = stk_json_key(map, i)->text;
        }
    }
    return found;
}

static int look_in(const char *file, const char *where, stk_arena *arena, stk_image_login *ret,
                   stk_err *err)
{
    static const stk_json_limits limits = {MAX_FILE, 100000, STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    const char *key = where;
    if (stk_file_read(file, MAX_FILE, &text, &len, NULL) < 0) {
        return 0; /* most people have none */
    }
    if (stk_json_parse(text, len, file, &limits, arena, &root, err) < 0) {
        return as_env(err);
    }
    const stk_json *helper = best(stk_json_get(&root, "credHelpers"), where, arena, &key);
    const char *store = stk_json_get_text(&root, "credsStore");
    const stk_json *entry = best(stk_json_get(&root, "auths"), where, arena, &key);
    if (helper != NULL && stk_json_text(helper) != NULL) {
        return ask_helper(stk_json_text(helper), key, file, arena, ret, err);
    }
    if (store != NULL && *store != '\0') {
        const char *host = stk_arena_dupn(arena, where, strcspn(where, "/"));
        bool hub = host != NULL && strcmp(host, "docker.io") == 0;
        int rc =
            ask_helper(store, hub ? "https://index.docker.io/v1/" : host, file, arena, ret, err);
        if (rc < 0 || ret->source != NULL) {
            return rc;
        }
    }
    if (entry != NULL) {
        read_entry(entry, file, arena, ret);
    }
    return 0;
}

/* A file in the folder that a variable names, or else in another one. */
static const char *in_folder(const char *variable, const char *file, const char *folder,
                             const char *its_file, stk_arena *arena)
{
    const char *named = getenv(variable);
    if (named != NULL) {
        return stk_arena_printf(arena, "%s%s", named, file);
    }
    return stk_arena_printf(arena, "%s%s", folder, its_file);
}

int stk_image_login_find(const char *where, stk_arena *arena, stk_image_login *ret, stk_err *err)
{
    const char *home = stk_text_or(getenv("HOME"), "");
    char run[32];
    (void)snprintf(run, sizeof run, "/run/containers/%d", (int)getuid());
    const char *const files[] = {
        getenv("REGISTRY_AUTH_FILE"),
        in_folder("DOCKER_CONFIG", "/config.json", home, "/.docker/config.json", arena),
        in_folder("XDG_RUNTIME_DIR", "/containers/auth.json", run, "/auth.json", arena),
        in_folder("XDG_CONFIG_HOME", "/containers/auth.json", home, "/.config/containers/auth.json",
                  arena)};
    *ret = (stk_image_login){0};
    for (size_t i = 0; ret->source == NULL && i < sizeof files / sizeof files[0]; i++) {
        if (files[i] != NULL) {
            STK_TRY(look_in(stk_arena_dup(arena, files[i]), where, arena, ret, err));
        }
    }
    if (ret->source == NULL) {
        return stk_image_cloud_login(where, arena, ret, err);
    }
    return 0;
}

int stk_image_auth(const char *registry, stk_arena *arena, const char **ret, stk_err *err)
{
    stk_image_login login;
    STK_BUF_AUTO json = STK_BUF_INIT(MAX_ANSWER);
    *ret = NULL;
    STK_TRY(stk_image_login_find(registry, arena, &login, err));
    if (login.source == NULL) {
        return 0;
    }
    const char *host = stk_arena_dupn(arena, registry, strcspn(registry, "/"));
    stk_json_open(&json, NULL, '{');
    stk_json_put_text(&json, "serveraddress", stk_text_or(host, registry));
    if (login.token != NULL) {
        stk_json_put_text(&json, "identitytoken", login.token);
    } else {
        stk_json_put_text(&json, "username", login.user);
        stk_json_put_text(&json, "password", login.secret);
    }
    stk_json_close(&json, '}');
    if (!json.failed) {
        *ret = stk_image_base64(json.data, json.len, true, arena);
    }
    return stk_err_need(*ret, "for credentials", err);
}
