/* What the name of an image tells, and its environment: framework, CUDA, Python, whom it is made
 * for. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"

typedef enum { WORDS, START, RELEASES } reads;
#define FOR(who) STK_IMAGE_FOR_##who

typedef struct family {
    const char *key, *shown, *registry, *repository, *framework;
    reads reads;
    int without;
} family;

static const family families[] = {
#define READS_WORDS WORDS
#define READS_START START
#define READS_RELEASE RELEASES
#define FAMILY(key, shown, registry, repository, framework, how, without)                          \
    {#key, shown, registry, repository, framework, READS_##how, FOR(without)},
#include "tbl/images.def"
};

static const struct {
    const char *month;
    int32_t cuda;
} releases[] = {
#define RELEASE(month, cuda) {month, cuda},
#include "tbl/images.def"
};

static const struct {
    const char *version;
    int32_t cuda;
} tensorflows[] = {
#define VERSION(version, cuda) {version, cuda},
#include "tbl/images.def"
};

static const struct {
    const char *family;
    int32_t cuda;
    const char *repository, *tag;
} tags[] = {
#define TAG(family, cuda, repository, tag) {#family, cuda, repository, tag},
#include "tbl/images.def"
};

static const family *find_family(const stk_image_ref *ref)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const family *f = &families[i];
        char below[160];
        (void)snprintf(below, sizeof below, "*/%s", f->repository);
        if (fnmatch(f->registry, ref->registry, 0) == 0 &&
            (fnmatch(f->repository, ref->repository, 0) == 0 ||
             (strcmp(f->registry, "*") == 0 && fnmatch(below, ref->repository, 0) == 0))) {
            return f;
        }
    }
    return NULL;
}

/* --- words --- */

/* The place behind the next `word` that begins a word of `text`; NULL: there is none. */
static const char *word_at(const char *text, const char *from, const char *word)
{
    for (const char *at = from; (at = strstr(at, word)) != NULL; at++) {
        if (at == text || !isalnum((unsigned char)at[-1])) {
            return at + strlen(word);
        }
    }
    return NULL;
}

static bool begins_word(const char *text, const char *word)
{
    return word_at(text, text, word) != NULL;
}

static bool has_word(const char *text, const char *word)
{
    const char *end = text;
    while ((end = word_at(text, end, word)) != NULL && isalnum((unsigned char)*end)) {
    }
    return end != NULL;
}

/* "12.1" and "12.1.1", "121", "12", "92" behind "cu" → 12010 …; -1. In Google's "cu121.2-2" what
 * follows is the framework's version. */
static int32_t cuda_number(const char *text)
{
    char *end;
    long major = strtol(text, &end, 10);
    if (end == text || major < 1 || major > 999) {
        return -1;
    }
    if (major < 30 && *end == '.' && isdigit((unsigned char)end[1])) {
        long minor = strtol(end + 1, NULL, 10);
        if (minor > 99) {
            return -1;
        }
        return (int32_t)(major * 1000 + minor * 10);
    }
    if (major >= 30) { /* 121 is 12.1 */
        return (int32_t)(major / 10 * 1000 + major % 10 * 10);
    }
    return (int32_t)(major * 1000);
}

static int32_t cuda_word(const char *text)
{
    static const char *const starts[] = {"cuda", "cu"};
    for (size_t i = 0; i < 2; i++) {
        for (const char *at = text; (at = word_at(text, at, starts[i])) != NULL;) {
            bool joined = i == 0 && (*at == '-' || *at == '_');
            int32_t cuda = cuda_number(at + joined);
            if (cuda > 0) {
                return cuda;
            }
        }
    }
    return -1;
}

/* "py312", "py3.12", "python3.12" → "3.12"; "py3" says nothing. */
static const char *python_word(const char *text, stk_arena *arena)
{
    static const char *const starts[] = {"python3", "py3"};
    for (size_t i = 0; i < 2; i++) {
        for (const char *at = text; (at = word_at(text, at, starts[i])) != NULL;) {
            const char *minor = at + (*at == '.');
            size_t n = strspn(minor, "0123456789");
            if (n == 1 || n == 2) {
                return stk_arena_printf(arena, "3.%.*s", (int)n, minor);
            }
        }
    }
    return NULL;
}

