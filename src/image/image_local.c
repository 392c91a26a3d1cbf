/* Images of the container engine: is one here, pull it, push it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"

enum { MAX_ANSWER = 64 << 20 };

static const stk_json_limits limits = {MAX_ANSWER, 2000000, 60};

int stk_image_ask(const stk_engine *engine, const char *method, const char *path, const char *body,
                  stk_arena *arena, stk_json *ret, stk_err *err)
{
    STK_BUF_AUTO answer = STK_BUF_INIT(MAX_ANSWER);
    STK_TRY(stk_engine_call(engine, method, path, body, NULL, &answer, err));
    const char *text = stk_arena_dupn(arena, stk_text_or(answer.data, ""), answer.len);
    if (text == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for an answer of %s", engine->name);
    }
    return stk_json_parse(text, answer.len, path, &limits, arena, ret, err);
}

/* Names go into paths and queries as they are: what a name may hold means nothing there. */
int stk_image_local(const stk_engine *engine, const char *text, stk_arena *arena,
                    stk_image_config *ret, stk_err *err)
{
    stk_json root;
    stk_image_ref ref;
    const char *name = text;
    stk_image_config config = {.size_bytes = -1};
    if (!stk_image_is_id(text)) {
        STK_TRY(stk_image_parse(text, arena, &ref, err));
        name = stk_image_text(&ref, arena);
    }
    STK_TRY(stk_err_need(name, "to look for an image", err));
    const char *path = stk_arena_printf(arena, "/images/%s/json", name);
    STK_TRY(stk_err_need(path, "to look for an image", err));
    STK_TRY(stk_image_ask(engine, "GET", path, NULL, arena, &root, err));
    config.id = stk_json_get_text(&root, "Id");
    STK_TRY(stk_image_config_read(&root, stk_json_get(&root, "Config"), arena, &config, err));
    const stk_json *digests = stk_json_get(&root, "RepoDigests");
    if (stk_json_n_items(digests) > 0) {
        const char *at = strchr(stk_text_or(stk_json_text(&digests->items[0]), ""), '@');
        if (at != NULL) {
            config.digest = at + 1;
        }
    }
    if (!stk_json_int(stk_json_get(&root, "Size"), &config.size_bytes)) {
        config.size_bytes = -1;
    }
    if (config.id == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "the answer of %s has no id of image %s",
                           engine->name, text);
    }
    if (strchr(config.id, ':') == NULL) { /* older Podmans */
        config.id = stk_arena_printf(arena, "sha256:%s", config.id);
    }
    *ret = config;
    return 0;
}

/* --- streams --- */

typedef struct progress {
    stk_image_say *say;
    void *arg;
    char last[256];
    char error[600];
} progress;

static void tell_progress(progress *p, const char *id, const char *status)
{
    char line[256];
    if (id == NULL) {
        (void)snprintf(line, sizeof line, "%s", status);
    } else {
        (void)snprintf(line, sizeof line, "%s: %s", id, status);
    }
    line[strcspn(line, "\r\n")] = '\0';
    if (p->say != NULL && *line != '\0' && strcmp(line, p->last) != 0) {
        memcpy(p->last, line, sizeof line);
        p->say(p->arg, line);
    }
}

static bool on_progress(void *arg, const char *json, size_t n)
{
    progress *p = arg;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root;
    if (arena == NULL || stk_json_parse(json, n, "progress", &limits, arena, &root, NULL) < 0) {
        return true;
    }
    const char *error = stk_json_get_text(&root, "error");
    const char *status = stk_json_get_text(&root, "status");
    const char *stream = stk_json_get_text(&root, "stream");
    if (error != NULL) {
        (void)snprintf(p->error, sizeof p->error, "%s", error);
        p->error[strcspn(p->error, "\r\n")] = '\0';
    }
    /* numbers that go up would be thousands of lines */
    const stk_json *detail = stk_json_get(&root, "progressDetail");
    if (status != NULL && (detail == NULL || stk_json_get(detail, "current") == NULL)) {
        tell_progress(p, stk_json_get_text(&root, "id"), status);
    } else if (stream != NULL) {
        tell_progress(p, NULL, stream);
    }
    return true;
}

static bool has_any_word(const char *words, const char *const *any)
{
    for (; *any != NULL; any++) {
        if (strcasestr(words, *any) != NULL) {
            return true;
        }
    }
    return false;
}

/* The engine doesn't trust the registry's certificate, or there is none. */
static int explain_tls(const stk_engine *engine, const stk_image_ref *ref, const char *doing,
                       const char *words, bool is_plain, stk_arena *arena, stk_err *err)
{
    const char *program = stk_engine_program(engine);
    const char *folder = engine->is_podman ? "/etc/containers" : "/etc/docker";
    stk_err_set(err, STK_E_ENV, "%s image %s failed: %s doesn't trust registry %s: %s", doing,
                stk_text_or(stk_image_text(ref, arena), ref->repository), engine->name,
                ref->registry, words);
    if (!is_plain) {
        stk_err_hint(err, "put the certificate of its authority at %s/certs.d/%s/ca.crt", folder,
                     ref->registry);
    } else if (engine->is_podman) {
        stk_err_hint(err,
                     "the registry has no TLS: allow it by [[registry]] location = \"%s\", "
                     "insecure = true in /etc/containers/registries.conf",
                     ref->registry);
    } else {
        stk_err_hint(err,
                     "the registry has no TLS: allow it by {\"insecure-registries\": [\"%s\"]} in "
                     "/etc/%s/daemon.json",
                     ref->registry, program);
    }
    return STK_E_ENV;
}

