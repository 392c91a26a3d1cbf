/* kube_api: sends one request with the current credential and classifies its answer: good,
 * temporary or fatal. Also keeps what all requests share, such as an outage of the server. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/kubernetes/kube.h"
#include "base/text.h"
#include "sys/clock.h"

enum { IDLE_MS = 30000, CONNECT_MS = 10000, BODY_MAX = 64 << 20 };
enum { BACKOFF_MS = 250, BACKOFF_MAX_MS = 15000, SKEW_MIN = 5, SILENT_MS = 10000 };

static const stk_json_limits limits = {BODY_MAX, 8u << 20, STK_LIMIT_DEPTH};

int64_t stk_kube_now(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

int stk_kube_parse(const char *text, size_t len, stk_arena *arena, stk_json *ret)
{
    return stk_json_parse(text, len, "the API server's answer", &limits, arena, ret, NULL);
}

void stk_kube_put_delete(stk_buf *out, const char *policy)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "kind", "DeleteOptions");
    stk_json_put_text(out, "apiVersion", "v1");
    stk_json_put_text(out, "propagationPolicy", policy);
    stk_json_close(out, '}');
}

const stk_json *stk_kube_at(const stk_json *node, const char *way)
{
    while (node != NULL && *way != '\0') {
        char key[128];
        size_t n = strcspn(way, "/");
        if (n >= sizeof key || node->kind != STK_JSON_MAP) {
            return NULL;
        }
        for (size_t i = 0; i < n; i++) {
            key[i] = way[i];
            if (way[i] == '~') {
                key[i] = '/';
            }
        }
        key[n] = '\0';
        node = stk_json_get(node, key);
        way += n + (way[n] == '/');
    }
    if (stk_json_is_kind(node, STK_JSON_NULL)) {
        return NULL;
    }
    return node;
}

const char *stk_kube_text_at(const stk_json *node, const char *way)
{
    return stk_text_or(stk_json_text(stk_kube_at(node, way)), "");
}

const char *stk_kube_quote(const char *text, stk_arena *arena)
{
    char *out = stk_arena_alloc(arena, 3 * strlen(text) + 1);
    size_t n = 0;
    for (; out != NULL && *text != '\0'; text++) {
        if (isalnum((unsigned char)*text) || strchr("-_.~", *text) != NULL) {
            out[n++] = *text;
        } else {
            n += (size_t)sprintf(out + n, "%%%02X", (unsigned char)*text);
        }
    }
    return stk_text_or(out, "");
}

/* --- answers --- */

typedef struct stk_kube_call {
    struct stk_kube_call *next, **at; /* `at` points here */
    uint64_t id;
    stk_kube_api *api;
    void (*done)(void *arg, const stk_kube_answer *answer);
    void *arg;
    int64_t begun_ms;
    bool is_relayed, is_stream;
} call;

static void link_call(stk_kube_api *api, call *c)
{
    c->next = api->calls;
    c->at = &api->calls;
    if (c->next != NULL) {
        c->next->at = &c->next;
    }
    api->calls = c;
}

static void free_call(call *c)
{
    *c->at = c->next;
    if (c->next != NULL) {
        c->next->at = c->at;
    }
    free(c);
}

static int64_t wait_of(const stk_kube_api *api, const stk_http_response *response)
{
    char value[32];
    int64_t wait = BACKOFF_MS;
    for (uint32_t i = 1; i < api->n_failures && wait < BACKOFF_MAX_MS; i++) {
        wait *= 2;
    }
    wait = MIN(wait, BACKOFF_MAX_MS);
    wait = wait / 2 + (int64_t)(random() % (wait / 2 + 1)); /* spreads the clients' retries */
    if (response != NULL && stk_http_header(response, "retry-after", value, sizeof value)) {
        int64_t asked = strtoll(value, NULL, 10) * 1000;
        if (asked > 0 && asked <= 300000 && asked > wait) {
            wait = asked;
        }
    }
    return wait;
}

/* Records trouble of the server or the connection, begun then: all requests wait. */
static void note_trouble(stk_kube_api *api, const stk_http_response *response, const char *what,
                         int64_t begun_ms)
{
    int64_t now = stk_kube_now();
    if (now < api->not_before_ms) {
        return; /* a request that began before we noticed the same trouble */
    }
    api->n_failures++;
    api->not_before_ms = now + wait_of(api, response);
    if (api->down_since_ms == 0) {
        api->down_since_ms = begun_ms;
    }
    (void)snprintf(api->down, sizeof api->down, "%.250s", what);
}

