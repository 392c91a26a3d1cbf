/* A registry's API (OCI distribution): manifest, configuration, tokens. No layer is read. */
#include <ctype.h>
#include <fnmatch.h>
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
            const char *is = memchr(at, '=', n - (size_t)(at - line));
            is = is == NULL ? "" : is + 1;
            is += strspn(is, " \t");
            insecure = strncmp(is, "true", 4) == 0;
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

static const char *way_in(const char *registry, stk_arena *arena)
{
    static const struct {
        const char *pattern, *before, *after;
    } ways[] = {
#define X(pattern, before, after) {pattern, before, after},
#include "tbl/registries.def"
#undef X
    };
    size_t i = 0;
    while (fnmatch(ways[i].pattern, registry, 0) != 0) { /* the last fits all */
        i++;
    }
    return stk_arena_printf(arena, "%s%s%s", ways[i].before,
                            strcmp(registry, "docker.io") == 0 ? "" : registry, ways[i].after);
}

int stk_image_refused(const stk_image_ref *ref, int status, const char *words, const char *retry,
                      const stk_image_login *login, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *name = arena == NULL ? ref->repository : stk_image_text(ref, arena);
    const char *said = words != NULL && *words != '\0' ? words : NULL;
    int code = STK_E_ENV;
    if (status == 401 || status == 403) {
        stk_err_set(err, code, "registry %s refuses image %s (%d%s%s): %s%s", ref->registry, name,
                    status, said != NULL ? ", " : "", stk_text_or(said, ""),
                    login->source == NULL ? "no credentials for it were found, or it doesn't exist"
                                          : "the credentials are not accepted: ",
                    stk_text_or(login->source, ""));
        stk_err_hint(err, "%s", arena == NULL ? "log in" : way_in(ref->registry, arena));
    } else if (status == 404) {
        code = STK_E_NOT_FOUND;
        stk_err_set(err, code, "registry %s has no image %s%s%s%s", ref->registry, name,
                    said != NULL ? " (" : "", stk_text_or(said, ""), said != NULL ? ")" : "");
        stk_err_hint(err, "look at the repository's tags, or correct the image's name");
    } else if (status == 429) {
        code = STK_E_BUSY;
        stk_err_set(err, code, "registry %s has had enough requests from here (429%s%s%s%s)",
                    ref->registry, said != NULL ? ", " : "", stk_text_or(said, ""),
                    retry != NULL ? "; again in s: " : "", stk_text_or(retry, ""));
        stk_err_hint(err, "%s; or name a mirror in image_map of stoker.yaml",
                     login->source == NULL ? "log in: known users may ask more often" : "wait");
    } else {
        stk_err_set(err, code, "registry %s answered %d%s%s when asked for image %s", ref->registry,
                    status, said != NULL ? ", " : "", stk_text_or(said, ""), name);
        stk_err_hint(err, status >= 500 ? "the registry is in trouble; try again later"
                                        : "look at the image's name");
    }
    return code;
}

/* {"errors": [{"code", "message"}]} */
static const char *words_of(const stk_buf *body, stk_arena *arena)
{
    stk_json root;
    if (body->data == NULL ||
        stk_json_parse(body->data, body->len, "answer", &limits, arena, &root, NULL) < 0) {
        return NULL;
    }
    const stk_json *errors = stk_json_get(&root, "errors");
    const stk_json *first =
        errors != NULL && errors->kind == STK_JSON_LIST && errors->n > 0 ? &errors->items[0] : NULL;
    const char *message = first == NULL ? NULL : stk_json_text(stk_json_get(first, "message"));
    const char *details = stk_json_text(stk_json_get(&root, "details"));
    return stk_text_or(message, details);
}

