/* Options of machines over SSH: the table, and hosts by name. */
#include <string.h>

#include "away/ssh/ssh_private.h"

static const stk_option_row rows[] = {
#define X(name, type, how, text) STK_OPTION_ROW(name, type, how, text)
#include "tbl/ssh_options.def"
#undef X
};

static const stk_option_table table = {
    .rows = rows, .n = sizeof rows / sizeof *rows, .name = "SSH", .page = "docs/ssh.md lists them"};

/* Hosts as the stack names them: a step can name one of them, and addresses are of them. */
static int check_hosts(const stk_remote_options *o, const char *stack, stk_err *err)
{
    const stk_json *hosts = NULL, *addresses = NULL;
    uint32_t n = stk_remote_option_texts(o, "hosts", &hosts);
    uint32_t n_addresses = stk_remote_option_texts(o, "address", &addresses);
    if (n == 0) {
        stk_err_set(err, STK_E_SPEC, "stack '%s' names no hosts", stack);
        stk_err_hint(err, "add `hosts: [HOST]` to it in stoker.yaml, with a name that ssh knows");
        return STK_E_SPEC;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(hosts[i].text, hosts[k].text) == 0) {
                return stk_err_set(err, STK_E_SPEC, "stack '%s' names host '%s' twice", stack,
                                   hosts[i].text);
            }
        }
    }
    const char *pinned = stk_remote_option_text(o, "host");
    if (pinned != NULL && stk_ssh_find_host(o, pinned, strlen(pinned)) < 0) {
        return stk_err_set(err, STK_E_SPEC,
                           "option 'host' is '%s', which isn't a host of stack '%s'", pinned,
                           stack);
    }
    for (uint32_t i = 0; i < n_addresses; i++) {
        const char *text = addresses[i].text;
        size_t len = strcspn(text, "=");
        if (text[len] != '=' || text[len + 1] == '\0' || stk_ssh_find_host(o, text, len) < 0) {
            return stk_err_set(err, STK_E_SPEC,
                               "option 'address' has '%s'; it must be HOST=ADDRESS with a host of "
                               "stack '%s'",
                               text, stack);
        }
    }
    return 0;
}

int stk_ssh_find_host(const stk_remote_options *options, const char *name, size_t len)
{
    const stk_json *hosts = NULL;
    uint32_t n = stk_remote_option_texts(options, "hosts", &hosts);
    for (uint32_t i = 0; i < n; i++) {
        if (strlen(hosts[i].text) == len && strncmp(hosts[i].text, name, len) == 0) {
            return (int)i;
        }
    }
    return -1;
}

int stk_ssh_options_read(const char *stack, const char *step, const char *options,
                         const char *stack_options, stk_arena *arena, stk_remote_options *ret,
                         stk_err *err)
{
    STK_TRY(stk_remote_options_read(&table, step, options, stack_options, arena, ret, err));
    return check_hosts(ret, stack, err);
}
