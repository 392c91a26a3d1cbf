/* Short log-ins for the registries of clouds, where no file of Docker or Podman has one: what the
 * clouds' own programs would ask for, asked by us. */
#include <fnmatch.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "image/image_private.h"
#include "net/http.h"
#include "sys/file.h"

enum { MAX_ANSWER = 256 << 10, IDLE_MS = 10000, NEAR_MS = 1000, MAX_KEYS = 1 << 20 };

static const stk_json_limits limits = {MAX_ANSWER, 10000, 16};

stk_image_cloud *stk_image_ecr;

/* --- asking --- */

typedef struct cloud_ask {
    const char *url;
    const char *header; /* or NULL */
    const char *form;   /* POST; NULL: GET */
    bool is_near;       /* a server of this machine's own network: no proxy, little patience */
    const char *who;    /* for messages */
} cloud_ask;

/* The text `key` of the answer. STK_E_NOT_FOUND: nobody answers. */
static int ask_cloud(const cloud_ask *ask, const char *key, stk_arena *arena, const char **ret,
                     stk_err *err)
{
    const char *const headers[] = {
        stk_text_or(ask->header, "Content-Type: application/x-www-form-urlencoded"), NULL};
    const char *method = ask->form == NULL ? "GET" : "POST";
    const stk_http_request request = {.method = method,
                                      .url = ask->url,
                                      .headers = headers,
                                      .body = ask->form,
                                      .body_len = strlen(stk_text_or(ask->form, "")),
                                      .direct = ask->is_near,
                                      .connect_ms = ask->is_near ? NEAR_MS : 0,
                                      .idle_ms = IDLE_MS};
    STK_HTTP_RESPONSE_AUTO response = {.body = STK_BUF_INIT(MAX_ANSWER)};
    stk_json root;
    if (stk_http_send(&request, &response, err) < 0) {
        return STK_E_NOT_FOUND;
    }
    const char *text =
        stk_arena_dupn(arena, stk_text_or(response.body.data, ""), response.body.len);
    STK_TRY(stk_err_if_null(text, err));
    *ret = NULL;
    const char *why = NULL;
    if (stk_json_parse(text, response.body.len, "answer", &limits, arena, &root, NULL) == 0) {
        *ret = stk_json_get_text(&root, key);
        why = stk_text_or(stk_json_get_text(&root, "error_description"),
                          stk_json_get_text(&root, "error"));
    }
    if (ask->is_near && *ret == NULL && why == NULL) {
        return STK_E_NOT_FOUND; /* another cloud's server at the same address */
    }
    if (response.status != 200 || *ret == NULL) {
        return stk_err_set(err, STK_E_ENV, "%s gives no log-in (%d%s%.200s)", ask->who,
                           response.status, stk_text_when(why != NULL, ", "), stk_text_or(why, ""));
    }
    return 0;
}

/* "a=1&b=2" of name, value, name, value …, NULL. */
static const char *form_of(const char *const *pairs, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_ANSWER);
    for (size_t i = 0; pairs[i] != NULL && pairs[i + 1] != NULL; i += 2) {
        stk_buf_separate(&out, "&");
        stk_buf_printf(&out, "%s=", pairs[i]);
        stk_buf_percent(&out, pairs[i + 1], strlen(pairs[i + 1]), "");
    }
    if (out.failed) {
        return NULL;
    }
    return stk_arena_dup(arena, out.data);
}

static const char *variable(const char *name)
{
    return stk_text_if_any(getenv(name));
}

/* --- Google --- */

#define GOOGLE_TOKENS "https://oauth2.googleapis.com/token"

static const char *for_urls(const char *data, size_t n, stk_arena *arena)
{
    const char *text = stk_image_base64(data, n, true, arena);
    if (text == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, text, strcspn(text, "="));
}