/* "2.9.0" at the beginning of a tag, "pytorch-gpu.2-0" in Google's repositories. */
static const char *version_word(const family *f, const stk_image_ref *ref, stk_arena *arena)
{
    size_t n = strspn(stk_text_or(ref->tag, ""), "0123456789.");
    if (f->framework == NULL || f->reads == RELEASES || n < 3 || strchr(ref->tag, '.') == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, ref->tag, n);
}

static int32_t cuda_of_name(const family *f, const stk_image_ref *ref, const char *text)
{
    if (f != NULL && f->reads == START && ref->tag != NULL && isdigit((unsigned char)*ref->tag)) {
        return cuda_number(ref->tag);
    }
    for (size_t i = 0; f != NULL && f->reads == RELEASES && ref->tag != NULL &&
                       i < sizeof releases / sizeof releases[0];
         i++) {
        if (isdigit((unsigned char)*ref->tag) &&
            stk_preflight_compare_versions(ref->tag, releases[i].month) >= 0) {
            return releases[i].cuda;
        }
    }
    return cuda_word(text);
}

/* "2.15.0" and "2.15.0rc1" are 2.15; -1: another version. */
static int32_t cuda_of_tensorflow(const char *version)
{
    for (size_t i = 0; i < sizeof tensorflows / sizeof tensorflows[0]; i++) {
        size_t n = strlen(tensorflows[i].version);
        if (strncmp(version, tensorflows[i].version, n) == 0 &&
            !isdigit((unsigned char)version[n])) {
            return tensorflows[i].cuda;
        }
    }
    return -1;
}

static int made_for(const family *f, const char *text, int32_t cuda)
{
    static const struct {
        const char *word;
        int who;
    } words[] = {{"rocm", FOR(AMD)},    {"neuronx", FOR(AWS)}, {"neuron", FOR(AWS)},
                 {"xpu", FOR(INTEL)},   {"tpu", FOR(GOOGLE)},  {"gpu", FOR(NVIDIA)},
                 {"cuda", FOR(NVIDIA)}, {"cpu", FOR(CPU)}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *end = text;
        while ((end = word_at(text, end, words[i].word)) != NULL && isalpha((unsigned char)*end)) {
        }
        if (end != NULL) {
            return words[i].who;
        }
    }
    if (cuda > 0) {
        return FOR(NVIDIA);
    }
    return f != NULL ? f->without : FOR(UNKNOWN);
}

static const char *framework_word(const char *text)
{
    if (begins_word(text, "pytorch") || has_word(text, "torch")) {
        return "torch";
    }
    if (begins_word(text, "tensorflow")) {
        return "tensorflow";
    }
    return has_word(text, "jax") ? "jax" : NULL;
}

/* --- its environment --- */

const char *stk_image_env(const stk_image_config *config, const char *name)
{
    size_t n = strlen(name);
    for (const char *const *e = config->env; e != NULL && *e != NULL; e++) {
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') {
            return *e + n + 1;
        }
    }
    return NULL;
}

static const char *given(const char *value, stk_arena *arena)
{
    return stk_arena_dup(arena, stk_text_if_any(value));
}

static void read_environment(const stk_image_config *config, stk_arena *arena, stk_image_facts *f)
{
    const char *cuda = stk_image_env(config, "CUDA_VERSION");
    const char *nvidia = stk_image_env(config, "NVIDIA_VISIBLE_DEVICES");
    const char *python = given(stk_image_env(config, "PYTHON_VERSION"), arena);
    const char *torch = given(stk_image_env(config, "PYTORCH_VERSION"), arena);
    int32_t number = cuda_number(stk_text_or(cuda, ""));
    if (number > 0 || stk_image_env(config, "NVIDIA_REQUIRE_CUDA") != NULL) {
        f->made_for = FOR(NVIDIA);
        if (number > 0) {
            f->cuda = number;
        }
        f->source = "its environment";
    } else if (stk_image_env(config, "ROCM_PATH") != NULL && f->made_for == FOR(UNKNOWN)) {
        f->made_for = FOR(AMD);
        f->source = "its environment";
    } else if (nvidia != NULL && strcmp(nvidia, "void") != 0 && f->made_for == FOR(UNKNOWN)) {
        f->made_for = FOR(NVIDIA);
        f->source = "its environment";
    }
    f->python = stk_text_or(python, f->python);
    if (torch != NULL) {
        f->framework = "torch";
        f->version = torch;
    }
}