/* When the trouble that ended this request began. */
static int64_t begin_of(const call *c)
{
    if (c->is_stream) {
        return stk_kube_now();
    }
    return c->begun_ms;
}

static const stk_json *read_body(const stk_kube_answer *a, stk_arena *arena)
{
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    if (root == NULL || stk_kube_parse(a->body, a->len, arena, root) < 0) {
        return NULL;
    }
    return root;
}

static void read_status(stk_kube_answer *a, stk_arena *arena, const stk_http_response *response)
{
    char type[64] = "";
    (void)stk_http_header(response, "content-type", type, sizeof type);
    const stk_json *root = read_body(a, arena);
    if (strncmp(type, "application/json", 16) == 0 && root != NULL) {
        a->reason = stk_kube_text_at(root, "reason");
        a->text = stk_kube_text_at(root, "message");
    } else {
        a->text = stk_arena_dupn(arena, a->body, strcspn(a->body, "\r\n"));
    }
    if (a->text == NULL || *a->text == '\0') {
        a->text = stk_arena_printf(arena, "status %d", a->status);
    }
}

/* Tokens are valid between two times. Adds a hint if our clock is off, which makes a valid one
 * look expired. */
static const char *with_clocks(const char *text, const stk_http_response *response,
                               stk_arena *arena)
{
    int64_t theirs = stk_http_date_ms(response);
    int64_t ours = stk_clock_wall_ms(&stk_clock_real);
    long long minutes = (theirs - ours) / 60000;
    if (theirs < 0 || llabs(minutes) < SKEW_MIN) {
        return text;
    }
    return stk_text_or(
        stk_arena_printf(arena,
                         "%s; this machine's clock is %lld minutes %s the server's; correct it",
                         text, llabs(minutes), minutes < 0 ? "ahead of" : "behind"),
        text);
}

/* An admission webhook's refusal, which may come with any status, also 500. */
static bool is_webhooks(const stk_kube_answer *a)
{
    return !a->good && strstr(a->text, "admission webhook \"") != NULL &&
           strstr(a->text, " denied the request") != NULL;
}

/* Certificates are a matter of the kubeconfig. */
static const char *with_keys(const char *text, stk_arena *arena)
{
    if (strstr(text, "certificate") == NULL || strstr(text, "clock") != NULL) {
        return text;
    }
    return stk_text_or(stk_arena_printf(arena,
                                        "%s; what is trusted stands in the kubeconfig's cluster: "
                                        "certificate-authority(-data), tls-server-name",
                                        text),
                       text);
}

static void answered(void *arg, int rc, stk_http_response *response, const stk_err *err)
{
    call *c = arg;
    stk_kube_api *api = c->api;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_kube_answer a = {
        .rc = rc, .again = true, .body = "", .reason = "", .text = "out of memory"};
    char text[1024];
    if (rc < 0) {
        a.fatal = response != NULL && response->fatal;
        a.again = !a.fatal;
        a.text = stk_err_format(err, text, sizeof text);
        if (a.fatal && arena != NULL) {
            a.text = with_keys(a.text, arena);
        }
        bool has_begun = response != NULL && response->status != 0;
        if (a.again && rc != STK_E_CANCELLED && !has_begun && !c->is_relayed) {
            note_trouble(api, NULL, a.text,
                         begin_of(c)); /* a cut answer affects only its request */
        }
    } else if (arena != NULL) {
        a.status = response->status;
        api->answered = true;
        a.good = a.status >= 200 && a.status < 300;
        a.body = stk_text_or(response->body.data, "");
        a.len = response->body.len;
        if (!a.good) {
            read_status(&a, arena, response);
        } else if (a.len > 0) {
            a.json = read_body(&a, arena);
        }
        bool is_denied = is_webhooks(&a);
        a.again = !is_denied && (a.status == 429 || a.status >= 500 || a.status == 408 ||
                                 (a.status == 409 && strcmp(a.reason, "AlreadyExists") != 0));
        if (!is_denied && (a.status == 429 || (a.status >= 500 && !c->is_relayed))) {
            note_trouble(api, response, a.text, begin_of(c));
        } else if (!c->is_relayed) {
            api->n_failures = 0;
            api->down_since_ms = 0;
        }
        if (a.status == 401) { /* the token may have expired: retry with a new one */
            a.text =
                stk_arena_printf(arena, "%s: it rejects these credentials; log in again", a.text);
            a.text = with_clocks(stk_text_or(a.text, ""), response, arena);
            api->n_401++;
            a.again = api->n_401 < 4;
            a.fatal = !a.again;
            api->auth.refused = true;
            api->not_before_ms = stk_kube_now();
            if (api->n_401 > 1) {
                api->not_before_ms += 4 * BACKOFF_MS;
            }
        } else {
            api->n_401 = 0;
        }
    }
    void (*done)(void *, const stk_kube_answer *) = c->done;
    void *done_arg = c->arg;
    free_call(c);
    done(done_arg, &a);
}

