/* Pushes an image straight to a registry (OCI distribution): blobs, then the manifest. */
#include <string.h>

#include "base/text.h"
#include "image/image_bundle.h"
#include "image/image_server.h"

/* The place that the registry gave for a blob; "&" or "?" joins the digest to it. */
static int find_place(const stk_image_server *r, const stk_http_response *response,
                      const char *digest, const char **ret, stk_err *err)
{
    char place[4096];
    if (!stk_http_header(response, "Location", place, sizeof place)) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "registry %s takes an upload, but doesn't say where", r->ref->registry);
    }
    const char *joint = strchr(place, '?') == NULL ? "?" : "&";
    *ret = stk_arena_printf(r->arena, "%s%sdigest=%s", place, joint, digest);
    return stk_err_if_null(*ret, err);
}

static int push_blob(stk_image_server *r, const stk_image_blob *blob, stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO seen = {0}, begun = {0}, ended = {0};
    const char *path = stk_arena_printf(r->arena, "blobs/%s", blob->digest), *place = NULL;
    STK_TRY(stk_err_if_null(path, err));
    const stk_image_question look = {.method = "HEAD", .path = path};
    stk_err why = {0};
    int rc = stk_image_server_ask(r, &look, 404, &seen, &why);
    if (rc == 0 && seen.status == 200) {
        return 0;
    }
    if (rc < 0 && seen.status != 401 && seen.status != 403) {
        *err = why;
        return rc;
    }
    /* a refusal of HEAD has no words: that of the upload does */
    const stk_image_question begin = {
        .method = "POST", .path = "blobs/uploads/", .type = "application/octet-stream", .body = ""};
    STK_TRY(stk_image_server_ask(r, &begin, 0, &begun, err));
    STK_TRY(find_place(r, &begun, blob->digest, &place, err));
    const stk_image_question put = {.method = "PUT",
                                    .path = place,
                                    .type = "application/octet-stream",
                                    .body = blob->data,
                                    .body_len = blob->len};
    return stk_image_server_ask(r, &put, 0, &ended, err);
}

static int push_manifest(stk_image_server *r, const stk_image_blob *manifest, stk_err *err)
{
    STK_HTTP_RESPONSE_AUTO response = {0};
    const char *path = stk_arena_printf(r->arena, "manifests/%s", r->ref->tag);
    STK_TRY(stk_err_if_null(path, err));
    const stk_image_question put = {.method = "PUT",
                                    .path = path,
                                    .type = STK_IMAGE_MANIFEST,
                                    .body = manifest->data,
                                    .body_len = manifest->len};
    STK_TRY(stk_image_server_ask(r, &put, 0, &response, err));
    const char *digest = stk_image_server_digest(r, &response);
    if (digest != NULL && response.body.len == 0 && strcmp(digest, manifest->digest) != 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "registry %s took %s for image %s, but it was %s",
                           r->ref->registry, digest, r->ref->repository, manifest->digest);
    }
    return 0;
}

int stk_image_bundle_push(const stk_image_bundle *b, const stk_image_ref *ref, stk_arena *arena,
                          stk_err *err)
{
    STK_HTTP_SESSION_AUTO session = NULL;
    stk_image_server r;
    STK_TRY(stk_image_server_open(ref, arena, &r, err));
    STK_TRY(stk_http_session_open(&session, err));
    r.session = session;
    r.pushes = true;
    STK_TRY(push_blob(&r, &b->layer, err));
    STK_TRY(push_blob(&r, &b->config, err));
    return push_manifest(&r, &b->manifest, err);
}
