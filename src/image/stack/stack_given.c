/* Options that the user gives with a stack's name: "lab:partition=gpu,long,exclusive=true". */
#include <ctype.h>
#include <string.h>

#include "base/text.h"
#include "image/stack/stack_private.h"

static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES, STK_LIMIT_DEPTH};

/* Where the next NAME= begins, behind a comma: values may have commas, too. */
static const char *next_pair(const char *at)
{
    for (at = strchr(at, ','); at != NULL; at = strchr(at + 1, ',')) {
        const char *name = at + 1;
        size_t n = 0;
        while (isalnum((unsigned char)name[n]) || name[n] == '_' || name[n] == ' ') {
            n++;
        }
        if (n > 0 && name[n] == '=') {
            return at;
        }
    }
    return NULL;
}

static char *trimmed(const char *text, size_t len, stk_arena *arena)
{
    while (len > 0 && isspace((unsigned char)*text)) {
        text++;
        len--;
    }
    while (len > 0 && isspace((unsigned char)text[len - 1])) {
        len--;
    }
    return stk_arena_dupn(arena, text, len);
}

/* Values are JSON, else texts, as behind a flow's --with. */
static int read_pair(const char *text, size_t len, const char *said, stk_json *options,
                     stk_arena *arena, stk_err *err)
{
    const char *equals = memchr(text, '=', len);
    stk_json node = {0};
    size_t n_name = equals == NULL ? 0 : (size_t)(equals - text);
    const char *name = trimmed(text, n_name, arena);
    STK_TRY(stk_err_if_null(name, err));
    if (name[0] == '\0') {
        return stk_err_set(err, STK_E_USAGE,
                           "'%.200s': '%.*s' sets no option; write STACK:NAME=VALUE,NAME=VALUE",
                           said, (int)(len < 100 ? len : 100), text);
    }
    const char *value = trimmed(equals + 1, len - n_name - 1, arena);
    STK_TRY(stk_err_if_null(value, err));
    if (stk_json_parse(value, strlen(value), NULL, &limits, arena, &node, NULL) < 0) {
        node = (stk_json){.text = value, .n = (uint32_t)strlen(value), .kind = STK_JSON_TEXT};
    }
    return stk_json_set(arena, options, name, node) ? 0 : stk_err_nomem(err);
}

/* The stack as its file has it, before it was completed. */
static int forget_defaults(stk_spec_reader *r, stk_stack *stack, const stk_json *given)
{
    const stk_json *hosts = stk_json_get(given, "hosts");
    bool is_on_host =
        stack->store_from != NULL && strcmp(stack->store_from, STK_STACK_FIRST_HOST) == 0;
    stack->n_inherited = 0;
    if (is_on_host) {
        stack->store = stack->store_from = NULL;
    }
    return hosts == NULL ? 0 : stk_stack_read_hosts(r, hosts, stack);
}

int stk_stack_take_given(stk_stack *stack, const char *given, const char *said, stk_arena *arena,
                         stk_err *err)
{
    stk_json options = stk_json_of_map(), under = stk_json_of_map();
    const char *own = stk_text_or(stack->own_options, stack->options);
    stk_spec_reader r = {.arena = arena, .err = err};
    if (!stk_place_is_elsewhere(stack->kind)) {
        return stk_err_set(err, STK_E_USAGE,
                           "'%.200s': stack '%.80s' runs steps on this machine and has no options",
                           said, stack->name);
    }
    for (const char *at = given; at != NULL;) {
        const char *end = next_pair(at);
        size_t len = end == NULL ? strlen(at) : (size_t)(end - at);
        STK_TRY(read_pair(at, len, said, &options, arena, err));
        at = end == NULL ? NULL : end + 1;
    }
    if (own != NULL) {
        STK_TRY(stk_json_parse(own, strlen(own), NULL, &limits, arena, &under, err));
    }
    STK_TRY(forget_defaults(&r, stack, &options));
    STK_TRY(stk_spec_merge(&r, &under, &options, &options));
    stack->options = stk_json_dump_in(&options, arena);
    return stk_err_if_null(stack->options, err);
}
