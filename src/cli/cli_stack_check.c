/* stoker stack check: can this stack be used? A line per finding; nothing is left behind. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_stack.h"
#include "image/contain/contain.h"

typedef struct findings {
    const stk_cli *cli;
    stk_buf list; /* with --json: the list's items */
    bool is_good;
    stk_buf bad; /* texts of bad findings, to print each only once */
} findings;

static void add_finding(void *arg, bool is_good, const char *text)
{
    findings *f = arg;
    text = stk_text_or(text, "out of memory");
    if (!is_good && f->bad.data != NULL && strstr(f->bad.data, text) != NULL) {
        return;
    }
    if (!is_good) {
        stk_buf_printf(&f->bad, "%s\n", text);
    }
    f->is_good = f->is_good && is_good;
    if (stk_cli_json(f->cli)) {
        stk_json_open(&f->list, NULL, '{');
        stk_json_put_bool(&f->list, "ok", is_good);
        stk_json_put_text(&f->list, "text", text);
        stk_json_close(&f->list, '}');
    } else {
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        stk_text_safe(&line, text, "");
        printf("%s %s\n", is_good ? "✓" : "✗", stk_text_or(line.data, ""));
    }
}

static void add_error(findings *f, const stk_err *err)
{
    char text[1400];
    (void)snprintf(text, sizeof text, "%s%s%s", err->text,
                   stk_text_when(err->hint[0] != '\0', "; "), err->hint);
    add_finding(f, false, text);
}

static void check_engine(findings *f, const stk_stack *stack, stk_arena *arena)
{
    stk_engine engine;
    stk_err err = {0};
    if (stk_engine_find(stack->socket, arena, &engine, &err) < 0) {
        add_error(f, &err);
        return;
    }
    add_finding(f, true,
                stk_arena_printf(
                    arena, "%s answers at %s (%s)%s", engine.name, engine.socket, engine.source,
                    stk_text_when(!engine.limits_memory, "; it can't limit memory: Stoker does")));
}

int stk_cli_stack_check(const stk_cli *cli, const stk_stack *stack, stk_arena *arena)
{
    findings f = {
        .cli = cli, .is_good = true, .list = STK_BUF_INIT(1u << 24), .bad = STK_BUF_INIT(1u << 16)};
    if (stack->kind == STK_PLACE_LOCAL) {
        add_finding(&f, true, "steps run on this machine itself: `stoker doctor` checks it");
    } else if (stack->kind == STK_PLACE_DOCKER) {
        check_engine(&f, stack, arena);
    } else {
        stk_cli_stack_check_elsewhere(stack, arena, add_finding, &f);
    }
    if (stk_cli_json(cli)) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "stack", stack->name);
        stk_json_put_bool(&out, "ok", f.is_good);
        stk_json_open(&out, "findings", '[');
        stk_buf_text(&out, stk_text_or(f.list.data, ""));
        stk_json_close(&out, ']');
        stk_json_close(&out, '}');
        puts(stk_text_or(out.data, "{}"));
    }
    stk_buf_done(&f.list);
    stk_buf_done(&f.bad);
    return f.is_good ? 0 : 3;
}