static int refused(const server *r, stk_http_response *response, stk_err *err)
{
    char retry[32];
    bool has = stk_http_header(response, "Retry-After", retry, sizeof retry);
    return stk_image_refused(r->ref, response->status, words_of(&response->body, r->arena),
                             has ? retry : NULL, &r->login, err);
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
    for (const char *c = text; *c != '\0'; c++) {
        bool plain = isalnum((unsigned char)*c) || strchr("-._~/:", *c) != NULL;
        if (plain) {
            stk_buf_char(out, *c);
        } else {
            stk_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
        }
    }
}

static const char *basic(const server *r)
{
    const char *pair = r->login.user == NULL
                           ? NULL
                           : stk_arena_printf(r->arena, "%s:%s", r->login.user, r->login.secret);
    const char *coded = pair == NULL ? NULL : stk_image_base64(pair, strlen(pair), false, r->arena);
    return coded == NULL ? NULL : stk_arena_printf(r->arena, "Authorization: Basic %s", coded);
}

static int read_token(server *r, const stk_http_response *response, stk_err *err)
{
    stk_json root;
    if (response->body.data == NULL ||
        stk_json_parse(response->body.data, response->body.len, "token", &limits, r->arena, &root,
                       NULL) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s gave a token that is no JSON",
                           r->ref->registry);
    }
    const char *token = stk_json_text(stk_json_get(&root, "token"));
    if (token == NULL) {
        token = stk_json_text(stk_json_get(&root, "access_token"));
    }
    r->authorization =
        token == NULL ? NULL : stk_arena_printf(r->arena, "Authorization: Bearer %s", token);
    return r->authorization == NULL
               ? stk_err_set(err, STK_E_PROTOCOL, "registry %s gave no token", r->ref->registry)
               : 0;
}

/* GET with Basic credentials, or the exchange of an identity token. */
static int fetch_token(server *r, const char *header, stk_err *err)
{
    const char *realm = stk_image_challenge(header, "realm", r->arena);
    const char *service = stk_image_challenge(header, "service", r->arena);
    const char *scope = stk_image_challenge(header, "scope", r->arena);
    STK_BUF_AUTO query = STK_BUF_INIT(64 << 10);
    if (realm == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s wants a token and doesn't say whose",
                           r->ref->registry);
    }
    bool exchange = r->login.token != NULL;
    stk_buf_text(&query,
                 exchange ? "grant_type=refresh_token&client_id=stoker&service=" : "service=");
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
    const char *credentials = basic(r);
    const char *const headers[] = {
        exchange ? "Content-Type: application/x-www-form-urlencoded" : credentials, NULL};
    const char *url = exchange ? realm
                               : stk_arena_printf(r->arena, "%s%c%s", realm,
                                                  strchr(realm, '?') == NULL ? '?' : '&',
                                                  stk_text_or(query.data, ""));
    const stk_http_request request = {.method = exchange ? "POST" : "GET",
                                      .url = url,
                                      .headers = headers[0] != NULL ? headers : NULL,
                                      .body = exchange ? query.data : NULL,
                                      .body_len = exchange ? query.len : 0,
                                      .connect_ms = CONNECT_MS,
                                      .idle_ms = IDLE_MS,
                                      .redirects = REDIRECTS};
    stk_http_response response = {.body = STK_BUF_INIT(MAX_BODY)};
    int rc = url == NULL || query.failed ? stk_err_set(err, STK_E_NOMEM, "no memory for a token")
                                         : stk_http_send(&request, &response, err);
    if (rc == 0) {
        rc = response.status == 200 ? read_token(r, &response, err) : refused(r, &response, err);
    }
    stk_http_done(&response);
    return rc;
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
    r->authorization = strncasecmp(header, "Basic", 5) == 0 ? basic(r) : NULL;
    return r->authorization == NULL ? STK_E_ENV : 0;
}

/* --- asking --- */

/* Any answer but 200 is an error. `response` is done by the caller. */
static int ask(server *r, const char *method, const char *what, const char *which,
               stk_http_response *response, stk_err *err)
{
    const char *url =
        stk_arena_printf(r->arena, "%s/v2/%s/%s/%s", r->base, r->ref->repository, what, which);
    if (url == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory to ask a registry");
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
        int rc = stk_http_send(&request, response, err);
        if (rc < 0) {
            return rc;
        }
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
            return refused(r, response, err);
        }
        stk_http_done(response);
    }
}