int stk_image_facts_of(const char *name, const stk_image_config *config, stk_arena *arena,
                       stk_image_facts *ret, stk_err *err)
{
    stk_image_ref ref = {0};
    stk_image_facts f = {.cuda = -1};
    if (!stk_image_is_id(name)) {
        STK_TRY(stk_image_parse(name, arena, &ref, err));
        const family *known = find_family(&ref);
        const char *tag = stk_text_or(ref.tag, "");
        char *text = stk_arena_printf(arena, "%s:%s", ref.repository, tag);
        STK_TRY(stk_err_need(text, "for the name of an image", err));
        for (char *c = text; *c != '\0'; c++) {
            *c = (char)tolower((unsigned char)*c);
        }
        f.framework = framework_word(text);
        if (known != NULL) {
            f.family = known->shown;
            f.framework = stk_text_or(known->framework, f.framework);
            f.version = version_word(known, &ref, arena);
        }
        f.cuda = cuda_of_name(known, &ref, text);
        f.made_for = made_for(known, text, f.cuda);
        if (f.cuda < 0 && f.made_for == FOR(NVIDIA) && f.version != NULL &&
            strcmp(known->key, "tensorflow") == 0) {
            f.cuda = cuda_of_tensorflow(f.version);
        }
        f.source = "its name";
        if (known != NULL && strcmp(known->key, "python") == 0 && isdigit((unsigned char)*tag)) {
            f.python = stk_arena_dupn(arena, tag, strspn(tag, "0123456789."));
        } else {
            f.python = python_word(text, arena);
        }
    }
    if (config != NULL) {
        read_environment(config, arena, &f);
    }
    *ret = f;
    return 0;
}

/* --- what to take instead --- */

static const char *suggest(const char *key, const stk_image_ref *ref, int32_t major,
                           stk_arena *arena)
{
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (strcmp(tags[i].family, key) != 0 ||
            (major > 0 && tags[i].cuda > 0 && tags[i].cuda / 1000 > major)) {
            continue;
        }
        const char *repository = stk_text_or(tags[i].repository, ref->repository);
        if (strcmp(ref->registry, "docker.io") == 0) {
            return stk_arena_printf(arena, "%s:%s", repository, tags[i].tag);
        }
        return stk_arena_printf(arena, "%s/%s:%s", ref->registry, repository, tags[i].tag);
    }
    return NULL;
}

const char *stk_image_suggest(const char *name, const char *framework, int32_t major,
                              stk_arena *arena)
{
    static const struct {
        const char *framework, *family, *registry, *repository;
    } own[] = {{"torch", "pytorch", "docker.io", "pytorch/pytorch"},
               {"tensorflow", "tensorflow", "docker.io", "tensorflow/tensorflow"},
               {"jax", "ngc_jax", "nvcr.io", "nvidia/jax"},
               {"", "cuda", "docker.io", "nvidia/cuda"}};
    stk_image_ref ref;
    if (!stk_image_is_id(name) && stk_image_parse(name, arena, &ref, NULL) == 0) {
        const family *f = find_family(&ref);
        if (f != NULL) {
            const char *same = suggest(f->key, &ref, major, arena);
            if (same != NULL) {
                return same;
            }
            framework = stk_text_or(framework, f->framework);
        }
        framework = stk_text_or(framework, framework_word(ref.repository));
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(own[i].framework, stk_text_or(framework, "")) == 0 ||
            *own[i].framework == '\0') {
            const stk_image_ref at = {own[i].registry, own[i].repository, NULL, NULL};
            return suggest(own[i].family, &at, major, arena);
        }
    }
    return NULL;
}