/* A signature by RSA and SHA-256 (RS256). */
static const char *sign_rs256(const char *pem, const char *text, stk_arena *arena)
{
    unsigned char signature[1024];
    size_t n = sizeof signature;
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool is_fine =
        key != NULL && md != NULL && EVP_DigestSignInit(md, NULL, EVP_sha256(), NULL, key) == 1 &&
        EVP_DigestSign(md, signature, &n, (const unsigned char *)text, strlen(text)) == 1;
    EVP_MD_CTX_free(md);
    EVP_PKEY_free(key);
    (void)BIO_free(bio);
    if (!is_fine) {
        return NULL;
    }
    return for_urls((const char *)signature, n, arena);
}

/* A service account signs for itself (RFC 7523). */
static const char *assertion_of(const stk_json *account, const char *to, stk_arena *arena)
{
    STK_BUF_AUTO head = STK_BUF_INIT(1 << 10);
    STK_BUF_AUTO claims = STK_BUF_INIT(1 << 16);
    int64_t now = (int64_t)time(NULL);
    const char *pem = stk_json_get_text(account, "private_key");
    stk_json_open(&head, NULL, '{');
    stk_json_put_text(&head, "alg", "RS256");
    stk_json_put_text(&head, "typ", "JWT");
    stk_json_close(&head, '}');
    stk_json_open(&claims, NULL, '{');
    stk_json_put_text(&claims, "iss", stk_json_get_text(account, "client_email"));
    stk_json_put_text(&claims, "scope", "https://www.googleapis.com/auth/cloud-platform");
    stk_json_put_text(&claims, "aud", to);
    stk_json_put_whole(&claims, "iat", now);
    stk_json_put_whole(&claims, "exp", now + 3600);
    stk_json_close(&claims, '}');
    if (head.failed || claims.failed || pem == NULL) {
        return NULL;
    }
    const char *a = for_urls(head.data, head.len, arena);
    const char *b = for_urls(claims.data, claims.len, arena);
    const char *text = stk_arena_printf(arena, "%s.%s", stk_text_or(a, ""), stk_text_or(b, ""));
    const char *signature = text == NULL ? NULL : sign_rs256(pem, text, arena);
    if (signature == NULL) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s.%s", text, signature);
}

/* Google's application default credentials: a user's refresh token, or a service account's key. */
static int ask_google_file(const char *path, stk_arena *arena, const char **ret, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    STK_TRY(stk_file_read(path, MAX_KEYS, &text, &len, err));
    const char *copy = stk_arena_dupn(arena, text, len);
    STK_TRY(stk_err_if_null(copy, err));
    STK_TRY(stk_json_parse(copy, len, path, &limits, arena, &root, err));
    const char *type = stk_text_or(stk_json_get_text(&root, "type"), "");
    const char *to = stk_text_or(stk_json_get_text(&root, "token_uri"), GOOGLE_TOKENS);
    cloud_ask ask = {.url = to, .who = path};
    if (strcmp(type, "authorized_user") == 0) {
        const char *const pairs[] = {"grant_type",
                                     "refresh_token",
                                     "client_id",
                                     stk_json_get_text(&root, "client_id"),
                                     "client_secret",
                                     stk_json_get_text(&root, "client_secret"),
                                     "refresh_token",
                                     stk_json_get_text(&root, "refresh_token"),
                                     NULL,
                                     NULL};
        ask.form = form_of(pairs, arena);
    } else if (strcmp(type, "service_account") == 0) {
        const char *assertion = assertion_of(&root, to, arena);
        const char *const pairs[] = {"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer",
                                     "assertion",  assertion,
                                     NULL,         NULL};
        if (assertion == NULL) {
            return stk_err_set(err, STK_E_ENV, "%s has no private_key that can sign", path);
        }
        ask.form = form_of(pairs, arena);
    } else {
        stk_err_set(err, STK_E_ENV, "%s has credentials of type '%s', which Stoker can't use", path,
                    type);
        stk_err_hint(err, "name the helper gcloud in credHelpers of ~/.docker/config.json: gcloud "
                          "auth configure-docker");
        return STK_E_ENV;
    }
    STK_TRY(stk_err_if_null(ask.form, err));
    return ask_cloud(&ask, "access_token", arena, ret, err);
}

