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

#include "image/image_private.h"

typedef struct host {
    const char *names[4], *values[4];
} host;

static int compare(const char *op, int order)
{
    return strcmp(op, "<") == 0    ? order < 0
           : strcmp(op, "<=") == 0 ? order <= 0
           : strcmp(op, ">") == 0  ? order > 0
           : strcmp(op, ">=") == 0 ? order >= 0
           : strcmp(op, "=") == 0  ? order == 0
           : strcmp(op, "!=") == 0 ? order != 0
                                   : -1;
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
        have = strcasecmp(name, h->names[i]) == 0 ? h->values[i] : NULL;
    }
    if (have == NULL || *op == '\0' || *value == '\0') {
        return -1;
    }
    bool word = strcasecmp(name, "brand") == 0;
    if (word && strcmp(op, "=") != 0 && strcmp(op, "!=") != 0) {
        return -1;
    }
    int order = word ? strcasecmp(have, value) != 0 : stk_preflight_compare_versions(have, value);
    int fits = compare(op, order);
    if (fits == 0) {
        (void)snprintf(why, size, "it wants %s %s %s, this host has %s", name, op, value, have);
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
        int one = len == 0 ? 1 : term(text + i, len, h, why, size);
        if (one == 0) {
            return 0;
        }
        if (one < 0) {
            all = -1;
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
    int any = -2; /* nothing said yet */
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, " \t\n");
        /* the first alternative is what the image is for; the others are special hosts */
        int one = n == 0 ? 0
                         : alternative(at, n, &h, any == -2 ? why : unused,
                                       any == -2 ? size : sizeof unused);
        if (one == 1) {
            return 1;
        }
        any = n == 0 ? any : any == -1 || one == -1 ? -1 : 0;
        at += n + strspn(at + n, " \t\n");
    }
    return any == -2 ? 1 : any;
}
