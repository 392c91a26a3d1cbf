/* What pages know of all runs of a store. A run is read when a page needs it, or in pieces while
 * nobody asks, and again when it has new events. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "ui/ui_private.h"

enum {
    PIECE_MS = 8,
    READ_MS = 1000,
    READ_LEAST = 20,
    SEARCH_MS = 100,
    LIVE_MS = 1000,
    TASKS_MAX = 500,
    USES_MAX = 5000
};

/* What is known of one run. Texts lie in the block behind the items, names in `names`. */
typedef struct entry {
    char id[40];
    stk_run_value *values; /* NULL: not read; a block by malloc */
    uint32_t n_values;
    ui_use *uses; /* NULL: not read; a block by malloc */
    uint32_t n_uses;
    int64_t last_event, read_ms;
    int64_t uses_event; /* the last one when the uses were read */
    int64_t files_ns;   /* of a mirror: when its files came that were read */
    uint32_t i_row;     /* in `rows` */
    bool is_live;
} entry;

struct ui_index {
    stk_ui *ui;
    const ui_store *of;
    stk_store *store; /* its */
    struct event *idle;
    entry **entries;
    uint32_t n, cap;
    stk_map by_id;
    stk_map names;    /* of values, tasks and outputs: runs have mostly the same ones */
    stk_arena *texts; /* of `names` */
    stk_arena *arena; /* of `rows` */
    stk_run_row *rows;
    uint32_t n_rows, n_live;
    int64_t changes;    /* of the store, when `rows` were read */
    int64_t listed_ms;  /* monotonic */
    uint32_t i_check;   /* rows before it have been checked for new events since `changes` */
    bool is_asked_uses; /* artifacts are looked for */
};

/* --- one run --- */

/* A text of the block, which grows at *at. */
static const char *keep_text(char **at, const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    size_t n = strlen(text) + 1;
    char *copy = memcpy(*at, text, n);
    *at += n;
    return copy;
}

/* The one copy of a name; NULL: no memory. */
static const char *keep_name(ui_index *index, const char *name)
{
    uint64_t at = 0;
    if (stk_map_get(&index->names, name, &at)) {
        return (const char *)(uintptr_t)at;
    }
    const char *copy = stk_arena_dup(index->texts, name);
    if (copy == NULL || stk_map_put(&index->names, copy, (uintptr_t)copy) < 0) {
        return NULL;
    }
    return copy;
}

static size_t length_of(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static int keep_values(ui_index *index, entry *e, const stk_run_values *from)
{
    size_t bytes = ((size_t)from->n + 1) * sizeof *e->values;
    for (uint32_t i = 0; i < from->n; i++) {
        bytes += length_of(from->items[i].text);
    }
    STK_TEXT_AUTO owned = calloc(1, bytes);
    stk_run_value *block = (stk_run_value *)(void *)owned;
    if (block == NULL) {
        return STK_E_NOMEM;
    }
    char *at = (char *)&block[from->n + 1];
    for (uint32_t i = 0; i < from->n; i++) {
        block[i] = from->items[i];
        block[i].name = keep_name(index, from->items[i].name);
        block[i].title = keep_name(index, stk_text_or(from->items[i].title, from->items[i].name));
        block[i].text = keep_text(&at, from->items[i].text);
        block[i].json = NULL;
        if (block[i].name == NULL || block[i].title == NULL) {
            return STK_E_NOMEM;
        }
    }
    owned = NULL;
    free(e->values);
    e->values = block;
    e->n_values = from->n;
    return 0;
}

static int read_entry(ui_index *index, entry *e, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_values *values = NULL;
    int64_t last = stk_store_last_event(index->store, e->id);
    int64_t files_ns = stk_ui_share_files(index->of, e->id);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_runs_read_ranges(index->store, &index->rows[e->i_row], 1, arena, &values, err));
    if (keep_values(index, e, values) < 0) {
        return stk_err_nomem(err);
    }
    if (last != e->last_event) {
        free(e->uses);
        e->uses = NULL;
    }
    e->last_event = last;
    e->files_ns = files_ns;
    e->read_ms = stk_clock_mono_ms(&stk_clock_real);
    e->is_live = strcmp(index->rows[e->i_row].status, "running") == 0;
    return 0;
}