/* The error for a pull or push that the engine ended with these words. */
static int explain_words(const stk_engine *engine, const stk_image_ref *ref, const char *doing,
                         const char *words, stk_err *err)
{
    static const char *const tls[] = {"x509", "certificate", "tls: ", NULL};
    static const char *const plain[] = {"http response to https", "http response to a https",
                                        "not look like a tls handshake", NULL};
    static const char *const full[] = {"no space left", "disk quota", NULL};
    static const struct {
        int status;
        const char *words[6]; /* NULL-terminated */
    } refusals[] = {
        {429, {"toomanyrequests", "too many requests", "rate limit"}},
        {401,
         {"unauthorized", "authentication required", "no basic auth credentials", "denied",
          "forbidden"}},
        {404, {"manifest unknown", "name unknown", "not found", "repository name not known"}}};
    static const char *const cut[] = {
        "unexpected eof",     "connection reset", "broken pipe", "timeout",
        "connection refused", "content length",   NULL};
    static const char *const away[] = {"no such host", "dial tcp", "network is unreachable", NULL};
    stk_image_login none = {0}, found = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char copy[400];
    STK_TRY(stk_err_need(arena, "to explain a registry", err));
    (void)snprintf(copy, sizeof copy, "%s", words); /* may lie in `err` */
    if (has_any_word(copy, full)) {
        stk_err_set(err, STK_E_FULL, "no space left for image %s: %s",
                    stk_text_or(stk_image_text(ref, arena), ref->repository), copy);
        stk_err_hint(err, "free space by `docker system prune` or `podman system prune`");
        return STK_E_FULL;
    }
    if (has_any_word(copy, tls) || has_any_word(copy, plain)) {
        return explain_tls(engine, ref, doing, copy, has_any_word(copy, plain), arena, err);
    }
    if (stk_image_login_find(ref->registry, arena, &found, NULL) < 0) {
        found = none;
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (has_any_word(copy, refusals[i].words)) {
            return stk_image_refused(ref, refusals[i].status, copy, NULL, &found,
                                     strstr(doing, "push") != NULL, err);
        }
    }
    const char *how = "failed", *hint = "look at the log of the container engine";
    if (has_any_word(copy, away)) {
        hint = STK_IMAGE_UNREACHED;
    } else if (has_any_word(copy, cut)) {
        how = "broke off";
        hint = "try again: complete layers are kept";
    }
    stk_err_set(err, STK_E_ENV, "%s image %s %s: %s", doing,
                stk_text_or(stk_image_text(ref, arena), ref->repository), how, copy);
    stk_err_hint(err, "%s", hint);
    return STK_E_ENV;
}

static int stream(const stk_engine *engine, const char *path, const stk_image_ref *ref,
                  const char *doing, progress *p, stk_arena *arena, stk_err *err)
{
    const char *auth = NULL,
               *where = stk_arena_printf(arena, "%s/%s", ref->registry, ref->repository);
    stk_err why = {0};
    STK_TRY(stk_err_need(where, "to ask a registry", err));
    STK_TRY(stk_image_auth(where, arena, &auth, err));
    /* Docker wants the header of a push even where there is nothing to say in it */
    const char *header = stk_arena_printf(arena, "X-Registry-Auth: %s", stk_text_or(auth, "e30="));
    const char *const headers[] = {header, NULL};
    int rc = stk_engine_stream(engine, "POST", path, headers, -1, on_progress, p, &why);
    if (*p->error != '\0') {
        return explain_words(engine, ref, doing, p->error, err);
    }
    if (rc >= 0) {
        return 0;
    }
    return explain_words(engine, ref, doing, why.text, err);
}

int stk_image_pull(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    progress p = {.say = say, .arg = arg};
    STK_TRY(stk_err_need(arena, "to pull an image", err));
    const char *path =
        stk_arena_printf(arena, "/images/create?fromImage=%s/%s&tag=%s", ref->registry,
                         ref->repository, stk_text_or(ref->digest, ref->tag));
    STK_TRY(stk_err_need(path, "to pull an image", err));
    return stream(engine, path, ref, "the pull of", &p, arena, err);
}

int stk_image_push(const stk_engine *engine, const stk_image_ref *ref, stk_image_say *say,
                   void *arg, const char **ret_digest, stk_arena *arena, stk_err *err)
{
    progress p = {.say = say, .arg = arg};
    const char *path = stk_arena_printf(arena, "/images/%s/%s/push?tag=%s", ref->registry,
                                        ref->repository, stk_text_or(ref->tag, "latest"));
    STK_TRY(stk_err_need(path, "to push an image", err));
    STK_TRY(stream(engine, path, ref, "the push of", &p, arena, err));
    /* the engine's own digest is of what it would push, which isn't always what it pushed */
    return stk_image_remote_digest(ref, arena, ret_digest, err);
}
