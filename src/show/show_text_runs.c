/* `stoker runs`: the runs of a store as a table. */
#include <string.h>
#include <sys/param.h>

#include "base/units.h"
#include "show/show_text.h"

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
        stk_text_cell(out, style, row->id, 23);
        stk_text_cell(out, style, row->pipeline, pipeline);
        stk_text_cell(out, style, row->status, 11);
        stk_text_cell(out, style, stk_text_time(row->created_ms, false, text, sizeof text), 19);
        stk_text_cell(out, style, took(row, style, text, sizeof text), 10);
        if (strcmp(row->name, row->id) != 0) {
            stk_text_cell(out, style, row->name, 24);
        }
        stk_text_end_line(out);
    }
}
