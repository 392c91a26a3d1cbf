/* A registry's API (OCI distribution): manifest, configuration, tokens. No layer is read. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "image/image_private.h"
#include "net/http.h"
#include "sys/file.h"

#define MANIFESTS                                                                                  \
    "Accept: application/vnd.oci.image.index.v1+json, "                                            \
    "application/vnd.docker.distribution.manifest.list.v2+json, "                                  \
    "application/vnd.oci.image.manifest.v1+json, "                                                 \
    "application/vnd.docker.distribution.manifest.v2+json"

enum { MAX_BODY = 8 << 20, IDLE_MS = 30000, CONNECT_MS = 10000, REDIRECTS = 5 };

static const stk_json_limits limits = {MAX_BODY, 1 << 20, STK_LIMIT_DEPTH};

typedef struct server {
    const stk_image_ref *ref;
    stk_arena *arena;
    stk_image_login login;
    const char *base;          /* "https://registry-1.docker.io" */
    const char *authorization; /* header, or NULL: not asked for yet */
} server;

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

static int refused_by_registry(const server *r, stk_http_response *response, stk_err *err)
{
    char after[32];
    const char *retry = NULL;
    if (stk_http_header(response, "Retry-After", after, sizeof after)) {
        retry = after;
    }
    return stk_image_refused(r->ref, response->status, words_of(&response->body, r->arena), retry,
                             &r->login, err);
}

/* --- tokens --- */

const char *stk_image_challenge(const char *header, const char *name, stk_arena *arena)
{
    size_t n = strlen(name);
    for (const char *at = header; (at = strcasestr(at, name)) != NULL; at += n) {
        bool begins = at > header && (at[-1] == ' ' || at[-1] == ',' || at[-1] == '\t');
        if (begins && at[n] == '=' && at[n + 1] == '"') {
            return stk_arena_dupn(arena, at + n + 2, strcspn(at + n + 2, "\""));
        }
        if (begins && at[n] == '=') {
            return stk_arena_dupn(arena, at + n + 1, strcspn(at + n + 1, ", \t"));
        }
    }
    return NULL;
}

static void put_encoded(stk_buf *out, const char *text)
{
    stk_buf_percent(out, text, strlen(text), "/:");
}

static const char *basic(const server *r)
{
    if (r->login.user == NULL) {
        return NULL;
    }
    const char *pair = stk_arena_printf(r->arena, "%s:%s", r->login.user, r->login.secret);
    if (pair == NULL) {
        return NULL;
    }
    const char *coded = stk_image_base64(pair, strlen(pair), false, r->arena);
    return coded == NULL ? NULL : stk_arena_printf(r->arena, "Authorization: Basic %s", coded);
}

static int read_token(server *r, const stk_http_response *response, stk_err *err)
{
    stk_json root;
    if (response->body.data == NULL ||
        stk_json_parse(response->body.data, response->body.len, "token", &limits, r->arena, &root,
                       NULL) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "registry %s answers the request for a token with invalid JSON",
                           r->ref->registry);
    }
    const char *token = stk_json_get_text(&root, "token");
    if (token == NULL) {
        token = stk_json_get_text(&root, "access_token");
    }
    if (token == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "registry %s answers the request for a token without one",
                           r->ref->registry);
    }
    r->authorization = stk_arena_printf(r->arena, "Authorization: Bearer %s", token);
    return stk_err_need(r->authorization, "for a token", err);
}

/* GET with Basic credentials, or the exchange of an identity token. */
static int fetch_token(server *r, const char *header, stk_err *err)
{
    const char *realm = stk_image_challenge(header, "realm", r->arena);
    const char *service = stk_image_challenge(header, "service", r->arena);
    const char *scope = stk_image_challenge(header, "scope", r->arena);
    STK_BUF_AUTO query = STK_BUF_INIT(64 << 10);
    if (realm == NULL) {
        return stk_err_set(
            err, STK_E_PROTOCOL,
            "registry %s asks for a token, but doesn't name the server that issues it",
            r->ref->registry);
    }
    bool exchange = r->login.token != NULL;
    if (exchange) {
        stk_buf_text(&query, "grant_type=refresh_token&client_id=stoker&");
    }
    stk_buf_text(&query, "service=");
    put_encoded(&query, stk_text_or(service, ""));
    stk_buf_text(&query, "&scope=");
    if (scope != NULL) {
        put_encoded(&query, scope);
    } else {
        stk_buf_printf(&query, "repository:%s:pull", r->ref->repository);
    }
    if (exchange) {
        stk_buf_text(&query, "&refresh_token=");
        put_encoded(&query, r->login.token);
    }
    STK_TRY(stk_buf_check(&query, err));
    static const char *const form[] = {"Content-Type: application/x-www-form-urlencoded", NULL};
    const char *const credentials[] = {basic(r), NULL};
    stk_http_request request = {
        .connect_ms = CONNECT_MS, .idle_ms = IDLE_MS, .redirects = REDIRECTS};
    if (exchange) {
        request.method = "POST";
        request.url = realm;
        request.headers = form;
        request.body = query.data;
        request.body_len = query.len;
    } else {
        const char *joint = strchr(realm, '?') == NULL ? "?" : "&";
        request.method = "GET";
        request.url = stk_arena_printf(r->arena, "%s%s%s", realm, joint, query.data);
        request.headers = credentials;
    }
    STK_TRY(stk_err_need(request.url, "for a token", err));
    STK_HTTP_RESPONSE_AUTO response = {.body = STK_BUF_INIT(MAX_BODY)};
    STK_TRY(stk_http_send(&request, &response, err));
    if (response.status == 200) {
        return read_token(r, &response, err);
    }
    return refused_by_registry(r, &response, err);
}

