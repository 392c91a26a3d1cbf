/* Reads CSV and JSON into the same kind of table. CSV: a header, then rows; fields may be quoted
 * ("a,b", and "" is a quote); '#' begins a comment line. JSON: a list of objects. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "run/simulate/simulate_private.h"
#include "sys/file.h"

#define FILE_BYTES ((size_t)1 << 30)

typedef struct reader {
    stk_table *table;
    stk_arena *arena;
    stk_err *err;
    uint32_t cap;
} reader;

static int refuse_table(const reader *r, int line, const char *text, const char *hint)
{
    int rc = stk_err_set(r->err, STK_E_USAGE, "%s", text);
    if (hint != NULL) {
        stk_err_hint(r->err, "did you mean '%s'?", hint);
    }
    stk_err_at(r->err, r->table->path, line);
    return rc;
}

static int column_of(const reader *r, const char *name, int line)
{
    const stk_table *t = r->table;
    for (uint32_t i = 0; i < t->n_columns; i++) {
        if (strcmp(t->columns[i], name) == 0) {
            return (int)i;
        }
    }
    char text[200];
    (void)snprintf(text, sizeof text, "unknown column '%.100s'", name);
    return refuse_table(r, line, text, stk_units_nearest(name, t->columns, t->n_columns));
}

/* Adds a row of empty cells. NULL: out of memory. */
static const char **add_row(reader *r, int line)
{
    stk_table *t = r->table;
    if (t->n_rows == r->cap) {
        uint32_t cap = MAX(256, r->cap * 2);
        const char **cells = stk_arena_array(r->arena, (size_t)cap * t->n_columns, sizeof *cells);
        int *lines = stk_arena_array(r->arena, cap, sizeof *lines);
        if (cells == NULL || lines == NULL) {
            return NULL;
        }
        if (t->n_rows > 0) {
            memcpy(cells, t->cells, (size_t)t->n_rows * t->n_columns * sizeof *cells);
            memcpy(lines, t->lines, t->n_rows * sizeof *lines);
        }
        t->cells = cells;
        t->lines = lines;
        r->cap = cap;
    }
    t->lines[t->n_rows] = line;
    return &t->cells[(size_t)t->n_rows++ * t->n_columns];
}

/* --- CSV --- */

/* Returns the next field, unquoted in place, and moves *at behind its comma. NULL: no more. */
static char *next_field(char **at)
{
    char *p = *at;
    if (p == NULL) {
        return NULL;
    }
    p += strspn(p, " \t");
    char *field = p;
    char *to = p;
    if (*p == '"') {
        for (p++; *p != '\0' && (*p != '"' || p[1] == '"'); p++) {
            p += *p == '"';
            *to++ = *p;
        }
        p += *p == '"';
        p += strcspn(p, ",");
    } else {
        p += strcspn(p, ",");
        to = p;
        while (to > field && (to[-1] == ' ' || to[-1] == '\t')) {
            to--;
        }
    }
    *at = *p == ',' ? p + 1 : NULL;
    *to = '\0';
    return field;
}

enum { COLUMNS_MAX = 32 };

static int read_header(const reader *r, char *line, int number, int ret_map[COLUMNS_MAX],
                       int *ret_n)
{
    int n = 0;
    for (char *field; (field = next_field(&line)) != NULL; n++) {
        int column = n < COLUMNS_MAX
                         ? column_of(r, field, number)
                         : refuse_table(r, number, "more columns than there are names", NULL);
        if (column < 0) {
            return column;
        }
        for (int i = 0; i < n; i++) {
            if (ret_map[i] == column) {
                return refuse_table(r, number, "a column appears twice", NULL);
            }
        }
        ret_map[n] = column;
    }
    *ret_n = n;
    return 0;
}

static int read_csv(reader *r, char *text)
{
    int map[COLUMNS_MAX];
    int n = -1;
    int number = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[strspn(line, " \t")] == '\0' || line[0] == '#') {
            continue;
        }
        if (n < 0) {
            int rc = read_header(r, line, number, map, &n);
            STK_TRY(rc);
            continue;
        }
        const char **row = add_row(r, number);
        STK_TRY(stk_err_if_null(row, r->err));
        int i = 0;
        for (char *field; (field = next_field(&line)) != NULL; i++) {
            if (i >= n) {
                return refuse_table(r, number, "this row has more fields than the header", NULL);
            }
            row[map[i]] = field[0] == '\0' ? NULL : field;
        }
    }
    if (n >= 0) {
        return 0;
    }
    return refuse_table(r, 0, "the file is empty", NULL);
}