/* Whether the values may differ from what was read. Events of a live run don't tell of its metrics.
 */
static bool is_stale(const ui_index *index, const entry *e, bool asks_store)
{
    bool is_live = strcmp(index->rows[e->i_row].status, "running") == 0;
    if (e->values == NULL || e->is_live != is_live) {
        return true;
    }
    if (is_live) {
        return stk_clock_mono_ms(&stk_clock_real) - e->read_ms >= LIVE_MS;
    }
    return asks_store && (stk_store_last_event(index->store, e->id) != e->last_event ||
                          stk_ui_share_files(index->of, e->id) != e->files_ns);
}

/* --- all runs --- */

static int find_entry(ui_index *index, const char *id, entry **ret, stk_err *err)
{
    uint64_t at = 0;
    if (stk_map_get(&index->by_id, id, &at)) {
        *ret = index->entries[at];
        return 0;
    }
    entry *e = calloc(1, sizeof *e);
    if (e == NULL || stk_array_reserve(&index->entries, &index->cap, index->n + 1, sizeof e) < 0) {
        free(e);
        return stk_err_nomem(err);
    }
    (void)snprintf(e->id, sizeof e->id, "%s", id);
    index->entries[index->n] = e;
    *ret = e;
    if (stk_map_put(&index->by_id, e->id, index->n++) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* Reads the list of runs, if something was committed since, or a live run's time has gone on. */
static int list_runs(ui_index *index, stk_err *err)
{
    enum { ALL = 10000000 };
    int64_t changes = stk_store_changes(index->store), now = stk_clock_mono_ms(&stk_clock_real);
    bool is_old = index->n_live > 0 && now - index->listed_ms >= LIVE_MS;
    if (index->rows != NULL && changes == index->changes && changes >= 0 && !is_old) {
        return 0;
    }
    stk_arena_reset(index->arena);
    index->rows = NULL;
    index->n_rows = index->n_live = 0;
    STK_TRY(stk_store_list_runs(index->store, NULL, NULL, ALL, index->arena, &index->rows,
                                &index->n_rows, err));
    for (uint32_t i = 0; i < index->n_rows; i++) {
        entry *e = NULL;
        STK_TRY(find_entry(index, index->rows[i].id, &e, err));
        e->i_row = i;
        index->n_live += strcmp(index->rows[i].status, "running") == 0;
    }
    index->i_check = changes == index->changes ? index->i_check : 0;
    index->changes = changes;
    index->listed_ms = now;
    return 0;
}

static entry *entry_of(const ui_index *index, const char *id)
{
    uint64_t at = 0;
    return stk_map_get(&index->by_id, id, &at) ? index->entries[at] : NULL;
}

static void go_on_reading(ui_index *index)
{
    struct timeval soon = {.tv_usec = 1000};
    (void)evtimer_add(index->idle, &soon);
}

int stk_ui_index_runs(ui_index *index, bool all, stk_arena *arena, stk_run_values **ret_runs,
                      uint32_t *ret_n, stk_err *err)
{
    STK_TRY(list_runs(index, err));
    stk_run_values *runs = stk_arena_array(arena, (size_t)index->n_rows + 1, sizeof *runs);
    STK_TRY(stk_err_if_null(runs, err));
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + READ_MS;
    uint32_t n_read = 0;
    for (uint32_t i = 0; i < index->n_rows; i++) {
        entry *e = entry_of(index, index->rows[i].id);
        if (all && is_stale(index, e, false) &&
            (n_read < READ_LEAST || stk_clock_mono_ms(&stk_clock_real) < end)) {
            STK_TRY(read_entry(index, e, err));
            n_read++;
        }
        runs[i] = (stk_run_values){&index->rows[i], e->values, e->n_values};
    }
    *ret_runs = runs;
    *ret_n = index->n_rows;
    go_on_reading(index);
    return 0;
}

int stk_ui_index_read(ui_index *index, stk_run_values *runs, uint32_t n, stk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        entry *e = entry_of(index, runs[i].row->id);
        if (is_stale(index, e, true)) {
            STK_TRY(read_entry(index, e, err));
        }
        runs[i].items = e->values;
        runs[i].n = e->n_values;
    }
    return 0;
}

bool stk_ui_index_is_live(const ui_index *index)
{
    return index->n_live > 0;
}

uint32_t stk_ui_index_left(const ui_index *index)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < index->n_rows; i++) {
        n += entry_of(index, index->rows[i].id)->values == NULL;
    }
    return n;
}