static int authorize(server *r, const stk_http_response *refusal, stk_err *err)
{
    char header[2048];
    if (!stk_http_header(refusal, "WWW-Authenticate", header, sizeof header)) {
        return STK_E_ENV;
    }
    if (strncasecmp(header, "Bearer", 6) == 0) {
        return fetch_token(r, header, err);
    }
    r->authorization = NULL;
    if (strncasecmp(header, "Basic", 5) == 0) {
        r->authorization = basic(r);
    }
    return r->authorization == NULL ? STK_E_ENV : 0;
}

/* --- asking --- */

/* Any answer but 200 is an error. `response` is done by the caller. */
static int ask_registry(server *r, const char *method, const char *what, const char *which,
                        stk_http_response *response, stk_err *err)
{
    const char *url =
        stk_arena_printf(r->arena, "%s/v2/%s/%s/%s", r->base, r->ref->repository, what, which);
    if (url == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for a request to a registry");
    }
    for (int tries = 0;; tries++) {
        const char *const headers[] = {MANIFESTS, r->authorization, NULL};
        const stk_http_request request = {.method = method,
                                          .url = url,
                                          .headers = headers,
                                          .connect_ms = CONNECT_MS,
                                          .idle_ms = IDLE_MS,
                                          .redirects = REDIRECTS};
        *response = (stk_http_response){.body = STK_BUF_INIT(MAX_BODY)};
        STK_TRY(stk_http_send(&request, response, err));
        if (response->status == 200) {
            return 0;
        }
        stk_err why = {0};
        if (response->status != 401 || tries > 0 || authorize(r, response, &why) < 0) {
            if (why.code != 0) {
                if (err != NULL) {
                    *err = why;
                }
                return why.code;
            }
            return refused_by_registry(r, response, err);
        }
        stk_http_done(response);
    }
}

static int open_registry(const stk_image_ref *ref, stk_arena *arena, server *ret, stk_err *err)
{
    const char *where = stk_arena_printf(arena, "%s/%s", ref->registry, ref->repository);
    *ret = (server){.ref = ref, .arena = arena};
    STK_TRY(stk_err_need(where, "to ask a registry", err));
    return stk_image_login_find(where, arena, &ret->login, err);
}

/* The manifest by tag or digest, over TLS or, where that is said to be fine, without. */
static int ask_manifest(server *r, const char *method, stk_http_response *response, stk_err *err)
{
    static const char *const schemes[] = {"https", "http"};
    const char *host = r->ref->registry;
    if (strcmp(host, "docker.io") == 0) {
        host = "registry-1.docker.io";
    }
    const char *which = stk_text_or(r->ref->digest, r->ref->tag);
    bool loopback = is_loopback(host);
    bool plain = loopback || is_insecure(r->ref->registry, r->arena);
    r->base = stk_arena_printf(r->arena, "%s://%s", schemes[loopback], host);
    STK_TRY(stk_err_need(r->base, "to ask a registry", err));
    int rc = ask_registry(r, method, "manifests", which, response, err);
    if (rc == STK_E_ENV && response->status == 0 && plain) {
        stk_err second = {0};
        r->base = stk_arena_printf(r->arena, "%s://%s", schemes[!loopback], host);
        STK_TRY(stk_err_need(r->base, "to ask a registry", err));
        stk_http_done(response);
        int again = ask_registry(r, method, "manifests", which, response, &second);
        if (again == 0 || response->status != 0) {
            if (err != NULL) {
                *err = second;
            }
            return again;
        }
    }
    if (rc == STK_E_ENV && response->status == 0) {
        stk_err_context(err, "image %s", stk_image_text(r->ref, r->arena));
        stk_err_hint(err, STK_IMAGE_UNREACHED);
    }
    return rc;
}

/* --- manifests --- */

const char *stk_image_pick(const stk_json *index, const char *arch, stk_arena *arena,
                           const char **have)
{
    const stk_json *list = stk_json_get(index, "manifests");
    STK_BUF_AUTO all = STK_BUF_INIT(4096);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *platform = stk_json_get(&list->items[i], "platform");
        const char *os = stk_json_get_text(platform, "os");
        const char *its = stk_json_get_text(platform, "architecture");
        const char *digest = stk_json_get_text(&list->items[i], "digest");
        if (os == NULL || its == NULL || digest == NULL || strcmp(os, "unknown") == 0) {
            continue; /* an attestation */
        }
        if (strcmp(os, "linux") == 0 && strcmp(its, arch) == 0) {
            return digest;
        }
        stk_buf_separate(&all, ", ");
        stk_buf_printf(&all, "%s/%s", os, its);
    }
    *have = stk_text_or(stk_arena_dup(arena, all.data), "none");
    return NULL;
}

