/* `stoker runs`: the runs of a store as a table. */
#include <string.h>
#include <sys/param.h>

#include "base/units.h"
#include "show/show_text.h"

static void cell(const stk_style *style, stk_buf *out, const char *text, int width)
{
    stk_text_fit(out, text, width, true, style->utf8);
    stk_buf_text(out, "  ");
}

static int pipeline_width(const stk_run_row *rows, uint32_t n_rows)
{
    int width = 8;
    for (uint32_t i = 0; i < n_rows; i++) {
        int w = stk_text_width(rows[i].pipeline);
        width = MAX(w, width);
    }
    return MIN(width, 32);
}

static const char *took(const stk_run_row *row, const stk_style *style, char *buf, size_t size)
{
    bool known = row->ended_ms != 0 || strcmp(row->status, "running") == 0;
    int64_t end = row->ended_ms ? row->ended_ms : row->now_ms;
    if (known) {
        return stk_units_format_duration(end - row->created_ms, buf, size);
    }
    return stk_text_dash(style->utf8);
}

void stk_text_runs(const stk_run_row *rows, uint32_t n_rows, const stk_style *style, stk_buf *out)
{
    int pipeline = pipeline_width(rows, n_rows);
    for (uint32_t i = 0; i < n_rows; i++) {
        const stk_run_row *row = &rows[i];
        char text[64];
        stk_ink ink;
        const char *mark = stk_text_mark(row->status, style->utf8, &ink);
        stk_text_ink(out, style, ink, mark);
        stk_buf_char(out, ' ');
        cell(style, out, row->id, 23);
        cell(style, out, row->pipeline, pipeline);
        cell(style, out, row->status, 11);
        cell(style, out, stk_text_time(row->created_ms, false, text, sizeof text), 19);
        cell(style, out, took(row, style, text, sizeof text), 10);
        if (strcmp(row->name, row->id) != 0) {
            cell(style, out, row->name, 24);
        }
        while (out->len > 0 && out->data[out->len - 1] == ' ') {
            out->data[--out->len] = '\0';
        }
        stk_buf_char(out, '\n');
    }
}
