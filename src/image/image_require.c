/* NVIDIA_REQUIRE_*: what an image wants of a host, in the language of NVIDIA's container tools.
 *
 *     alternative [alternative…]      one of them is enough
 *     term[,term…]                    all of them
 *     NAME OP VALUE                   cuda>=12.8, driver<536, brand=tesla, arch>=7.0
 *
 * NAME in any case; OP one of < <= > >= = !=. What isn't known is neither true nor false. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

#include "image/image_private.h"

typedef struct host {
    const char *names[4], *values[4];
} host;

static int compare(const char *op, int order)
{
    static const struct {
        const char *op;
        bool less, equal, greater;
    } ops[] = {{"<", true, false, false}, {"<=", true, true, false}, {">", false, false, true},
               {">=", false, true, true}, {"=", false, true, false}, {"!=", true, false, true}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (strcmp(op, ops[i].op) == 0) {
            return (order < 0 && ops[i].less) || (order == 0 && ops[i].equal) ||
                   (order > 0 && ops[i].greater);
        }
    }
    return -1;
}

/* 1, 0, -1: can't be told. `why` where 0. */
static int term(const char *text, size_t n, const host *h, char *why, size_t size)
{
    char name[32], op[3] = "", value[64];
    size_t end = 0, k = 0;
    while (end < n && strchr("<>=!", text[end]) == NULL) {
        end++;
    }
    while (end + k < n && k < 2 && strchr("<>=!", text[end + k]) != NULL) {
        op[k] = text[end + k];
        k++;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)end, text);
    (void)snprintf(value, sizeof value, "%.*s", (int)(n - end - k), text + end + k);
    const char *have = NULL;
    for (size_t i = 0; i < 4 && have == NULL; i++) {
        if (strcasecmp(name, h->names[i]) == 0) {
            have = h->values[i];
        }
    }
    if (have == NULL || *op == '\0' || *value == '\0') {
        return -1;
    }
    int order;
    if (strcasecmp(name, "brand") != 0) {
        order = stk_preflight_compare_versions(have, value);
    } else if (strcmp(op, "=") == 0 || strcmp(op, "!=") == 0) {
        order = strcasecmp(have, value);
    } else {
        return -1;
    }
    int fits = compare(op, order);
    if (fits == 0) {
        (void)snprintf(why, size, "it needs %s %s %s, but this host has %s", name, op, value, have);
    }
    return fits;
}

static int alternative(const char *text, size_t n, const host *h, char *why, size_t size)
{
    int all = 1;
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && text[i + len] != ',') {
            len++;
        }
        if (len > 0) {
            int one = term(text + i, len, h, why, size);
            if (one == 0) {
                return 0;
            }
            all = MIN(all, one);
        }
        i += len + 1;
    }
    return all;
}

int stk_image_require(const char *text, const char *cuda, const char *driver, const char *brand,
                      const char *arch, char *why, size_t size)
{
    const host h = {{"cuda", "driver", "brand", "arch"}, {cuda, driver, brand, arch}};
    char unused[160];
    const char *at = text + strspn(text, " \t\n");
    int any = 0;
    if (*at == '\0') {
        return 1;
    }
    while (*at != '\0') {
        size_t n = strcspn(at, " \t\n");
        int one = alternative(at, n, &h, why, size);
        if (one == 1) {
            return 1;
        }
        any = MIN(any, one);
        at += n + strspn(at + n, " \t\n");
        /* the first alternative is what the image is for; the others are special hosts */
        why = unused;
        size = sizeof unused;
    }
    return any;
}
