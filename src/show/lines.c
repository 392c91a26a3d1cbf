#include "show/lines.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

typedef struct text_line {
    const char *text;
    size_t n;
} text_line;

typedef struct line_list {
    text_line *items;
    uint32_t n;
} line_list;

/* A line of the result, in order. */
typedef struct edit {
    char sign;
    uint32_t a, b; /* how many lines of each text are before it */
} edit;

typedef struct differ {
    line_list a, b;
    edit *edits;
    uint32_t n;
    stk_arena *arena;
} differ;

static int split_lines(const char *text, stk_arena *arena, line_list *ret)
{
    uint32_t cap = 0;
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        text_line *items = stk_arena_grow(arena, ret->items, ret->n, sizeof *items, &cap);
        if (items == NULL) {
            return STK_E_NOMEM;
        }
        ret->items = items;
        items[ret->n++] = (text_line){at, n};
        at += n + (at[n] == '\n');
    }
    return 0;
}

static bool is_same(const differ *d, int64_t a, int64_t b)
{
    const text_line *x = &d->a.items[a], *y = &d->b.items[b];
    return x->n == y->n && memcmp(x->text, y->text, x->n) == 0;
}

static void put_edit(differ *d, char sign, uint32_t a, uint32_t b)
{
    d->edits[d->n++] = (edit){sign, a, b};
}

/* All of the first, then all of the second. */
static void replace_all(differ *d)
{
    for (uint32_t i = 0; i < d->a.n; i++) {
        put_edit(d, '-', i, 0);
    }
    for (uint32_t i = 0; i < d->b.n; i++) {
        put_edit(d, '+', d->a.n, i);
    }
}

/* Whether the furthest path on diagonal k after `steps` edits came from the diagonal above. */
static bool is_from_above(const int32_t *v, int64_t k, int64_t steps, int64_t middle)
{
    return k == -steps || (k != steps && v[middle + k - 1] < v[middle + k + 1]);
}

/* Follows the edits from the end; they come out backwards. */
static void walk_back(differ *d, int32_t *const *trace, int64_t steps, int64_t middle)
{
    int64_t x = d->a.n, y = d->b.n;
    for (int64_t s = steps; s >= 0; s--) {
        const int32_t *v = trace[s];
        int64_t k = x - y;
        bool above = s > 0 && is_from_above(v, k, s, middle);
        int64_t before_k = above ? k + 1 : k - 1;
        int64_t before_x = s == 0 ? 0 : v[middle + before_k], before_y = before_x - before_k;
        if (s == 0) {
            before_y = 0;
        }
        while (x > before_x && y > before_y) {
            x--;
            y--;
            put_edit(d, ' ', (uint32_t)x, (uint32_t)y);
        }
        if (s > 0 && above) {
            y--;
            put_edit(d, '+', (uint32_t)x, (uint32_t)y);
        } else if (s > 0) {
            x--;
            put_edit(d, '-', (uint32_t)x, (uint32_t)y);
        }
    }
    for (uint32_t i = 0; i < d->n / 2; i++) {
        edit swap = d->edits[i];
        d->edits[i] = d->edits[d->n - 1 - i];
        d->edits[d->n - 1 - i] = swap;
    }
}

/* One round: paths with `steps` edits go as far as they can. True: one reached the end. */
static bool go_further(const differ *d, int32_t *v, int64_t steps, int64_t middle)
{
    for (int64_t k = -steps; k <= steps; k += 2) {
        int64_t x = is_from_above(v, k, steps, middle) ? v[middle + k + 1] : v[middle + k - 1] + 1;
        int64_t y = x - k;
        while (x < d->a.n && y >= 0 && y < d->b.n && is_same(d, x, y)) {
            x++;
            y++;
        }
        v[middle + k] = (int32_t)x;
        if (x >= d->a.n && y >= d->b.n) {
            return true;
        }
    }
    return false;
}

enum { STEPS_MOST = 1000 };

static int find_edits(differ *d)
{
    int64_t most = MIN((int64_t)d->a.n + d->b.n, STEPS_MOST), middle = most + 1;
    size_t width = (size_t)(2 * middle + 1);
    int32_t *v = stk_arena_array(d->arena, width, sizeof *v);
    int32_t **trace = stk_arena_array(d->arena, (size_t)most + 1, sizeof *trace);
    d->edits = stk_arena_array(d->arena, (size_t)d->a.n + d->b.n + 1, sizeof *d->edits);
    if (v == NULL || trace == NULL || d->edits == NULL) {
        return STK_E_NOMEM;
    }
    for (int64_t s = 0; s <= most && d->a.n <= STK_LINES_MOST && d->b.n <= STK_LINES_MOST; s++) {
        trace[s] = stk_arena_array(d->arena, width, sizeof *v);
        if (trace[s] == NULL) {
            return STK_E_NOMEM;
        }
        memcpy(trace[s], v, width * sizeof *v);
        if (go_further(d, v, s, middle)) {
            walk_back(d, trace, s, middle);
            return 0;
        }
    }
    replace_all(d);
    return 0;
}

/* Where the hunk that begins at `from` ends: before a long stretch of common lines. */
static uint32_t end_of_hunk(const differ *d, uint32_t from)
{
    uint32_t last = from;
    for (uint32_t i = from; i < d->n && i <= last + 2 * STK_LINES_AROUND; i++) {
        if (d->edits[i].sign != ' ') {
            last = i;
        }
    }
    return MIN(last + STK_LINES_AROUND + 1, d->n);
}

static void tell_hunk(const differ *d, uint32_t from, uint32_t to, stk_lines_each each, void *arg)
{
    char head[64];
    uint32_t n[2] = {0, 0};
    for (uint32_t i = from; i < to; i++) {
        n[0] += d->edits[i].sign != '+';
        n[1] += d->edits[i].sign != '-';
    }
    int len = snprintf(head, sizeof head, "-%u,%u +%u,%u", d->edits[from].a + (n[0] > 0), n[0],
                       d->edits[from].b + (n[1] > 0), n[1]);
    each(arg, '@', head, (size_t)len);
    for (uint32_t i = from; i < to; i++) {
        const edit *e = &d->edits[i];
        const text_line *line = &d->a.items[e->a];
        if (e->sign == '+') {
            line = &d->b.items[e->b];
        }
        each(arg, e->sign, line->text, line->n);
    }
}

int stk_lines_diff(const char *a, const char *b, stk_lines_each each, void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    differ d = {.arena = arena};
    if (arena == NULL || split_lines(a, arena, &d.a) < 0 || split_lines(b, arena, &d.b) < 0 ||
        find_edits(&d) < 0) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < d.n; i++) {
        if (d.edits[i].sign == ' ') {
            continue;
        }
        uint32_t from = i - MIN(i, STK_LINES_AROUND), to = end_of_hunk(&d, i);
        tell_hunk(&d, from, to, each, arg);
        i = to - 1;
    }
    return 0;
}
