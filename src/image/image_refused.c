/* What a registry's refusal means, and the way out: a log-in, a right, another name, time. */
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"

typedef struct way {
    const char *pattern, *before, *after; /* how to log in */
    const char *pull, *push;              /* the rights, by their names in that cloud */
    const char *make;                     /* how a repository is made; NULL: a push makes it */
} way;

static const way *way_of(const char *registry)
{
    static const way ways[] = {
#define X(pattern, before, after, pull, push, make) {pattern, before, after, pull, push, make},
#include "tbl/registries.def"
#undef X
    };
    size_t i = 0;
    while (fnmatch(ways[i].pattern, registry, 0) != 0) { /* the last fits all */
        i++;
    }
    return &ways[i];
}

static const char *way_in(const char *registry, stk_arena *arena)
{
    const way *its = way_of(registry);
    if (strcmp(registry, "docker.io") == 0) {
        registry = "";
    }
    return stk_arena_printf(arena, "%s%s%s", its->before, registry, its->after);
}

static bool says(const char *words, const char *const *any)
{
    for (; words != NULL && *any != NULL; any++) {
        if (strcasestr(words, *any) != NULL) {
            return true;
        }
    }
    return false;
}

/* Is the log-in fine, but has no right to this? */
static bool lacks_right(int status, const char *words)
{
    static const char *const rights[] = {
        "not authorized to perform", "permission", "denied", "insufficient", "forbidden", NULL};
    static const char *const logins[] = {"expired", "token is invalid", "incorrect", NULL};
    return (status == 403 || says(words, rights)) && !says(words, logins);
}

static int refuse_access(const stk_image_ref *ref, const char *name, int status, const char *what,
                         const char *words, const stk_image_login *login, bool pushes,
                         stk_arena *arena, stk_err *err)
{
    const char *why = "no credentials were found, or the image doesn't exist";
    const char *hint = way_in(ref->registry, arena);
    if (pushes) {
        why = "no credentials were found";
    }
    if (login->source != NULL) {
        const way *its = way_of(ref->registry);
        bool lacks = lacks_right(status, words);
        const char *verb = pushes ? "push" : "pull from";
        why = stk_arena_printf(arena,
                               lacks ? "the account of %s may not %s there"
                                     : "it rejects the credentials from %s",
                               login->source, verb);
        if (lacks) {
            hint = stk_arena_printf(arena, "ask for the right (%s), or log in as another account",
                                    pushes ? its->push : its->pull);
        }
    }
    stk_err_set(err, STK_E_ENV, "registry %s refuses %simage %s (%s): %s", ref->registry,
                stk_text_when(pushes, "the push of "), name, what, stk_text_or(why, "no memory"));
    stk_err_hint(err, "%s", stk_text_or(hint, ""));
    if (err != NULL) {
        err->sys = EACCES;
    }
    return STK_E_ENV;
}

/* A push to a repository that must be made first. */
static int refuse_repository(const stk_image_ref *ref, const char *words, stk_err *err)
{
    const way *its = way_of(ref->registry);
    stk_err_set(err, STK_E_NOT_FOUND, "registry %s has no repository %s to push to", ref->registry,
                ref->repository);
    if (words != NULL) {
        stk_err_set(err, STK_E_NOT_FOUND, "registry %s has no repository %s to push to (%s)",
                    ref->registry, ref->repository, words);
    }
    stk_err_hint(err, "make it, or correct the image's name");
    if (its->make != NULL) {
        stk_err_hint(err, "make it: %s%s", its->make, ref->repository);
    }
    return STK_E_NOT_FOUND;
}

int stk_image_refused(const stk_image_ref *ref, int status, const char *words, const char *retry,
                      const stk_image_login *login, bool pushes, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    bool is_known = login->source != NULL;
    STK_TRY(stk_err_if_null(arena, err));
    const char *name = stk_image_text(ref, arena);
    const char *what = stk_arena_printf(arena, "%d", status);
    words = stk_text_if_any(words);
    if (words != NULL) {
        what = stk_arena_printf(arena, "%d, %s", status, words);
    }
    if (status == 401 || status == 403) {
        return refuse_access(ref, name, status, what, words, login, pushes, arena, err);
    }
    if (status == 404 && pushes) {
        return refuse_repository(ref, words, err);
    }
    if (status == 404) {
        stk_err_set(err, STK_E_NOT_FOUND, "registry %s has no image %s", ref->registry, name);
        if (words != NULL) {
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
    stk_err_set(err, STK_E_ENV, "registry %s answers %s to the %s image %s", ref->registry, what,
                pushes ? "push of" : "request for", name);
    stk_err_hint(err, status >= 500 ? "the registry has a problem; try again later"
                                    : "check the image's name");
    return STK_E_ENV;
}