static int open_registry(const stk_image_ref *ref, stk_arena *arena, server *ret, stk_err *err)
{
    const char *where = stk_arena_printf(arena, "%s/%s", ref->registry, ref->repository);
    *ret = (server){.ref = ref, .arena = arena};
    return where == NULL ? stk_err_set(err, STK_E_NOMEM, "no memory to ask a registry")
                         : stk_image_login_find(where, arena, &ret->login, err);
}

/* The manifest by tag or digest, over TLS or, where that is said to be fine, without. */
static int ask_manifest(server *r, const char *method, stk_http_response *response, stk_err *err)
{
    const char *host =
        strcmp(r->ref->registry, "docker.io") == 0 ? "registry-1.docker.io" : r->ref->registry;
    const char *which = stk_text_or(r->ref->digest, r->ref->tag);
    bool loopback = is_loopback(host);
    bool plain = loopback || is_insecure(r->ref->registry, r->arena);
    r->base = stk_arena_printf(r->arena, "%s://%s", loopback ? "http" : "https", host);
    int rc = r->base == NULL ? stk_err_set(err, STK_E_NOMEM, "no memory to ask a registry")
                             : ask(r, method, "manifests", which, response, err);
    if (rc == STK_E_ENV && response->status == 0 && plain) {
        stk_err second = {0};
        r->base = stk_arena_printf(r->arena, "%s://%s", loopback ? "https" : "http", host);
        stk_http_done(response);
        int again = r->base == NULL ? rc : ask(r, method, "manifests", which, response, &second);
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
    const char *all = NULL;
    for (uint32_t i = 0; list != NULL && list->kind == STK_JSON_LIST && i < list->n; i++) {
        const stk_json *platform = stk_json_get(&list->items[i], "platform");
        const char *os = platform == NULL ? NULL : stk_json_text(stk_json_get(platform, "os"));
        const char *its =
            platform == NULL ? NULL : stk_json_text(stk_json_get(platform, "architecture"));
        const char *digest = stk_json_text(stk_json_get(&list->items[i], "digest"));
        if (os == NULL || its == NULL || digest == NULL || strcmp(os, "unknown") == 0) {
            continue; /* an attestation */
        }
        if (strcmp(os, "linux") == 0 && strcmp(its, arch) == 0) {
            return digest;
        }
        all = stk_arena_printf(arena, "%s%s%s/%s", stk_text_or(all, ""), all != NULL ? ", " : "",
                               os, its);
    }
    *have = stk_text_or(all, "none");
    return NULL;
}

static int parse(const server *r, const stk_http_response *response, const char *what,
                 stk_json *ret, stk_err *err)
{
    const char *text =
        stk_arena_dupn(r->arena, stk_text_or(response->body.data, ""), response->body.len);
    if (text == NULL ||
        stk_json_parse(text, response->body.len, what, &limits, r->arena, ret, NULL) < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s: the %s of %s is no JSON",
                           r->ref->registry, what, r->ref->repository);
    }
    return 0;
}

static const char *digest_of(const server *r, const stk_http_response *response)
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
    stk_http_response response = {0};
    int rc = ask_manifest(r, "GET", &response, err);
    rc = rc < 0 ? rc : parse(r, &response, "manifest", ret, err);
    *ret_digest = rc < 0 ? NULL : digest_of(r, &response);
    if (rc == 0 && stk_json_get(ret, "manifests") != NULL) {
        const char *have = "";
        const char *digest = stk_image_pick(ret, arch, r->arena, &have);
        if (digest == NULL) {
            rc = stk_err_set(err, STK_E_RESOURCES,
                             "image %s has no variant for linux/%s; it has: %s",
                             stk_image_text(r->ref, r->arena), arch, have);
            stk_err_hint(err, "take an image built for this architecture");
        } else {
            stk_http_done(&response);
            rc = ask(r, "GET", "manifests", digest, &response, err);
            rc = rc < 0 ? rc : parse(r, &response, "manifest", ret, err);
        }
    }
    stk_http_done(&response);
    return rc;
}

