/* How a registry is reached: plain or TLS, with which certificates, as whom. */
#include "image/image_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "sys/dir.h"
#include "sys/file.h"

#define MANIFESTS                                                                                  \
    "Accept: application/vnd.oci.image.index.v1+json, "                                            \
    "application/vnd.docker.distribution.manifest.list.v2+json, "                                  \
    "application/vnd.oci.image.manifest.v1+json, "                                                 \
    "application/vnd.docker.distribution.manifest.v2+json"

enum { IDLE_MS = 30000, CONNECT_MS = 10000, REDIRECTS = 5 };

static const stk_json_limits limits = {STK_IMAGE_MAX_BODY, 1 << 20, STK_LIMIT_DEPTH};

/* --- plain or TLS --- */

static bool is_loopback(const char *registry)
{
    size_t n = strcspn(registry, ":");
    return (n == 9 && strncmp(registry, "localhost", 9) == 0) ||
           strncmp(registry, "127.", 4) == 0 || strncmp(registry, "[::1]", 5) == 0;
}

bool stk_image_conf_insecure(const char *conf, const char *registry)
{
    bool mine = false, insecure = false;
    for (const char *line = conf; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *at = line + strspn(line, " \t");
        char value[256];
        if (*at == '[') {
            if (mine && insecure) {
                return true;
            }
            mine = insecure = false;
        } else if (sscanf(at, "location = \"%255[^\"]\"", value) == 1 ||
                   sscanf(at, "location=\"%255[^\"]\"", value) == 1 ||
                   sscanf(at, "prefix = \"%255[^\"]\"", value) == 1) {
            mine = mine || strcmp(value, registry) == 0;
        } else if (strncmp(at, "insecure", 8) == 0) {
            const char *is = at + strcspn(at, "=\n");
            insecure = *is == '=' && strncmp(is + 1 + strspn(is + 1, " \t"), "true", 4) == 0;
        }
        line += n + (line[n] == '\n');
    }
    return mine && insecure;
}

static bool is_insecure(const char *registry, stk_arena *arena)
{
    const char *home = getenv("HOME"), *named = getenv("CONTAINERS_REGISTRIES_CONF");
    const char *own =
        stk_arena_printf(arena, "%s/.config/containers/registries.conf", stk_text_or(home, ""));
    const char *const files[] = {named, own, "/etc/containers/registries.conf"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        STK_TEXT_AUTO text = NULL;
        size_t len = 0;
        if (files[i] != NULL && stk_file_read(files[i], 1 << 20, &text, &len, NULL) == 0) {
            return stk_image_conf_insecure(text, registry);
        }
    }
    return false;
}

/* The files of one certs.d folder: *.crt are authorities, NAME.cert and NAME.key our own. */
static bool read_certificates(const char *folder, stk_arena *arena, stk_http_tls *ret)
{
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read_if(folder, &dir, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < dir.n; i++) {
        const char *end = strrchr(dir.items[i].name, '.');
        const char *path = stk_arena_printf(arena, "%s/%s", folder, dir.items[i].name);
        if (end == NULL || path == NULL) {
            continue;
        }
        if (strcmp(end, ".crt") == 0) {
            ret->ca_file = path;
        } else if (strcmp(end, ".cert") == 0) {
            ret->cert_file = path;
        } else if (strcmp(end, ".key") == 0) {
            ret->key_file = path;
        }
    }
    return ret->ca_file != NULL || (ret->cert_file != NULL && ret->key_file != NULL);
}

const stk_http_tls *stk_image_server_tls(const char *url, stk_arena *arena)
{
    const char *home = stk_text_or(getenv("HOME"), ""), *scheme = strstr(url, "://");
    const char *from = scheme == NULL ? url : scheme + 3;
    const char *host = stk_arena_dupn(arena, from, strcspn(from, "/"));
    const char *const tops[][2] = {{home, "/.config/containers"},
                                   {home, "/.config/docker"},
                                   {"", "/etc/containers"},
                                   {"", "/etc/docker"}};
    stk_http_tls *tls = stk_arena_alloc(arena, sizeof *tls);
    for (size_t i = 0; tls != NULL && host != NULL && i < sizeof tops / sizeof tops[0]; i++) {
        const char *folder =
            stk_arena_printf(arena, "%s%s/certs.d/%s", tops[i][0], tops[i][1], host);
        *tls = (stk_http_tls){0};
        if (folder != NULL && read_certificates(folder, arena, tls)) {
            return tls;
        }
    }
    return NULL;
}

/* --- what it says --- */

/* {"errors": [{"code", "message"}]} */
static const char *words_of(const stk_buf *body, stk_arena *arena)
{
    stk_json root;
    if (body->data == NULL ||
        stk_json_parse(body->data, body->len, "answer", &limits, arena, &root, NULL) < 0) {
        return NULL;
    }
    const stk_json *errors = stk_json_get(&root, "errors");
    const char *message = NULL;
    if (stk_json_n_items(errors) > 0) {
        message = stk_json_get_text(&errors->items[0], "message");
    }
    const char *details = stk_json_get_text(&root, "details");
    return stk_text_or(message, details);
}

int stk_image_server_refused(const stk_image_server *r, const stk_http_response *response,
                             stk_err *err)
{
    char after[32];
    const char *retry = NULL;
    if (stk_http_header(response, "Retry-After", after, sizeof after)) {
        retry = after;
    }
    return stk_image_refused(r->ref, response->status, words_of(&response->body, r->arena), retry,
                             &r->login, r->pushes, err);
}

