/* What a registry has: manifests and configurations. No layer is read. */
#include <string.h>

#include "base/text.h"
#include "image/image_server.h"

static const stk_json_limits limits = {STK_IMAGE_MAX_BODY, 1 << 20, STK_LIMIT_DEPTH};

static int ask_registry(stk_image_server *r, const char *method, const char *what,
                        const char *which, stk_http_response *response, stk_err *err)
{
    const char *path = stk_arena_printf(r->arena, "%s/%s", what, which);
    STK_TRY(stk_err_need(path, "for a request to a registry", err));
    const stk_image_question question = {.method = method, .path = path};
    return stk_image_server_ask(r, &question, 0, response, err);
}

/* The manifest by tag or digest. */
static int ask_manifest(stk_image_server *r, const char *method, stk_http_response *response,
                        stk_err *err)
{
    const char *which = stk_text_or(r->ref->digest, r->ref->tag);
    return ask_registry(r, method, "manifests", which, response, err);
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

static int parse_answer(const stk_image_server *r, const stk_http_response *response,
                        const char *what, stk_json *ret, stk_err *err)
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

/* The manifest of this architecture: of an index the one in it. */
static int get_manifest(stk_image_server *r, const char *arch, stk_json *ret,
                        const char **ret_digest, stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO response = {0};
    STK_TRY(ask_manifest(r, "GET", &response, err));
    STK_TRY(parse_answer(r, &response, "manifest", ret, err));
    *ret_digest = stk_image_server_digest(r, &response);
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

static int get_config(stk_image_server *r, const stk_json *manifest, stk_image_config *ret,
                      stk_err *err)
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
    stk_image_server r;
    stk_json manifest;
    const char *digest = NULL;
    stk_image_config config = {.size_bytes = -1};
    STK_TRY(stk_image_server_open(ref, arena, &r, err));
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
    stk_image_server r;
    STK_HTTP_RESPONSE_AUTO response = {0};
    STK_TRY(stk_image_server_open(ref, arena, &r, err));
    STK_TRY(ask_manifest(&r, "HEAD", &response, err));
    *ret = stk_image_server_digest(&r, &response);
    if (*ret == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "the answer of registry %s has no digest of %s",
                           ref->registry, stk_image_text(ref, arena));
    }
    return 0;
}