/* --- JSON --- */

static int read_json(reader *r, const char *text, size_t len)
{
    static const stk_json_limits limits = {FILE_BYTES, 200u << 20, STK_LIMIT_DEPTH};
    stk_json root;
    STK_TRY(stk_json_parse(text, len, r->table->path, &limits, r->arena, &root, r->err));
    if (root.kind != STK_JSON_LIST) {
        return refuse_table(r, (int)root.line, "the file is not a list of objects", NULL);
    }
    for (uint32_t i = 0; i < root.n; i++) {
        const stk_json *object = &root.items[i];
        if (object->kind != STK_JSON_MAP) {
            return refuse_table(r, (int)object->line, "the item is not an object", NULL);
        }
        const char **row = add_row(r, (int)object->line);
        STK_TRY(stk_err_if_null(row, r->err));
        for (uint32_t k = 0; k < object->n; k++) {
            const stk_json *value = stk_json_value(object, k);
            const char *key = stk_json_text(stk_json_key(object, k));
            int column = column_of(r, stk_text_or(key, ""), (int)value->line);
            if (column < 0) {
                return column;
            }
            if (value->kind != STK_JSON_NULL && value->kind != STK_JSON_INT &&
                value->kind != STK_JSON_REAL && value->kind != STK_JSON_TEXT) {
                return refuse_table(r, (int)value->line, "a cell must be a number or text", NULL);
            }
            row[column] = value->kind == STK_JSON_NULL ? NULL : value->text;
        }
    }
    return 0;
}

int stk_table_load(const char *path, const char *const *columns, stk_arena *arena, stk_table *ret,
                   stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    *ret = (stk_table){.path = path, .columns = columns};
    while (columns[ret->n_columns] != NULL) {
        ret->n_columns++;
    }
    reader r = {.table = ret, .arena = arena, .err = err};
    STK_TRY(stk_file_read(path, FILE_BYTES, &data, &len, err));
    char *text = stk_arena_dupn(arena, data, len);
    STK_TRY(stk_err_if_null(text, r.err));
    size_t first = strspn(text, " \t\r\n");
    return text[first] == '[' || text[first] == '{' ? read_json(&r, text, len) : read_csv(&r, text);
}

/* --- cells --- */

const char *stk_table_cell(const stk_table *table, uint32_t row, uint32_t column)
{
    return table->cells[(size_t)row * table->n_columns + column];
}

static int wrong_cell(const stk_table *table, uint32_t row, uint32_t column, const char *what,
                      stk_err *err)
{
    int rc = stk_err_set(err, STK_E_USAGE, "%s '%s' is not %s", table->columns[column],
                         stk_table_cell(table, row, column), what);
    stk_err_at(err, table->path, table->lines[row]);
    return rc;
}

int stk_table_number(const stk_table *table, uint32_t row, uint32_t column, double min, double max,
                     double *ret, stk_err *err)
{
    const char *cell = stk_table_cell(table, row, column);
    if (cell == NULL) {
        return 0;
    }
    char *end;
    errno = 0;
    double number = strtod(cell, &end);
    if (end == cell || *end != '\0' || !isfinite(number) || number < min || number > max) {
        char what[100];
        (void)snprintf(what, sizeof what, "a number from %g to %g", min, max);
        return wrong_cell(table, row, column, what, err);
    }
    *ret = number;
    return 0;
}

int stk_table_memory(const stk_table *table, uint32_t row, uint32_t column, int64_t *ret_bytes,
                     stk_err *err)
{
    const char *cell = stk_table_cell(table, row, column);
    if (cell == NULL) {
        return 0;
    }
    if (stk_units_parse_memory(cell, ret_bytes, NULL) >= 0) {
        return 0;
    }
    return wrong_cell(table, row, column, "an amount of memory such as 10GB", err);
}