const char *stk_image_server_digest(const stk_image_server *r, const stk_http_response *response)
{
    char digest[160], hex[STK_DIGEST_HEX + 1];
    if (stk_http_header(response, "Docker-Content-Digest", digest, sizeof digest) &&
        stk_image_is_id(digest)) {
        return stk_arena_dup(r->arena, digest);
    }
    if (response->body.data == NULL) {
        return NULL;
    }
    stk_digest_of(response->body.data, response->body.len, hex);
    return stk_arena_printf(r->arena, "sha256:%s", hex);
}

/* --- asking --- */

/* The address of a question. The registry's own URLs may be of another host, which gets no
 * credentials. */
static const char *address(const stk_image_server *r, const char *path, bool *ret_is_ours)
{
    size_t n = strlen(r->base);
    *ret_is_ours = true;
    if (*path == '/') {
        return stk_arena_printf(r->arena, "%s%s", r->base, path);
    }
    if (strstr(path, "://") != NULL) {
        *ret_is_ours = strncmp(path, r->base, n) == 0 && (path[n] == '/' || path[n] == '\0');
        return path;
    }
    return stk_arena_printf(r->arena, "%s/v2/%s/%s", r->base, r->ref->repository, path);
}

static bool is_fine(int status, int also)
{
    return status == 200 || status == 201 || status == 202 || status == also;
}

static int ask_at_base(stk_image_server *r, const stk_image_question *q, int also,
                       stk_http_response *response, stk_err *err)
{
    bool is_ours = false;
    const char *url = address(r, q->path, &is_ours);
    STK_TRY(stk_err_need(url, "for a request to a registry", err));
    const stk_http_tls *tls = stk_image_server_tls(url, r->arena);
    const char *type = MANIFESTS;
    if (q->type != NULL) {
        type = stk_arena_printf(r->arena, "Content-Type: %s", q->type);
        STK_TRY(stk_err_need(type, "for a request to a registry", err));
    }
    for (int tries = 0;; tries++) {
        const char *const headers[] = {type, is_ours ? r->authorization : NULL, NULL};
        const stk_http_request request = {.method = q->method,
                                          .url = url,
                                          .headers = headers,
                                          .body = q->body,
                                          .body_len = q->body_len,
                                          .session = r->session,
                                          .tls = tls,
                                          .connect_ms = CONNECT_MS,
                                          .idle_ms = IDLE_MS,
                                          .redirects = q->body == NULL ? REDIRECTS : 0};
        *response = (stk_http_response){.body = STK_BUF_INIT(STK_IMAGE_MAX_BODY)};
        STK_TRY(stk_http_send(&request, response, err));
        if (is_fine(response->status, also)) {
            return 0;
        }
        stk_err why = {0};
        if (response->status != 401 || tries > 0 || !is_ours ||
            stk_image_server_authorize(r, response, &why) < 0) {
            if (why.code != 0) {
                if (err != NULL) {
                    *err = why;
                }
                return why.code;
            }
            return stk_image_server_refused(r, response, err);
        }
        stk_http_done(response);
    }
}

int stk_image_server_open(const stk_image_ref *ref, stk_arena *arena, stk_image_server *ret,
                          stk_err *err)
{
    const char *where = stk_arena_printf(arena, "%s/%s", ref->registry, ref->repository);
    *ret = (stk_image_server){.ref = ref, .arena = arena};
    STK_TRY(stk_err_need(where, "to ask a registry", err));
    return stk_image_login_find(where, arena, &ret->login, err);
}

/* The first question finds out whether the registry speaks TLS. */
static int reach_registry(stk_image_server *r, const stk_image_question *q, int also,
                          stk_http_response *response, stk_err *err)
{
    static const char *const schemes[] = {"https", "http"};
    const char *host = r->ref->registry;
    if (strcmp(host, "docker.io") == 0) {
        host = "registry-1.docker.io";
    }
    bool loopback = is_loopback(host);
    bool plain = loopback || is_insecure(r->ref->registry, r->arena);
    int rc = 0;
    bool wants_tls = false;
    for (int i = 0; i < 1 + plain; i++) {
        stk_err why = {0};
        r->base = stk_arena_printf(r->arena, "%s://%s", schemes[loopback != (i == 1)], host);
        STK_TRY(stk_err_need(r->base, "to ask a registry", err));
        stk_http_done(response);
        int one = ask_at_base(r, q, also, response, &why);
        bool is_answer = one != STK_E_ENV || response->status != 0;
        if (i == 0 || is_answer || wants_tls) { /* else the first one's reason is the better */
            rc = one;
            if (err != NULL) {
                *err = why;
            }
        }
        /* what servers with TLS say to plain HTTP; an answer to HEAD has no words */
        wants_tls = i == 0 && loopback && response->status == 400;
        if (is_answer && !wants_tls) {
            return rc;
        }
    }
    if (rc == STK_E_ENV && response->status == 0) {
        r->base = NULL;
        stk_err_context(err, "image %s", stk_image_text(r->ref, r->arena));
        if (err != NULL && strstr(err->text, "certificate") != NULL) {
            stk_err_hint(err,
                         "put its authority into ~/.config/containers/certs.d/%s/ca.crt, or "
                         "name a file with all authorities in SSL_CERT_FILE",
                         host);
        } else {
            stk_err_hint(err, STK_IMAGE_UNREACHED);
        }
    }
    return rc;
}

int stk_image_server_ask(stk_image_server *r, const stk_image_question *q, int also,
                         stk_http_response *response, stk_err *err)
{
    if (r->base == NULL) {
        return reach_registry(r, q, also, response, err);
    }
    return ask_at_base(r, q, also, response, err);
}
