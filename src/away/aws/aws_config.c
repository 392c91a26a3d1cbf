/* AWS's own configuration files: https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "away/aws/aws_private.h"
#include "base/text.h"

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

/* "[profile x]", "[x]", "[services x]" → "profile x" …; NULL: a section to skip. */
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
        return NULL; /* in the config file, profiles are [profile NAME] */
    }
    size_t n = strlen(rest);
    if (n > 1 && (rest[0] == '"' || rest[0] == '\'') && rest[n - 1] == rest[0]) {
        return stk_arena_printf(arena, "%.*s %.*s", (int)word, name, (int)n - 2, rest + 1);
    }
    return stk_arena_printf(arena, "%.*s %s", (int)word, name, rest);
}

static int add_entry(stk_aws_config *config, const char *section, const char *key,
                     const char *value)
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

static const char *lower(stk_arena *arena, const char *outer, const char *name)
{
    char *key = stk_arena_printf(arena, "%s%s", outer, name);
    for (char *c = key; c != NULL && *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    return key;
}

int stk_aws_config_parse(stk_aws_config *config, const char *text, bool credentials)
{
    const char *section = NULL;
    const char *outer = ""; /* "KEY.": prefix of nested keys */
    if (config->arena == NULL) {
        config->arena = stk_arena_new(64 << 20);
    }
    char *copy = stk_arena_dup(config->arena, text);
    STK_TRY(stk_err_if_null(copy, NULL));
    for (char *line = copy, *next; *line != '\0'; line = next) {
        char *end = line + strcspn(line, "\n");
        next = end + (*end != '\0');
        *end = '\0';
        bool nested = *line == ' ' || *line == '\t';
        if (strchr("#;", line[strspn(line, " \t\r")]) != NULL) { /* a comment, or blank */
            continue;
        }
        if (*line == '[') {
            section = read_section(config->arena, line, credentials);
            outer = "";
            if (section != NULL) {
                STK_TRY(add_entry(config, section, "", ""));
            }
            continue;
        }
        char *is = strchr(line, '=');
        if (section == NULL || is == NULL || (nested && outer[0] == '\0')) {
            continue;
        }
        *is = '\0';
        char *comment = strstr(is + 1, " #");
        if (comment == NULL) {
            comment = strstr(is + 1, " ;");
        }
        if (comment != NULL) {
            *comment = '\0';
        }
        const char *value = trimmed(is + 1);
        const char *key = lower(config->arena, nested ? outer : "", trimmed(line));
        STK_TRY(add_entry(config, section, key, value));
        if (!nested) {
            outer = "";
        }
        if (!nested && *value == '\0') {
            outer = stk_text_or(stk_arena_printf(config->arena, "%s.", key), "");
        }
    }
    return 0;
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

const char *stk_aws_config_of_profile(const stk_aws_config *config, const char *profile,
                                      const char *key)
{
    char section[300];
    (void)snprintf(section, sizeof section, "profile %s", profile);
    return stk_text_if_any(stk_aws_config_get(config, section, key));
}

void stk_aws_config_done(stk_aws_config *config)
{
    stk_arena_free(config->arena);
    *config = (stk_aws_config){0};
}
