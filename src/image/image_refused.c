/* What a registry's refusal means, and the way out: a login, another name, time. */
#include <fnmatch.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"

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
    if (strcmp(registry, "docker.io") == 0) {
        registry = "";
    }
    return stk_arena_printf(arena, "%s%s%s", ways[i].before, registry, ways[i].after);
}

int stk_image_refused(const stk_image_ref *ref, int status, const char *words, const char *retry,
                      const stk_image_login *login, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    bool is_known = login->source != NULL;
    STK_TRY(stk_err_if_null(arena, err));
    const char *name = stk_image_text(ref, arena);
    const char *what = stk_arena_printf(arena, "%d", status);
    if (words != NULL && *words != '\0') {
        what = stk_arena_printf(arena, "%d, %s", status, words);
    }
    if (status == 401 || status == 403) {
        stk_err_set(err, STK_E_ENV, "registry %s refuses image %s (%s): %s%s", ref->registry, name,
                    what,
                    is_known ? "it rejects the credentials from "
                             : "no credentials were found, or the image doesn't exist",
                    stk_text_or(login->source, ""));
        stk_err_hint(err, "%s", way_in(ref->registry, arena));
        return STK_E_ENV;
    }
    if (status == 404) {
        stk_err_set(err, STK_E_NOT_FOUND, "registry %s has no image %s", ref->registry, name);
        if (words != NULL && *words != '\0') {
            stk_err_set(err, STK_E_NOT_FOUND, "registry %s has no image %s (%s)", ref->registry,
                        name, words);
        }
        stk_err_hint(err, "look at the repository's tags, or correct the image's name");
        return STK_E_NOT_FOUND;
    }
    if (status == 429) {
        if (retry != NULL) {
            what = stk_arena_printf(arena, "%s; again in s: %s", what, retry);
        }
        stk_err_set(err, STK_E_BUSY, "registry %s limits requests from here (%s)", ref->registry,
                    what);
        stk_err_hint(err, "%s; or name a mirror in image_map of stoker.yaml",
                     is_known ? "wait" : "log in: registered users have a higher limit");
        return STK_E_BUSY;
    }
    stk_err_set(err, STK_E_ENV, "registry %s answers %s to the request for image %s", ref->registry,
                what, name);
    stk_err_hint(err, status >= 500 ? "the registry has a problem; try again later"
                                    : "check the image's name");
    return STK_E_ENV;
}