static int ask_google(stk_arena *arena, stk_image_login *ret, stk_err *err)
{
    const char *token = variable("CLOUDSDK_AUTH_ACCESS_TOKEN"),
               *from = "CLOUDSDK_AUTH_ACCESS_TOKEN";
    const char *named = variable("GOOGLE_APPLICATION_CREDENTIALS");
    const char *own =
        stk_arena_printf(arena, "%s/.config/gcloud/application_default_credentials.json",
                         stk_text_or(getenv("HOME"), ""));
    const char *file = named == NULL ? own : named;
    STK_TRY(stk_err_if_null(file, err));
    if (token == NULL && (named != NULL || stk_file_exists(file))) {
        from = stk_arena_dup(arena, file);
        STK_TRY(ask_google_file(file, arena, &token, err));
    } else if (token == NULL) {
        const char *host = stk_text_or(variable("GCE_METADATA_HOST"), "metadata.google.internal");
        from = "Google's metadata server";
        const cloud_ask ask = {
            .url = stk_arena_printf(
                arena, "http://%s/computeMetadata/v1/instance/service-accounts/default/token",
                host),
            .header = "Metadata-Flavor: Google",
            .is_near = true,
            .who = from};
        STK_TRY(stk_err_if_null(ask.url, err));
        STK_TRY(ask_cloud(&ask, "access_token", arena, &token, err));
    }
    *ret = (stk_image_login){.user = "oauth2accesstoken", .secret = token, .source = from};
    return 0;
}

/* --- Azure --- */

#define AZURE_SCOPE "https://containerregistry.azure.net"
#define AZURE_DEFAULT (AZURE_SCOPE "/.default")