int stk_kube_ask(stk_kube_api *api, const stk_kube_request *request, uint64_t *ret_id, stk_err *err)
{
    STK_TRY(stk_kube_auth_refresh(api->config, &api->auth, err));
    char type[128];
    char *url = NULL;
    const char *headers[5] = {"Accept: application/json", "User-Agent: stoker/" STK_VERSION};
    char accept[128];
    size_t n = 2;
    if (request->accept != NULL) {
        (void)snprintf(accept, sizeof accept, "Accept: %s", request->accept);
        headers[0] = accept;
    }
    if (request->body != NULL) { /* libcurl's default is a web form's */
        (void)snprintf(type, sizeof type, "Content-Type: %s",
                       stk_text_or(request->type, "application/json"));
        headers[n++] = type;
    }
    if (api->auth.header != NULL) {
        headers[n++] = api->auth.header;
    }
    stk_http_tls tls = api->config->tls;
    if (api->auth.cert != NULL) {
        tls.cert_data = api->auth.cert;
        tls.key_data = api->auth.key;
        tls.cert_file = tls.key_file = NULL;
    }
    call *c = calloc(1, sizeof *c);
    if (c == NULL || asprintf(&url, "%s%s", api->config->server, request->way) < 0) {
        free(c);
        return stk_err_nomem(err);
    }
    *c = (call){.api = api,
                .done = request->done,
                .arg = request->arg,
                .begun_ms = stk_kube_now(),
                .is_relayed = request->is_relayed,
                .is_stream = request->on_body != NULL};
    stk_http_call http = {.request = {.method = request->method,
                                      .url = url,
                                      .headers = headers,
                                      .body = request->body,
                                      .body_len = strlen(stk_text_or(request->body, "")),
                                      .tls = &tls,
                                      .direct = api->config->direct,
                                      .proxy = api->config->proxy,
                                      .connect_ms = CONNECT_MS,
                                      .idle_ms = request->idle_ms == 0 ? IDLE_MS : request->idle_ms,
                                      .on_body = request->on_body,
                                      .arg = request->arg,
                                      .ok_only = true},
                          .body_max = BODY_MAX,
                          .done = answered,
                          .done_arg = c};
    int rc = stk_http_many_begin(api->many, &http, &c->id, err);
    free(url);
    if (rc < 0) {
        free(c);
        return rc;
    }
    link_call(api, c);
    *ret_id = c->id;
    return 0;
}

int64_t stk_kube_away_since(const stk_kube_api *api)
{
    int64_t since = api->down_since_ms;
    for (const call *c = api->calls; c != NULL; c = c->next) {
        if (!c->is_stream && (since == 0 || c->begun_ms < since)) {
            since = c->begun_ms;
        }
    }
    if (api->down_since_ms == 0 && stk_kube_now() - since < SILENT_MS) {
        return 0; /* an ordinary answer takes a while, too */
    }
    return since;
}

void *stk_kube_stop(stk_kube_api *api, uint64_t id)
{
    for (call *c = api->calls; c != NULL && id != 0; c = c->next) {
        if (c->id == id) {
            void *arg = c->arg;
            stk_http_many_stop(api->many, id);
            free_call(c);
            return arg;
        }
    }
    return NULL;
}

void stk_kube_stop_all(stk_kube_api *api, const void *arg)
{
    for (call *c = api->calls, *next; c != NULL; c = next) {
        next = c->next;
        if (c->arg == arg) {
            (void)stk_kube_stop(api, c->id);
        }
    }
}

void stk_kube_api_done(stk_kube_api *api)
{
    stk_http_many_close(api->many);
    while (api->calls != NULL) {
        free_call(api->calls);
    }
    stk_kube_auth_done(&api->auth);
}
