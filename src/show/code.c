#include "show/code.h"

#include <string.h>

#include "base/text.h"
#include "show/show_html_private.h"

const stk_json *stk_code_read(const stk_view *view, stk_arena *arena)
{
    const stk_view_run *run = stk_view_get_run(view);
    if (run->code == NULL || strlen(run->code) != STK_DIGEST_HEX) {
        return NULL;
    }
    return stk_show_read_card(stk_view_artifact_path(arena, run->store, run->code), arena);
}

static const stk_json *parts_of(const stk_json *code, const char *step)
{
    return stk_json_get(stk_json_get(code, "steps"), step);
}

uint32_t stk_code_n(const stk_json *code, const char *step)
{
    return stk_json_n_items(parts_of(code, step));
}

stk_code_part stk_code_get(const stk_json *code, const char *step, uint32_t i)
{
    int64_t at = stk_json_whole(stk_json_item(parts_of(code, step), i), -1);
    const stk_json *part = NULL;
    if (at >= 0 && at < UINT32_MAX) {
        part = stk_json_item(stk_json_get(code, "parts"), (uint32_t)at);
    }
    const char *name = stk_text_or(stk_json_get_text(part, "name"), "");
    const char *file = stk_json_get_text(part, "file");
    const char *text = stk_text_or(stk_json_get_text(part, "text"), "");
    const char *ending = file == NULL ? NULL : strrchr(file, '.');
    if (text[0] == '\0' && ending != NULL && strcmp(ending, ".py") != 0) {
        text = "# compiled: only its digest is kept\n";
    }
    return (stk_code_part){
        .name = name, .file = file, .text = text, .is_module = strncmp(name, "module ", 7) == 0};
}

void stk_code_command(const stk_step *step, stk_buf *out)
{
    bool is_shell = step->n_argv == 3 && strcmp(step->argv[1], "-c") == 0;
    for (uint32_t i = is_shell ? 2 : 0; i < step->n_argv; i++) {
        stk_buf_separate(out, " ");
        stk_buf_text(out, step->argv[i]);
    }
}

/* --- for people and programs --- */

static int no_code(const stk_view *view, const char *step, stk_err *err)
{
    stk_err_set(err, STK_E_NOT_FOUND, "the record of run %s has no text of step '%s'",
                stk_view_get_run(view)->id, step);
    stk_err_hint(err, "it has that of commands, and of Python steps of a program or notebook that "
                      "this store ran");
    return err->code;
}

int stk_code_text(const stk_view *view, uint32_t i_step, const stk_style *style, stk_buf *out,
                  stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *code = stk_code_read(view, arena);
    const stk_step *step = stk_spec_step(stk_view_spec(view), i_step);
    uint32_t n = stk_code_n(code, step->name);
    STK_BUF_AUTO command = STK_BUF_INIT(1u << 20);
    stk_code_command(step, &command);
    if (n == 0 && command.len == 0) {
        return no_code(view, step->name, err);
    }
    stk_text_safe(out, stk_text_or(command.data, ""), "");
    stk_buf_text(out, stk_text_when(command.len > 0, "\n"));
    for (uint32_t i = 0; i < n && command.len == 0; i++) {
        stk_code_part part = stk_code_get(code, step->name, i);
        STK_BUF_AUTO head = STK_BUF_INIT(1u << 16);
        stk_buf_printf(&head, "%s# ", stk_text_when(i > 0, "\n"));
        stk_text_safe(&head, stk_text_or(part.file, "a notebook's cell"), "");
        stk_buf_text(&head, ": ");
        stk_text_safe(&head, part.name, "");
        stk_text_ink(out, style, STK_INK_DIM, stk_text_or(head.data, ""));
        stk_buf_char(out, '\n');
        stk_text_safe(out, part.text, "");
    }
    return stk_show_check(out, err);
}

int stk_code_json(const stk_view *view, uint32_t i_step, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *code = stk_code_read(view, arena);
    const stk_step *step = stk_spec_step(stk_view_spec(view), i_step);
    uint32_t n = stk_code_n(code, step->name);
    if (n == 0 && step->n_argv == 0) {
        return no_code(view, step->name, err);
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "run", stk_view_get_run(view)->id);
    stk_json_put_text(out, "step", step->name);
    if (step->n_argv > 0) {
        stk_json_put_n_texts(out, "command", step->argv, step->n_argv);
    }
    stk_json_open(out, "parts", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_code_part part = stk_code_get(code, step->name, i);
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "name", part.name);
        stk_json_put_text(out, "file", part.file);
        stk_json_put_text(out, "text", part.text);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    return stk_show_check(out, err);
}
