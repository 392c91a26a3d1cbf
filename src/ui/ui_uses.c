/* Where artifacts come from and go to, over the runs of a store. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "ui/ui_index.h"

enum { SEARCH_MS = 100, TASKS_MAX = 500, USES_MAX = 5000 };

typedef struct use_list {
    ui_use *items;
    uint32_t n, cap;
    stk_arena *arena;
} use_list;

static int add_use(use_list *all, ui_use_kind kind, const char *digest, const char *task,
                   const char *name)
{
    ui_use *items = stk_arena_grow(all->arena, all->items, all->n, sizeof *all->items, &all->cap);
    if (items == NULL) {
        return STK_E_NOMEM;
    }
    all->items = items;
    items[all->n++] = (ui_use){.kind = kind,
                               .digest = stk_arena_dup(all->arena, digest),
                               .task = stk_arena_dup(all->arena, task),
                               .name = stk_arena_dup(all->arena, stk_text_or(name, ""))};
    return 0;
}

/* What a task of a flow says that it loaded. */
static int add_loaded(use_list *all, const stk_view_task *task)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *loaded = stk_json_get(stk_json_read(scratch, task->end_data), "inputs");
    for (uint32_t i = 0; i < stk_json_n_members(loaded) && all->n < USES_MAX; i++) {
        const char *digest = stk_json_text(stk_json_value(loaded, i));
        if (digest != NULL) {
            STK_TRY(add_use(all, UI_USED, digest, task->label, stk_json_key(loaded, i)->text));
        }
    }
    return 0;
}

static int add_task_uses(use_list *all, const stk_view *view, uint32_t i_task)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_view_task *task = stk_view_get_task(view, i_task);
    stk_view_details d;
    STK_TRY(stk_view_get_details(view, i_task, scratch, &d, NULL));
    ui_use_kind kind = UI_MADE;
    if (task->state == STK_TASK_CACHED) {
        kind = UI_CACHED;
    }
    for (uint32_t i = 0; i < d.n_outputs && all->n < USES_MAX; i++) {
        if (d.outputs[i].digest != NULL) {
            STK_TRY(add_use(all, kind, d.outputs[i].digest, task->label, d.outputs[i].name));
        }
    }
    if (stk_view_grows(view)) {
        return add_loaded(all, task);
    }
    for (uint32_t i = 0; i < d.n_inputs && all->n < USES_MAX && task->started_ms > 0; i++) {
        if (d.inputs[i].digest != NULL) {
            STK_TRY(add_use(all, UI_USED, d.inputs[i].digest, task->label, d.inputs[i].from));
        }
    }
    return 0;
}

static int keep_uses(ui_index *index, ui_entry *e, const use_list *from)
{
    size_t bytes = ((size_t)from->n + 1) * sizeof *e->uses;
    for (uint32_t i = 0; i < from->n; i++) {
        bytes += stk_ui_index_length(from->items[i].digest);
    }
    STK_TEXT_AUTO owned = calloc(1, bytes);
    ui_use *block = (ui_use *)(void *)owned;
    if (block == NULL) {
        return STK_E_NOMEM;
    }
    char *at = (char *)&block[from->n + 1];
    for (uint32_t i = 0; i < from->n; i++) {
        block[i] = from->items[i];
        block[i].digest = stk_ui_index_text(&at, from->items[i].digest);
        block[i].task = stk_ui_index_name(index, from->items[i].task);
        block[i].name = stk_ui_index_name(index, from->items[i].name);
        if (block[i].task == NULL || block[i].name == NULL) {
            return STK_E_NOMEM;
        }
    }
    owned = NULL;
    free(e->uses);
    e->uses = block;
    e->n_uses = from->n;
    return 0;
}

int stk_ui_index_read_uses(ui_index *index, ui_entry *e)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_VIEW_AUTO view = NULL;
    use_list all = {.arena = arena};
    e->uses_event = stk_store_last_event(index->store, e->id);
    if (arena != NULL && stk_view_load(index->store, e->id, &view, NULL) == 0) {
        for (uint32_t i = 0; i < MIN(stk_view_n_tasks(view), TASKS_MAX); i++) {
            (void)add_task_uses(&all, view, i);
        }
    }
    return keep_uses(index, e, &all);
}

static bool is_asked_use(const ui_use *use, const char *digest, const char *task)
{
    return task == NULL ? strcmp(use->digest, digest) == 0 : strcmp(use->task, task) == 0;
}

int stk_ui_index_uses(ui_index *index, const char *digest, const char *run, const char *task,
                      stk_arena *arena, ui_use **ret_uses, uint32_t *ret_n, uint32_t *ret_left,
                      stk_err *err)
{
    uint32_t cap = 0;
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + SEARCH_MS;
    *ret_uses = NULL;
    *ret_n = *ret_left = 0;
    if (!index->is_asked_uses) {
        index->is_asked_uses = true;
        index->i_check = 0;
    }
    if (run == NULL) {
        STK_TRY(stk_ui_index_list(index, err));
    }
    for (uint32_t i = index->n_rows; i-- > 0;) {
        ui_entry *e = stk_ui_index_entry(index, index->rows[i].id);
        if (run != NULL && strcmp(run, e->id) != 0) {
            continue;
        }
        bool is_live = strcmp(index->rows[i].status, "running") == 0;
        bool has_time = is_live || stk_clock_mono_ms(&stk_clock_real) < end;
        /* What a page got by an earlier call stays valid: a run is read again only by the first. */
        bool is_old = run == NULL && e->uses != NULL && is_live &&
                      stk_store_last_event(index->store, e->id) != e->uses_event;
        if (is_old || (e->uses == NULL && (run != NULL || has_time))) {
            STK_TRY(stk_ui_index_read_uses(index, e));
        }
        *ret_left += e->uses == NULL;
        for (uint32_t k = 0; k < e->n_uses && e->uses != NULL; k++) {
            if (is_asked_use(&e->uses[k], digest, task)) {
                ui_use *more = stk_arena_grow(arena, *ret_uses, *ret_n, sizeof *more, &cap);
                STK_TRY(stk_err_if_null(more, err));
                *ret_uses = more;
                more[*ret_n] = e->uses[k];
                more[(*ret_n)++].run = &index->rows[i];
            }
        }
    }
    stk_ui_index_go_on(index);
    return 0;
}
