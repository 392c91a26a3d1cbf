/* code: the text of each step, as the run's record has it (docs/formats/code.md): a step's
 * function, what it uses of its file, and the project's modules. */
#ifndef STK_SHOW_CODE_H
#define STK_SHOW_CODE_H

#include "base/buf.h"
#include "base/json.h"
#include "show/show_text.h"
#include "store/view/view.h"

typedef struct stk_code_part {
    const char *name; /* "function", "helper 'f'", "module util" */
    const char *file; /* NULL: a notebook's cell */
    const char *text;
    bool is_module;
} stk_code_part;

/* The document of a run, in `arena`; NULL: its record has none, or it isn't in this store. */
const stk_json *stk_code_read(const stk_view *view, stk_arena *arena);
/* The parts of a step, which live as long as the document; 0: it has none. */
uint32_t stk_code_n(const stk_json *code, const char *step);
stk_code_part stk_code_get(const stk_json *code, const char *step, uint32_t i);

/* The command of a step, as people wrote it; nothing for a Python step. */
void stk_code_command(const stk_step *step, stk_buf *out);

/* `stoker show RUN/STEP --code`: the parts of a step, or its command. STK_E_NOT_FOUND: the record
 * has none. */
int stk_code_text(const stk_view *view, uint32_t i_step, const stk_style *style, stk_buf *out,
                  stk_err *err);
/* The same as {"run", "step", "command" or "parts": [{"name", "file", "text"}]}. */
int stk_code_json(const stk_view *view, uint32_t i_step, stk_buf *out, stk_err *err);

#endif
