/* stoker stack check: can this place be used? Each finding a line; nothing is left behind. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_read.h"
#include "cli/cli_stack.h"
#include "image/contain/contain.h"

typedef struct findings {
    const stk_cli *cli;
    json_t *list; /* with --json */
    bool is_good;
    stk_buf bad; /* what stands in the way of several things is said once */
} findings;

static void say(void *arg, bool is_good, const char *text)
{
    findings *f = arg;
    text = text != NULL ? text : "out of memory";
    if (!is_good && f->bad.data != NULL && strstr(f->bad.data, text) != NULL) {
        return;
    }
    if (!is_good) {
        stk_buf_printf(&f->bad, "%s\n", text);
    }
    f->is_good = f->is_good && is_good;
    if (f->list != NULL) {
        json_array_append_new(f->list, json_pack("{s:b,s:s}", "ok", is_good, "text", text));
    } else {
        STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
        stk_text_safe(&line, text, "");
        printf("%s %s\n", is_good ? "✓" : "✗", line.data != NULL ? line.data : "");
    }
}

static void say_error(findings *f, const stk_err *err)
{
    char text[1400];
    (void)snprintf(text, sizeof text, "%s%s%s", err->text, err->hint[0] != '\0' ? "; " : "",
                   err->hint);
    say(f, false, text);
}

static void check_engine(findings *f, const stk_stack *stack, stk_arena *arena)
{
    stk_engine engine;
    stk_err err = {0};
    if (stk_engine_find(stack->socket, arena, &engine, &err) < 0) {
        say_error(f, &err);
        return;
    }
    say(f, true,
        stk_arena_printf(arena, "%s answers at %s (%s)%s", engine.name, engine.socket,
                         engine.source,
                         engine.limits_memory ? "" : "; it can't limit memory: Stoker does"));
}

int stk_cli_stack_check(stk_cli *cli, const stk_stack *stack, stk_arena *arena)
{
    findings f = {.cli = cli,
                  .is_good = true,
                  .list = stk_cli_json(cli) ? json_array() : NULL,
                  .bad = STK_BUF_INIT(1u << 16)};
    if (stack->kind == STK_PLACE_LOCAL) {
        say(&f, true, "steps run on this machine itself: `stoker doctor` looks at it");
    } else if (stack->kind == STK_PLACE_DOCKER) {
        check_engine(&f, stack, arena);
    } else {
        stk_cli_stack_check_elsewhere(stack, arena, say, &f);
    }
    if (f.list != NULL) {
        char *text = json_dumps(f.list, JSON_COMPACT);
        printf("{\"stack\":\"%s\",\"ok\":%s,\"findings\":%s}\n", stack->name,
               f.is_good ? "true" : "false", text != NULL ? text : "[]");
        free(text);
        json_decref(f.list);
    }
    stk_buf_done(&f.bad);
    return f.is_good ? 0 : 3;
}