/* The managed identity of this machine; or, where Azure says so by variables, of the app. */
static int ask_managed(const char *client, stk_arena *arena, const char **ret,
                       const char **ret_from, stk_err *err)
{
    const char *endpoint = variable("IDENTITY_ENDPOINT"), *header = variable("IDENTITY_HEADER");
    const char *host =
        stk_text_or(variable("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "http://169.254.169.254");
    bool is_app = endpoint != NULL && header != NULL;
    const char *const pairs[] = {"api-version", is_app ? "2019-08-01" : "2018-02-01",
                                 "resource",    AZURE_SCOPE,
                                 "client_id",   client,
                                 NULL};
    const char *query = form_of(pairs, arena);
    cloud_ask ask = {.header = "Metadata: true", .is_near = true};
    STK_TRY(stk_err_if_null(query, err));
    if (is_app) {
        ask.header = stk_arena_printf(arena, "X-IDENTITY-HEADER: %s", header);
        ask.url = stk_arena_printf(arena, "%s?%s", endpoint, query);
        ask.who = "IDENTITY_ENDPOINT";
    } else {
        size_t n = strlen(host);
        ask.url = stk_arena_printf(arena, "%.*s/metadata/identity/oauth2/token?%s",
                                   (int)(n - (host[n - 1] == '/')), host, query);
        ask.who = "Azure's metadata server";
    }
    if (ask.url == NULL || ask.header == NULL) {
        return stk_err_nomem(err);
    }
    *ret_from = ask.who;
    return ask_cloud(&ask, "access_token", arena, ret, err);
}

/* Entra ID's token: of a client by its secret, by the cluster's own token, or of this machine. */
static int ask_entra(stk_arena *arena, const char **ret, const char **ret_from, stk_err *err)
{
    const char *tenant = variable("AZURE_TENANT_ID"), *client = variable("AZURE_CLIENT_ID");
    const char *secret = variable("AZURE_CLIENT_SECRET");
    const char *file = variable("AZURE_FEDERATED_TOKEN_FILE");
    const char *host =
        stk_text_or(variable("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com");
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    const char *const by_secret[] = {"client_secret", secret, NULL};
    const char *jwt[] = {"client_assertion_type",
                         "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                         "client_assertion", NULL, NULL};
    if (tenant == NULL || client == NULL || (secret == NULL && file == NULL)) {
        return ask_managed(client, arena, ret, ret_from, err);
    }
    if (secret == NULL) {
        STK_TRY(stk_file_read(file, MAX_KEYS, &text, &len, err));
        text[strcspn(text, "\r\n")] = '\0';
        jwt[3] = text;
    }
    const char *const *proof = secret != NULL ? by_secret : jwt;
    const char *last = proof[2] == NULL ? NULL : proof[3];
    const char *const pairs[] = {"grant_type", "client_credentials",
                                 "client_id",  client,
                                 "scope",      AZURE_DEFAULT,
                                 proof[0],     proof[1],
                                 proof[2],     last,
                                 NULL,         NULL};
    *ret_from = secret != NULL ? "AZURE_CLIENT_SECRET" : "AZURE_FEDERATED_TOKEN_FILE";
    size_t n = strlen(host);
    const cloud_ask ask = {.url = stk_arena_printf(arena, "%.*s/%s/oauth2/v2.0/token",
                                                   (int)(n - (host[n - 1] == '/')), host, tenant),
                           .form = form_of(pairs, arena),
                           .who = *ret_from};
    if (ask.url == NULL || ask.form == NULL) {
        return stk_err_nomem(err);
    }
    return ask_cloud(&ask, "access_token", arena, ret, err);
}

/* Entra ID's token becomes an identity token of the registry. */
static int ask_azure(const char *host, stk_arena *arena, stk_image_login *ret, stk_err *err)
{
    const char *token = NULL, *refresh = NULL, *from = NULL, *tenant = variable("AZURE_TENANT_ID");
    STK_TRY(ask_entra(arena, &token, &from, err));
    const char *const pairs[] = {"grant_type", "access_token", "service", host, "access_token",
                                 token,        "tenant",       tenant,    NULL, NULL};
    const cloud_ask ask = {.url = stk_arena_printf(arena, "https://%s/oauth2/exchange", host),
                           .form = form_of(pairs, arena),
                           .who = from};
    if (ask.url == NULL || ask.form == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(ask_cloud(&ask, "refresh_token", arena, &refresh, err));
    *ret = (stk_image_login){.token = refresh, .source = from};
    return 0;
}

/* --- which cloud --- */

static bool is_any(const char *host, const char *const *patterns)
{
    while (*patterns != NULL && fnmatch(*patterns, host, 0) != 0) {
        patterns++;
    }
    return *patterns != NULL;
}

int stk_image_cloud_login(const char *where, stk_arena *arena, stk_image_login *ret, stk_err *err)
{
    static const char *const aws[] = {"*.dkr.ecr.*.amazonaws.com", "*.dkr.ecr-fips.*.amazonaws.com",
                                      "*.dkr.ecr.*.amazonaws.com.cn", NULL};
    static const char *const google[] = {"*-docker.pkg.dev", "gcr.io", "*.gcr.io", NULL};
    static const char *const azure[] = {"*.azurecr.io", "*.azurecr.cn", "*.azurecr.us", NULL};
    const char *host = stk_arena_dupn(arena, where, strcspn(where, "/"));
    stk_err why = {0};
    int rc = 0;
    STK_TRY(stk_err_if_null(host, err));
    if (is_any(host, aws) && stk_image_ecr != NULL) {
        rc = stk_image_ecr(host, arena, &ret->user, &ret->secret, &why);
        if (rc == 0 && ret->user != NULL) {
            ret->source = "AWS's credentials";
        }
    } else if (is_any(host, google)) {
        rc = ask_google(arena, ret, &why);
    } else if (is_any(host, azure)) {
        rc = ask_azure(host, arena, ret, &why);
    }
    if (rc == STK_E_NOT_FOUND) { /* not a machine of that cloud */
        *ret = (stk_image_login){0};
        return 0;
    }
    if (rc < 0) {
        stk_err_context(&why, "the log-in for %s", host);
        if (err != NULL) {
            *err = why;
            err->code = STK_E_ENV;
        }
        return STK_E_ENV;
    }
    return 0;
}
