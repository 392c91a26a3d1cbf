/* AWS's own configuration files: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/aws/aws_private.h"

enum { ENTRIES_MAX = 100000 };

static const char *trimmed(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]) != NULL) {
        text[--n] = '\0';
    }
    return text;
}

/* "[profile x]", "[x]", "[services x]" → "profile x" …; NULL: of no use. */
static const char *read_section(stk_arena *arena, char *line, bool credentials)
{
    char *end = strchr(line, ']');
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    const char *name = trimmed(line + 1);
    size_t word = strcspn(name, " \t");
    if (credentials || strcmp(name, "default") == 0) {
        return stk_arena_printf(arena, "profile %s", name);
    }
    const char *rest = name + word + strspn(name + word, " \t");
    if (*rest == '\0') {
        return NULL; /* a profile in the config file says so */
    }
    size_t n = strlen(rest);
    if (n > 1 && (rest[0] == '"' || rest[0] == '\'') && rest[n - 1] == rest[0]) {
        return stk_arena_printf(arena, "%.*s %.*s", (int)word, name, (int)n - 2, rest + 1);
    }
    return stk_arena_printf(arena, "%.*s %s", (int)word, name, rest);
}

static int add(stk_aws_config *config, const char *section, const char *key, const char *value)
{
    if (config->n == ENTRIES_MAX) {
        return STK_E_LIMIT;
    }
    struct stk_aws_entry *more =
        stk_arena_grow(config->arena, config->entries, config->n, sizeof *more, &config->cap);
    value = stk_arena_dup(config->arena, value);
    if (more == NULL || key == NULL || value == NULL) {
        return STK_E_NOMEM;
    }
    config->entries = more;
    config->entries[config->n++] =
        (struct stk_aws_entry){.section = section, .key = key, .value = value};
    return 0;
}

static const char *lower(stk_arena *arena, const char *a, const char *b)
{
    char *key = stk_arena_printf(arena, "%s%s%s", a, a[0] != '\0' ? "." : "", b);
    for (char *c = key; c != NULL && *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            *c = (char)(*c - 'A' + 'a');
        }
    }
    return key;
}

int stk_aws_config_parse(stk_aws_config *config, const char *text, bool credentials)
{
    const char *section = NULL;
    const char *outer = ""; /* the key that nested ones stand below */
    if (config->arena == NULL) {
        config->arena = stk_arena_new(64 << 20);
    }
    char *copy = config->arena == NULL ? NULL : stk_arena_dup(config->arena, text);
    int rc = copy == NULL ? STK_E_NOMEM : 0;
    for (char *line = copy; rc == 0 && line != NULL && *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        char *next = *end == '\0' ? end : end + 1;
        *end = '\0';
        bool nested = *line == ' ' || *line == '\t';
        char *is = strchr(line, '=');
        const char *first = line + strspn(line, " \t\r");
        if (*first == '\0' || *first == '#' || *first == ';') {
            /* blank, or a comment */
        } else if (*line == '[') {
            section = read_section(config->arena, line, credentials);
            outer = "";
            rc = section == NULL ? 0 : add(config, section, "", "");
        } else if (section != NULL && is != NULL && (!nested || outer[0] != '\0')) {
            *is = '\0';
            const char *value = is + 1;
            char *comment = strstr(is + 1, " #");
            if (comment == NULL) {
                comment = strstr(is + 1, " ;");
            }
            if (comment != NULL) {
                *comment = '\0';
            }
            value = trimmed(is + 1);
            const char *key = lower(config->arena, nested ? outer : "", trimmed(line));
            rc = add(config, section, key, value);
            if (!nested) {
                outer = *value == '\0' ? key : "";
            }
        }
        line = next;
    }
    return rc;
}

const char *stk_aws_config_get(const stk_aws_config *config, const char *section, const char *key)
{
    for (uint32_t i = config->n; i > 0; i--) {
        const struct stk_aws_entry *e = &config->entries[i - 1];
        if (strcmp(e->section, section) == 0 && strcmp(e->key, key) == 0) {
            return e->value;
        }
    }
    return NULL;
}

bool stk_aws_config_has(const stk_aws_config *config, const char *section)
{
    return stk_aws_config_get(config, section, "") != NULL;
}

void stk_aws_config_done(stk_aws_config *config)
{
    stk_arena_free(config->arena);
    *config = (stk_aws_config){0};
}
