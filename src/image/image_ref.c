/* Names of images, as Docker understands them. */
#include <ctype.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"

enum { MAX_NAME = 255, MAX_TAG = 128 };

static bool is_registry(const char *first, size_t n)
{
    return memchr(first, '.', n) != NULL || memchr(first, ':', n) != NULL ||
           (n == 9 && memcmp(first, "localhost", 9) == 0);
}

static int fail_reference(stk_err *err, const char *text, const char *why)
{
    stk_err_set(err, STK_E_SPEC, "'%s' isn't a valid name of an image: %s", text, why);
    stk_err_hint(err, "write [registry/]repository[:tag] or repository@sha256:…");
    return STK_E_SPEC;
}

/* Lower-case words, joined by one of . _ __ - or /. NULL: fine. */
static const char *wrong_repository(const char *name)
{
    const char *last = "";
    if (*name == '\0') {
        return "the repository is missing";
    }
    for (const char *c = name; *c != '\0'; c++) {
        bool separator = strchr("._-/", *c) != NULL;
        bool pair = *last == *c && (*c == '_' || *c == '-');
        if (isupper((unsigned char)*c)) {
            return "repositories must be lower case";
        }
        if (!separator && !islower((unsigned char)*c) && !isdigit((unsigned char)*c)) {
            return "a repository must have only letters, digits and . _ - /";
        }
        if (separator && (*last == '\0' || c[1] == '\0' || (strchr("._-/", *last) && !pair))) {
            return "a separator (. _ - /) must stand between two words";
        }
        last = c;
    }
    return strlen(name) > MAX_NAME ? "it is longer than 255 characters" : NULL;
}

static const char *wrong_tag(const char *tag)
{
    size_t n = strlen(tag);
    for (const char *c = tag; *c != '\0'; c++) {
        bool word = isalnum((unsigned char)*c) || *c == '_';
        if (!word && (c == tag || (*c != '.' && *c != '-'))) {
            return "a tag must have only letters, digits and _ . - and begin with a letter, digit "
                   "or _";
        }
    }
    if (n == 0) {
        return "the tag is empty";
    }
    return n > MAX_TAG ? "the tag is longer than 128 characters" : NULL;
}

static bool is_digest(const char *text)
{
    size_t n = 0;
    if (strncmp(text, "sha256:", 7) == 0) {
        n = 64;
    } else if (strncmp(text, "sha512:", 7) == 0) {
        n = 128;
    }
    return n > 0 && strlen(text + 7) == n && strspn(text + 7, "0123456789abcdef") == n;
}

bool stk_image_is_id(const char *text)
{
    return is_digest(text);
}

#define FOR_NAME "for the name of an image"

int stk_image_parse(const char *text, stk_arena *arena, stk_image_ref *ret, stk_err *err)
{
    const char *rest = text;
    const char *registry = "docker.io", *tag = NULL, *digest = NULL;
    if (strncmp(text, "docker://", 9) == 0) {
        rest += 9;
    }
    size_t n = strcspn(rest, "@"), first = strcspn(rest, "/@");
    if (rest[n] == '@') {
        digest = stk_arena_dup(arena, rest + n + 1);
        STK_TRY(stk_err_need(digest, FOR_NAME, err));
    }
    if (digest != NULL && !is_digest(digest)) {
        return fail_reference(err, text, "the part after @ isn't a digest");
    }
    if (is_digest(rest)) {
        return fail_reference(err, text, "it is an id, which only the container engine knows");
    }
    if (first < n && is_registry(rest, first)) {
        registry = stk_arena_dupn(arena, rest, first);
        STK_TRY(stk_err_need(registry, FOR_NAME, err));
        rest += first + 1;
        n -= first + 1;
    }
    char *repository = stk_arena_dupn(arena, rest, n);
    STK_TRY(stk_err_need(repository, FOR_NAME, err));
    char *colon = strrchr(repository, ':');
    if (colon != NULL) {
        *colon = '\0';
        tag = colon + 1;
    } else if (digest == NULL) {
        tag = "latest";
    }
    const char *wrong = wrong_repository(repository);
    if (wrong == NULL && tag != NULL) {
        wrong = wrong_tag(tag);
    }
    if (wrong != NULL) {
        return fail_reference(err, text, wrong);
    }
    if (strcmp(registry, "index.docker.io") == 0 || strcmp(registry, "registry-1.docker.io") == 0) {
        registry = "docker.io";
    }
    if (strcmp(registry, "docker.io") == 0 && strchr(repository, '/') == NULL) {
        repository = stk_arena_printf(arena, "library/%s", repository);
    }
    *ret = (stk_image_ref){registry, repository, digest == NULL ? tag : NULL, digest};
    return stk_err_need(repository, FOR_NAME, err);
}

const char *stk_image_text(const stk_image_ref *ref, stk_arena *arena)
{
    const char *joint = ref->digest != NULL ? "@" : ":";
    return stk_arena_printf(arena, "%s/%s%s%s", ref->registry, ref->repository, joint,
                            stk_text_or(ref->digest, ref->tag));
}
