/* An image that Stoker makes itself, on its way: to a file, through a container engine, or straight
 * to its registry. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_bundle.h"
#include "sys/file.h"

typedef struct load_answer {
    char error[400];
} load_answer;

static bool on_loaded(void *arg, const char *json, size_t n)
{
    static const stk_json_limits limits = {1 << 20, 10000, 16};
    load_answer *answer = arg;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root;
    if (arena != NULL && stk_json_parse(json, n, "answer", &limits, arena, &root, NULL) == 0) {
        const char *error = stk_json_get_text(&root, "error");
        if (error != NULL) {
            (void)snprintf(answer->error, sizeof answer->error, "%s", error);
        }
    }
    return true;
}

static int load_archive(const stk_engine *engine, const char *path, stk_err *err)
{
    static const char *const headers[] = {"Content-Type: application/x-tar", NULL};
    load_answer answer = {0};
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "reading %s", path);
    }
    STK_TRY(stk_engine_stream(engine, "POST", "/images/load?quiet=1", headers, fd, on_loaded,
                              &answer, err));
    if (*answer.error != '\0') {
        return stk_err_set(err, STK_E_ENV, "%s doesn't take the image: %s", engine->name,
                           answer.error);
    }
    return 0;
}

static int push_by_engine(const stk_engine *engine, const stk_image_bundle *bundle,
                          const stk_image_ref *ref, const char *tar, stk_arena *arena,
                          const char **ret_digest, stk_err *err)
{
    const char *name = stk_image_text(ref, arena);
    const char *path = stk_arena_printf(arena, "%s.image", tar);
    if (name == NULL || path == NULL) {
        return stk_err_nomem(err);
    }
    int rc = stk_image_bundle_save(bundle, name, path, err);
    if (rc == 0) {
        rc = load_archive(engine, path, err);
    }
    (void)unlink(path);
    STK_TRY(rc);
    return stk_image_push(engine, ref, NULL, NULL, ret_digest, arena, err);
}

/* Is an engine to push it? STK_E_NOT_FOUND without one is fine where none is asked for. */
static int choose_engine(const char *by, stk_arena *arena, stk_engine *ret, bool *ret_is_there,
                         stk_err *err)
{
    stk_err why = {0};
    *ret_is_there = false;
    if (by != NULL && strcmp(by, "registry") == 0) {
        return 0;
    }
    if (stk_engine_find(NULL, arena, ret, &why) == 0) {
        bool is_asked = by == NULL || strcmp(by, "engine") == 0;
        *ret_is_there = is_asked || strcmp(by, stk_engine_program(ret)) == 0;
        if (!*ret_is_there) {
            stk_err_set(err, STK_E_ENV, "the container engine here is %s (%s), not %s", ret->name,
                        ret->source, by);
            stk_err_hint(err, "name the other one's socket in DOCKER_HOST");
            return STK_E_ENV;
        }
        return 0;
    }
    if (by != NULL) {
        *err = why;
        return why.code;
    }
    return 0;
}

int stk_image_send(const stk_image_send_how *how, stk_arena *arena, stk_image_sent *ret,
                   stk_err *err)
{
    stk_image_bundle bundle;
    stk_image_ref ref;
    stk_engine engine;
    bool has_engine = false;
    const char *digest = NULL;
    STK_TRY(stk_image_parse(how->name, arena, &ref, err));
    if (ref.digest != NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "image '%s' is named by a digest, which only what is "
                           "there already has; name a tag",
                           how->name);
    }
    *ret = (stk_image_sent){.name = stk_image_text(&ref, arena), .by = "a file"};
    STK_TRY(stk_err_if_null(ret->name, err));
    if (how->archive == NULL) {
        STK_TRY(choose_engine(how->by, arena, &engine, &has_engine, err));
    }
    STK_TRY(stk_image_bundle_make(how->tar, how->entrypoint, arena, &bundle, err));
    ret->bytes = (int64_t)bundle.layer.len;
    ret->id = bundle.config.digest;
    if (how->archive != NULL) {
        return stk_image_bundle_save(&bundle, ret->name, how->archive, err);
    }
    if (has_engine) {
        STK_TRY(push_by_engine(&engine, &bundle, &ref, how->tar, arena, &digest, err));
        ret->by = engine.name;
    } else {
        STK_TRY(stk_image_bundle_push(&bundle, &ref, arena, err));
        digest = bundle.manifest.digest;
        ret->by = "Stoker itself";
    }
    ret->pinned = stk_arena_printf(arena, "%s/%s@%s", ref.registry, ref.repository, digest);
    return stk_err_if_null(ret->pinned, err);
}
