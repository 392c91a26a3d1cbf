/* Which run is best, by a metric whose name or whose asker says which way is better. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/units.h"
#include "show/compare_private.h"

enum { NAMES_MAX = 200 };

/* Parts of a metric's name that say which way is better. */
static const char *const less_words[] = {"loss",   "error",   "err", "rmse",  "mse",        "mae",
                                         "mape",   "wer",     "cer", "fid",   "perplexity", "ppl",
                                         "regret", "latency", "nll", "brier", "bpb",        "time"};
static const char *const more_words[] = {"accuracy", "acc",    "auc",  "auroc", "f1",  "precision",
                                         "recall",   "r2",     "bleu", "rouge", "iou", "dice",
                                         "score",    "reward", "map",  "ndcg",  "mrr", "throughput",
                                         "return",   "psnr",   "ssim", "mcc",   "em"};

/* Whether one of the words is a whole part of the name: "val_loss", "train.loss", "loss/total". */
static bool has_goal_word(const char *name, const char *const *words, size_t n_words)
{
    static const char breaks[] = "_-./ @:[]()";
    for (const char *at = name + strspn(name, breaks); *at != '\0'; at += strspn(at, breaks)) {
        size_t n = strcspn(at, breaks);
        for (size_t i = 0; i < n_words; i++) {
            if (strlen(words[i]) == n && strncasecmp(at, words[i], n) == 0) {
                return true;
            }
        }
        at += n;
    }
    return false;
}

static void set_goal(stk_compare_row *row)
{
    bool less = has_goal_word(row->name, less_words, sizeof less_words / sizeof *less_words);
    bool more = has_goal_word(row->name, more_words, sizeof more_words / sizeof *more_words);
    row->has_goal = less || more;
    row->less_is_better = less;
}

/* By full name, or by the part after the step if only one metric has it. */
static uint32_t find_metric(const stk_compare_part *metrics, const char *name)
{
    uint64_t i = 0;
    uint32_t found = UINT32_MAX, n = 0;
    if (stk_map_get(&metrics->by_name, name, &i)) {
        return (uint32_t)i;
    }
    for (uint32_t k = 0; k < metrics->n; k++) {
        const char *dot = strchr(metrics->rows[k].name, '.');
        if (dot != NULL && strcmp(dot + 1, name) == 0) {
            found = k;
            n++;
        }
    }
    return n == 1 ? found : UINT32_MAX;
}

static int no_such_metric(const stk_compare *c, stk_err *err)
{
    const stk_compare_part *metrics = &c->parts[STK_PART_METRICS];
    const char *names[2 * NAMES_MAX] = {NULL};
    size_t n = 0;
    for (uint32_t i = 0; i < metrics->n && n + 2 <= sizeof names / sizeof *names; i++) {
        const char *dot = strchr(metrics->rows[i].name, '.');
        names[n++] = metrics->rows[i].name;
        if (dot != NULL) {
            names[n++] = dot + 1;
        }
    }
    const char *near = stk_units_nearest(c->ask->metric, names, n);
    stk_err_set(err, STK_E_USAGE, "none of these %u runs has one metric '%s' that is a number",
                c->ask->n, c->ask->metric);
    if (near != NULL && strcmp(near, c->ask->metric) == 0) {
        stk_err_hint(err, "several steps have it; write STEP.%s", c->ask->metric);
    } else if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    } else if (n > 0) {
        stk_err_hint(err, "they have '%s'; 'stoker metrics RUN' lists those of a run", names[0]);
    }
    return STK_E_USAGE;
}

static bool has_numbers(const stk_compare *c, const stk_compare_row *row)
{
    for (uint32_t i = 0; i < c->ask->n; i++) {
        if (row->cells[i].is_number) {
            return true;
        }
    }
    return false;
}

/* The metric that decides; else, for pictures, the first that differs. */
static int choose_metric(stk_compare *c, stk_err *err)
{
    stk_compare_part *metrics = &c->parts[STK_PART_METRICS];
    uint32_t first = UINT32_MAX, decides = UINT32_MAX;
    for (uint32_t i = 0; i < metrics->n; i++) {
        stk_compare_row *row = &metrics->rows[i];
        set_goal(row);
        if (row->differs && has_numbers(c, row)) {
            first = first == UINT32_MAX ? i : first;
            decides = decides == UINT32_MAX && row->has_goal ? i : decides;
        }
    }
    c->best_row = decides != UINT32_MAX ? decides : first;
    if (c->ask->metric == NULL) {
        return 0;
    }
    c->best_row = find_metric(metrics, c->ask->metric);
    if (c->best_row == UINT32_MAX || !has_numbers(c, &metrics->rows[c->best_row])) {
        return no_such_metric(c, err);
    }
    stk_compare_row *row = &metrics->rows[c->best_row];
    row->less_is_better =
        c->ask->goal == STK_GOAL_MIN || (c->ask->goal == STK_GOAL_BY_NAME && row->less_is_better);
    row->has_goal = true;
    return 0;
}

const stk_compare_row *stk_compare_metric(const stk_compare *c)
{
    return c->best_row == UINT32_MAX ? NULL : &c->parts[STK_PART_METRICS].rows[c->best_row];
}

typedef struct ranked {
    uint32_t run;
    const stk_compare_cell *cell;
    bool less;
} ranked;

/* The better first, runs without a number last, equal ones as given. */
static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    int by_run = (x->run > y->run) - (x->run < y->run);
    if (!x->cell->is_number || !y->cell->is_number) {
        int by_known = (int)y->cell->is_number - (int)x->cell->is_number;
        return by_known != 0 ? by_known : by_run;
    }
    int order = (x->cell->number > y->cell->number) - (x->cell->number < y->cell->number);
    if (!x->less) {
        order = -order;
    }
    return order != 0 ? order : by_run;
}

static void set_ranks(stk_compare *c)
{
    for (uint32_t i = 0; i < c->ask->n; i++) {
        c->rank[c->order[i]] = i;
    }
}

int stk_compare_find_best(stk_compare *c, stk_err *err)
{
    STK_TRY(choose_metric(c, err));
    c->order = stk_arena_array(c->arena, c->ask->n, sizeof *c->order);
    c->rank = stk_arena_array(c->arena, c->ask->n, sizeof *c->rank);
    ranked *all = stk_arena_array(c->arena, c->ask->n, sizeof *all);
    const stk_compare_row *row = stk_compare_metric(c);
    if (c->order == NULL || c->rank == NULL || all == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < c->ask->n; i++) {
        c->order[i] = i;
        c->rank[i] = i;
        all[i].run = i;
        if (row != NULL) {
            all[i] = (ranked){i, &row->cells[i], row->less_is_better};
        }
    }
    if (row == NULL || !row->has_goal) {
        return 0;
    }
    qsort(all, c->ask->n, sizeof *all, by_rank);
    for (uint32_t i = 0; i < c->ask->n; i++) {
        c->order[i] = all[i].run;
    }
    set_ranks(c);
    c->best = all[0].cell->is_number ? all[0].run : UINT32_MAX;
    return 0;
}
