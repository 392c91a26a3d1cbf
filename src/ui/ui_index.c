/* What pages know of all runs of a store. A run is read when a page needs it, or in pieces while
 * nobody asks, and again when it has new events. */
#include "ui/ui_index.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { PIECE_MS = 8, READ_MS = 1000, READ_LEAST = 20, LIVE_MS = 1000, SOME_MS = 100 };

/* --- one run --- */

const char *stk_ui_index_text(char **at, const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    size_t n = strlen(text) + 1;
    char *copy = memcpy(*at, text, n);
    *at += n;
    return copy;
}

const char *stk_ui_index_name(ui_index *index, const char *name)
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

static int keep_values(ui_index *index, ui_entry *e, const stk_run_values *from)
{
    size_t bytes = ((size_t)from->n + 1) * sizeof *e->values;
    for (uint32_t i = 0; i < from->n; i++) {
        bytes += stk_ui_index_length(from->items[i].text);
    }
    STK_TEXT_AUTO owned = calloc(1, bytes);
    stk_run_value *block = (stk_run_value *)(void *)owned;
    if (block == NULL) {
        return STK_E_NOMEM;
    }
    char *at = (char *)&block[from->n + 1];
    for (uint32_t i = 0; i < from->n; i++) {
        block[i] = from->items[i];
        block[i].name = stk_ui_index_name(index, from->items[i].name);
        block[i].title =
            stk_ui_index_name(index, stk_text_or(from->items[i].title, from->items[i].name));
        block[i].text = stk_ui_index_text(&at, from->items[i].text);
        block[i].json = NULL;
        if (block[i].name == NULL || block[i].title == NULL) {
            return STK_E_NOMEM;
        }
    }
    owned = NULL;
    free(e->values);
    e->values = block;
    e->n_values = from->n;
    e->cost = from->cost;
    return 0;
}

static int read_entry(ui_index *index, ui_entry *e, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_values *values = NULL;
    int64_t last = stk_store_last_event(index->store, e->id);
    int64_t files_ns = stk_ui_share_files(index->of, e->id);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_runs_read_ranges(index->store, index->cost, &index->rows[e->i_row], 1, arena,
                                 &values, err));
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
static bool is_stale(const ui_index *index, const ui_entry *e, bool asks_store)
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

static int find_entry(ui_index *index, const char *id, ui_entry **ret, stk_err *err)
{
    uint64_t at = 0;
    if (stk_map_get(&index->by_id, id, &at)) {
        *ret = index->entries[at];
        return 0;
    }
    ui_entry *e = calloc(1, sizeof *e);
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

/* Reads the prices again once a second. New ones make all values old. */
static void read_prices(ui_index *index)
{
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    STK_COST_AUTO cost = NULL;
    if (index->priced_ms != 0 && now - index->priced_ms < LIVE_MS) {
        return;
    }
    index->priced_ms = now;
    index->no_cost = (stk_err){0};
    (void)stk_cost_open(stk_store_path(index->store), &cost, &index->no_cost);
    if (!stk_cost_same(cost, index->cost)) {
        for (uint32_t i = 0; i < index->n; i++) {
            free(index->entries[i]->values);
            index->entries[i]->values = NULL;
            index->entries[i]->n_values = 0;
        }
        index->i_check = 0;
        stk_cost_free(index->cost);
        index->cost = cost;
        cost = NULL;
    }
}

const stk_cost *stk_ui_index_cost(const ui_index *index)
{
    return index->cost;
}

const char *stk_ui_index_no_cost(const ui_index *index)
{
    return index->no_cost.text;
}

int stk_ui_index_list(ui_index *index, stk_err *err)
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
        ui_entry *e = NULL;
        STK_TRY(find_entry(index, index->rows[i].id, &e, err));
        e->i_row = i;
        index->n_live += strcmp(index->rows[i].status, "running") == 0;
    }
    index->i_check = changes == index->changes ? index->i_check : 0;
    index->changes = changes;
    index->listed_ms = now;
    return 0;
}

ui_entry *stk_ui_index_entry(const ui_index *index, const char *id)
{
    uint64_t at = 0;
    return stk_map_get(&index->by_id, id, &at) ? index->entries[at] : NULL;
}

void stk_ui_index_go_on(ui_index *index)
{
    struct timeval soon = {.tv_usec = 1000};
    (void)evtimer_add(index->idle, &soon);
}

int stk_ui_index_runs(ui_index *index, bool all, stk_arena *arena, stk_run_values **ret_runs,
                      uint32_t *ret_n, stk_err *err)
{
    read_prices(index);
    STK_TRY(stk_ui_index_list(index, err));
    stk_run_values *runs = stk_arena_array(arena, (size_t)index->n_rows + 1, sizeof *runs);
    STK_TRY(stk_err_if_null(runs, err));
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + READ_MS;
    uint32_t n_read = 0;
    for (uint32_t i = 0; i < index->n_rows; i++) {
        ui_entry *e = stk_ui_index_entry(index, index->rows[i].id);
        if (all && is_stale(index, e, false) &&
            (n_read < READ_LEAST || stk_clock_mono_ms(&stk_clock_real) < end)) {
            STK_TRY(read_entry(index, e, err));
            n_read++;
        }
        runs[i] = (stk_run_values){&index->rows[i], e->values, e->n_values, -1};
        if (e->values != NULL) {
            runs[i].cost = e->cost;
        }
    }
    *ret_runs = runs;
    *ret_n = index->n_rows;
    stk_ui_index_go_on(index);
    return 0;
}

int stk_ui_index_read(ui_index *index, stk_run_values *runs, uint32_t n, stk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        ui_entry *e = stk_ui_index_entry(index, runs[i].row->id);
        if (is_stale(index, e, true)) {
            STK_TRY(read_entry(index, e, err));
        }
        runs[i].items = e->values;
        runs[i].n = e->n_values;
        runs[i].cost = e->cost;
    }
    return 0;
}

int stk_ui_index_read_some(ui_index *index, stk_run_values *runs, uint32_t n, uint32_t *ret_left,
                           stk_err *err)
{
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + SOME_MS;
    *ret_left = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i < READ_LEAST || stk_clock_mono_ms(&stk_clock_real) < end) {
            STK_TRY(stk_ui_index_read(index, &runs[i], 1, err));
        } else {
            *ret_left += stk_ui_index_entry(index, runs[i].row->id)->values == NULL;
        }
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
        n += stk_ui_index_entry(index, index->rows[i].id)->values == NULL;
    }
    return n;
}

/* --- while nobody asks --- */

/* Reads one run; false: there is nothing left to read. */
static bool read_next(ui_index *index)
{
    for (; index->i_check < index->n_rows; index->i_check++) {
        ui_entry *e = stk_ui_index_entry(index, index->rows[index->i_check].id);
        bool wants_uses = index->is_asked_uses && e->uses == NULL;
        if (e->is_live && e->values != NULL) {
            continue;
        }
        if (is_stale(index, e, true) && read_entry(index, e, NULL) < 0) {
            return false;
        }
        if (wants_uses) {
            (void)stk_ui_index_read_uses(index, e);
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
    if (stk_ui_index_list(index, NULL) < 0) {
        return;
    }
    while (read_next(index)) {
        if (stk_clock_mono_ms(&stk_clock_real) >= end) {
            stk_ui_index_go_on(index);
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
    stk_cost_free(index->cost);
    if (index->idle != NULL) {
        event_free(index->idle);
    }
    free(index);
}