static int parse_answer(const server *r, const stk_http_response *response, const char *what,
                        stk_json *ret, stk_err *err)
{
    const char *text =
        stk_arena_dupn(r->arena, stk_text_or(response->body.data, ""), response->body.len);
    if (text == NULL ||
        stk_json_parse(text, response->body.len, what, &limits, r->arena, ret, NULL) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s: the %s of %s is invalid JSON",
                           r->ref->registry, what, r->ref->repository);
    }
    return 0;
}

static const char *digest_in_answer(const server *r, const stk_http_response *response)
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

/* The manifest of this architecture: of an index the one in it. */
static int get_manifest(server *r, const char *arch, stk_json *ret, const char **ret_digest,
                        stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO response = {0};
    STK_TRY(ask_manifest(r, "GET", &response, err));
    STK_TRY(parse_answer(r, &response, "manifest", ret, err));
    *ret_digest = digest_in_answer(r, &response);
    if (stk_json_get(ret, "manifests") == NULL) {
        return 0;
    }
    const char *have = "";
    const char *digest = stk_image_pick(ret, arch, r->arena, &have);
    if (digest == NULL) {
        stk_err_set(err, STK_E_RESOURCES, "image %s has no variant for linux/%s; it has: %s",
                    stk_image_text(r->ref, r->arena), arch, have);
        stk_err_hint(err, "use an image built for this architecture");
        return STK_E_RESOURCES;
    }
    stk_http_done(&response);
    STK_TRY(ask_registry(r, "GET", "manifests", digest, &response, err));
    return parse_answer(r, &response, "manifest", ret, err);
}

static void read_layers(const stk_json *manifest, stk_arena *arena, stk_image_config *ret)
{
    const stk_json *list = stk_json_get(manifest, "layers");
    uint32_t n = 0;
    if (stk_json_is_list(list)) {
        n = list->n;
    }
    const char **digests = stk_arena_array(arena, (size_t)n + 1, sizeof *digests);
    int64_t total = 0;
    bool known = n > 0;
    for (uint32_t i = 0; digests != NULL && i < n; i++) {
        int64_t size = -1;
        const char *digest = stk_json_get_text(&list->items[i], "digest");
        known = stk_json_int(stk_json_get(&list->items[i], "size"), &size) && size >= 0 && known;
        digests[i] = stk_text_or(digest, "");
        total += size;
    }
    ret->layers = digests;
    ret->size_bytes = known ? total : -1;
}

static int get_config(server *r, const stk_json *manifest, stk_image_config *ret, stk_err *err)
{
    const stk_json *config = stk_json_get(manifest, "config");
    const char *digest = stk_json_get_text(config, "digest");
    char hex[STK_DIGEST_HEX + 1] = "";
    STK_HTTP_RESPONSE_AUTO response = {0};
    stk_json root;
    if (digest == NULL || !stk_image_is_id(digest)) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "image %s has a manifest without a configuration (an old schema?); push "
                           "it again with a current tool",
                           stk_image_text(r->ref, r->arena));
    }
    STK_TRY(ask_registry(r, "GET", "blobs", digest, &response, err));
    stk_digest_of(stk_text_or(response.body.data, ""), response.body.len, hex);
    if (strncmp(digest, "sha256:", 7) == 0 && strcmp(hex, digest + 7) != 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s sent other data than %s of %s",
                           r->ref->registry, digest, r->ref->repository);
    }
    STK_TRY(parse_answer(r, &response, "configuration", &root, err));
    ret->id = digest;
    return stk_image_config_read(&root, stk_json_get(&root, "config"), r->arena, ret, err);
}

int stk_image_remote(const stk_image_ref *ref, const char *arch, stk_arena *arena,
                     stk_image_config *ret, stk_err *err)
{
    server r;
    stk_json manifest;
    const char *digest = NULL;
    stk_image_config config = {.size_bytes = -1};
    STK_TRY(open_registry(ref, arena, &r, err));
    STK_TRY(get_manifest(&r, arch, &manifest, &digest, err));
    STK_TRY(get_config(&r, &manifest, &config, err));
    read_layers(&manifest, arena, &config);
    config.digest = digest;
    *ret = config;
    return 0;
}

int stk_image_remote_digest(const stk_image_ref *ref, stk_arena *arena, const char **ret,
                            stk_err *err)
{
    server r;
    STK_HTTP_RESPONSE_AUTO response = {0};
    STK_TRY(open_registry(ref, arena, &r, err));
    STK_TRY(ask_manifest(&r, "HEAD", &response, err));
    *ret = digest_in_answer(&r, &response);
    if (*ret == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "the answer of registry %s has no digest of %s",
                           ref->registry, stk_image_text(ref, arena));
    }
    return 0;
}
