/* Shared by the files of the index. */
#ifndef STK_UI_INDEX_H
#define STK_UI_INDEX_H

#include <string.h>

#include "base/map.h"
#include "ui/ui_private.h"

/* What is known of one run. Texts lie in the block behind the items, names in `names`. */
typedef struct ui_entry {
    char id[40];
    stk_run_value *values; /* NULL: not read; a block by malloc */
    uint32_t n_values;
    double cost;  /* -1: unknown */
    ui_use *uses; /* NULL: not read; a block by malloc */
    uint32_t n_uses;
    int64_t last_event, read_ms;
    int64_t uses_event; /* the last one when the uses were read */
    int64_t files_ns;   /* of a mirror: when its files came that were read */
    uint32_t i_row;     /* in `rows` */
    bool is_live;
} ui_entry;

struct ui_index {
    stk_ui *ui;
    const ui_store *of;
    stk_store *store; /* its */
    struct event *idle;
    ui_entry **entries;
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
    stk_cost *cost;     /* NULL: there are no prices */
    int64_t priced_ms;  /* monotonic: when they were read; 0: never */
    stk_err no_cost;
};

/* The one copy of a name; NULL: no memory. */
const char *stk_ui_index_name(ui_index *index, const char *name);
/* A text of a block, which grows at *at. */
const char *stk_ui_index_text(char **at, const char *text);
static inline size_t stk_ui_index_length(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}
/* Reads the list of runs, if something was committed since, or a live run's time has gone on. */
int stk_ui_index_list(ui_index *index, stk_err *err);
ui_entry *stk_ui_index_entry(const ui_index *index, const char *id);
void stk_ui_index_go_on(ui_index *index); /* reads what is left while nobody asks */
/* What a run made and used; one that can't be read has nothing. */
int stk_ui_index_read_uses(ui_index *index, ui_entry *entry);

#endif