/* --- artifacts --- */

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

static int keep_uses(ui_index *index, entry *e, const use_list *from)
{
    size_t bytes = ((size_t)from->n + 1) * sizeof *e->uses;
    for (uint32_t i = 0; i < from->n; i++) {
        bytes += length_of(from->items[i].digest);
    }
    STK_TEXT_AUTO owned = calloc(1, bytes);
    ui_use *block = (ui_use *)(void *)owned;
    if (block == NULL) {
        return STK_E_NOMEM;
    }
    char *at = (char *)&block[from->n + 1];
    for (uint32_t i = 0; i < from->n; i++) {
        block[i] = from->items[i];
        block[i].digest = keep_text(&at, from->items[i].digest);
        block[i].task = keep_name(index, from->items[i].task);
        block[i].name = keep_name(index, from->items[i].name);
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

/* A run that can't be read has no uses. */
static int read_uses(ui_index *index, entry *e)
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
        STK_TRY(list_runs(index, err));
    }
    for (uint32_t i = index->n_rows; i-- > 0;) {
        entry *e = entry_of(index, index->rows[i].id);
        if (run != NULL && strcmp(run, e->id) != 0) {
            continue;
        }
        bool is_live = strcmp(index->rows[i].status, "running") == 0;
        bool has_time = is_live || stk_clock_mono_ms(&stk_clock_real) < end;
        /* What a page got by an earlier call stays valid: a run is read again only by the first. */
        bool is_old = run == NULL && e->uses != NULL && is_live &&
                      stk_store_last_event(index->store, e->id) != e->uses_event;
        if (is_old || (e->uses == NULL && (run != NULL || has_time))) {
            STK_TRY(read_uses(index, e));
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
    go_on_reading(index);
    return 0;
}

/* --- while nobody asks --- */

/* Reads one run; false: there is nothing left to read. */
static bool read_next(ui_index *index)
{
    for (; index->i_check < index->n_rows; index->i_check++) {
        entry *e = entry_of(index, index->rows[index->i_check].id);
        bool wants_uses = index->is_asked_uses && e->uses == NULL;
        if (e->is_live && e->values != NULL) {
            continue;
        }
        if (is_stale(index, e, true) && read_entry(index, e, NULL) < 0) {
            return false;
        }
        if (wants_uses) {
            (void)read_uses(index, e);
        }
        index->i_check++;
        return true;
    }
    return false;
}

static void on_idle(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    ui_index *index = arg;
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + PIECE_MS;
    if (list_runs(index, NULL) < 0) {
        return;
    }
    while (read_next(index)) {
        if (stk_clock_mono_ms(&stk_clock_real) >= end) {
            go_on_reading(index);
            return;
        }
    }
    stk_store_release_memory(index->store);
    (void)malloc_trim(0); /* reading a run takes far more than keeping what it has */
}

int stk_ui_index_open(stk_ui *ui, const ui_store *of, ui_index **ret, stk_err *err)
{
    ui_index *index = *ret = calloc(1, sizeof *index);
    STK_TRY(stk_err_if_null(index, err));
    index->ui = ui;
    index->store = of->store;
    index->of = of;
    STK_TRY(stk_err_if_null(index->arena = stk_arena_new(0), err));
    STK_TRY(stk_err_if_null(index->texts = stk_arena_new(0), err));
    return stk_err_if_null(index->idle = evtimer_new(ui->base, on_idle, index), err);
}

void stk_ui_index_close(ui_index *index)
{
    if (index == NULL) {
        return;
    }
    for (uint32_t i = 0; i < index->n; i++) {
        free(index->entries[i]->values);
        free(index->entries[i]->uses);
        free(index->entries[i]);
    }
    free(index->entries);
    stk_map_done(&index->by_id);
    stk_map_done(&index->names);
    stk_arena_free(index->texts);
    stk_arena_free(index->arena);
    if (index->idle != NULL) {
        event_free(index->idle);
    }
    free(index);
}
