/* Machines over SSH in a stack: its hosts, and its store on the first of them. */
#include <string.h>

#include "base/text.h"
#include "image/stack/stack_private.h"
#include "model/spec/spec_read.h"

static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES, STK_LIMIT_DEPTH};

/* "ssh://[user@]host[:port]/path", or "…/~/path" below the user's home there. */
bool stk_stack_is_on_a_host(const char *url)
{
    static const char scheme[] = "ssh://";
    const char *host = url + sizeof scheme - 1;
    if (strncmp(url, scheme, sizeof scheme - 1) != 0) {
        return false;
    }
    size_t n = strcspn(host, "/");
    return n > 0 && host[n] == '/' && host[n + 1] != '\0';
}

/* [gpu1, ann@gpu2] */
int stk_stack_read_hosts(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(node, &items);
    bool is_good = true;
    if (n == 0) {
        return stk_spec_fail(
            r, node, "stack '%.80s' has no host in `hosts`: name one as ssh takes it", stack->name);
    }
    for (uint32_t i = 0; i < n; i++) {
        is_good = is_good && stk_json_text(&items[i]) != NULL && *items[i].text != '\0';
    }
    if (!is_good) {
        return stk_spec_wrong(r, node, "hosts",
                              "a list of hosts as ssh takes them: [gpu1, ann@gpu2]");
    }
    return stk_spec_read_json(r, node, &stack->hosts);
}

/* Without a list of them, the option `host` names the only one. */
static int take_only_host(stk_json *options, stk_arena *arena, stk_err *err)
{
    const stk_json *host = stk_json_get(options, "host");
    if (stk_json_get(options, "hosts") != NULL || stk_json_text(host) == NULL) {
        return 0;
    }
    stk_json hosts = stk_json_of_list(), only = *host;
    bool is_good = stk_json_append(arena, &hosts, only) != NULL &&
                   stk_json_set(arena, options, "hosts", hosts) != NULL;
    return is_good ? 0 : stk_err_nomem(err);
}

/* The hosts become an option of the backend. Without a store it is on the first of them. */
int stk_stack_lay_hosts(stk_stack *stack, stk_arena *arena, stk_err *err)
{
    stk_json options = stk_json_of_map(), hosts = {0};
    if (stack->kind != STK_PLACE_SSH) {
        return 0;
    }
    if (stack->options != NULL) {
        STK_TRY(stk_json_parse(stack->options, strlen(stack->options), NULL, &limits, arena,
                               &options, err));
    }
    if (stack->hosts != NULL) {
        STK_TRY(
            stk_json_parse(stack->hosts, strlen(stack->hosts), NULL, &limits, arena, &hosts, err));
        STK_TRY(stk_json_set(arena, &options, "hosts", hosts) ? 0 : stk_err_nomem(err));
    }
    STK_TRY(take_only_host(&options, arena, err));
    if (options.n > 0) {
        stack->options = stk_json_dump_in(&options, arena);
        STK_TRY(stk_err_if_null(stack->options, err));
    }
    const stk_json *named = stk_json_get(&options, "hosts");
    const stk_json *first = NULL;
    uint32_t n = named == NULL ? 0 : stk_json_as_list(named, &first);
    if (stack->store == NULL && n > 0 && stk_json_text(first) != NULL) {
        const char *host = stk_json_text(first);
        host += strncmp(host, "ssh://", 6) == 0 ? 6 : 0;
        stack->store = stk_arena_printf(arena, "ssh://%s/~/.local/share/stoker", host);
        stack->store_from = STK_STACK_FIRST_HOST;
        STK_TRY(stk_err_if_null(stack->store, err));
    }
    return 0;
}