static void read_layers(const stk_json *manifest, stk_arena *arena, stk_image_config *ret)
{
    const stk_json *list = stk_json_get(manifest, "layers");
    uint32_t n = list != NULL && list->kind == STK_JSON_LIST ? list->n : 0;
    const char **digests = stk_arena_array(arena, (size_t)n + 1, sizeof *digests);
    int64_t total = n > 0 ? 0 : -1;
    for (uint32_t i = 0; digests != NULL && i < n; i++) {
        int64_t size = -1;
        const char *digest = stk_json_text(stk_json_get(&list->items[i], "digest"));
        bool known = stk_json_int(stk_json_get(&list->items[i], "size"), &size) && size >= 0;
        digests[i] = stk_text_or(digest, "");
        total = known && total >= 0 ? total + size : -1;
    }
    ret->layers = digests;
    ret->size_bytes = total;
}

static int get_config(server *r, const stk_json *manifest, stk_image_config *ret, stk_err *err)
{
    const stk_json *config = stk_json_get(manifest, "config");
    const char *digest = config == NULL ? NULL : stk_json_text(stk_json_get(config, "digest"));
    char hex[STK_DIGEST_HEX + 1] = "";
    stk_http_response response = {0};
    stk_json root;
    if (digest == NULL || !stk_image_is_id(digest)) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "image %s has a manifest without a configuration (an old schema?); push "
                           "it again with a current tool",
                           stk_image_text(r->ref, r->arena));
    }
    int rc = ask(r, "GET", "blobs", digest, &response, err);
    if (rc == 0 && strncmp(digest, "sha256:", 7) == 0) {
        stk_digest_of(stk_text_or(response.body.data, ""), response.body.len, hex);
        if (strcmp(hex, digest + 7) != 0) {
            rc = stk_err_set(err, STK_E_PROTOCOL, "registry %s gave something else than %s of %s",
                             r->ref->registry, digest, r->ref->repository);
        }
    }
    rc = rc < 0 ? rc : parse(r, &response, "configuration", &root, err);
    rc = rc < 0 ? rc
                : stk_image_config_read(&root, stk_json_get(&root, "config"), r->arena, ret, err);
    ret->id = digest;
    stk_http_done(&response);
    return rc;
}

int stk_image_remote(const stk_image_ref *ref, const char *arch, stk_arena *arena,
                     stk_image_config *ret, stk_err *err)
{
    server r;
    stk_json manifest;
    const char *digest = NULL;
    stk_image_config config = {.size_bytes = -1};
    int rc = open_registry(ref, arena, &r, err);
    rc = rc < 0 ? rc : get_manifest(&r, arch, &manifest, &digest, err);
    rc = rc < 0 ? rc : get_config(&r, &manifest, &config, err);
    if (rc == 0) {
        read_layers(&manifest, arena, &config);
        config.digest = digest;
        *ret = config;
    }
    return rc;
}

int stk_image_remote_digest(const stk_image_ref *ref, stk_arena *arena, const char **ret,
                            stk_err *err)
{
    server r;
    stk_http_response response = {0};
    int rc = open_registry(ref, arena, &r, err);
    if (rc < 0) {
        return rc;
    }
    rc = ask_manifest(&r, "HEAD", &response, err);
    *ret = rc < 0 ? NULL : digest_of(&r, &response);
    stk_http_done(&response);
    return rc == 0 && *ret == NULL
               ? stk_err_set(err, STK_E_PROTOCOL, "registry %s doesn't tell the digest of %s",
                             ref->registry, stk_image_text(ref, arena))
               : rc;
}
