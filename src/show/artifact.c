#include "show/artifact.h"

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_text.h"

static void put_fields(const stk_view_found *f, const char *path, int64_t size, stk_buf *out)
{
    stk_json_put_text(out, "digest", f->ref.digest);
    stk_json_put_text(out, "path", path);
    stk_json_put_text(out, "step", f->step);
    stk_json_put_text(out, "output", f->ref.name);
    stk_json_put_text(out, "format", f->ref.format);
    stk_json_put_text(out, "type", f->ref.type);
    stk_json_put_text(out, "name", f->ref.artifact_name);
    stk_json_put_text(out, "version", f->ref.artifact_version);
    stk_json_put_whole(out, "size", size);
    stk_json_put_raw(out, "meta", stk_text_or(f->ref.meta, "{}"));
    stk_json_put_raw(out, "metadata", stk_text_or(f->ref.metadata, "{}"));
}

void stk_show_artifact_json(const stk_view_found *f, const char *path, int64_t size, stk_buf *out)
{
    stk_buf_char(out, '{');
    put_fields(f, path, size, out);
    stk_json_close(out, '}');
}

static void put_line(const stk_view_found *f, stk_buf *out)
{
    char size[32] = "";
    const char *type = f->ref.type;
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    if (f->ref.artifact_name != NULL) {
        stk_buf_printf(&line, "%s:%s", f->ref.artifact_name,
                       stk_text_or(f->ref.artifact_version, ""));
    } else {
        stk_buf_printf(&line, "%s.%s", stk_text_or(f->step, ""), stk_text_or(f->ref.name, ""));
    }
    if (f->ref.size >= 0) {
        (void)stk_units_format_memory(f->ref.size, size, sizeof size);
    }
    if (type == NULL || *type == '\0') {
        type = stk_text_or(f->ref.format, "");
    }
    stk_text_fit(out, line.data, 36, true, true);
    stk_buf_printf(out, "  %9s  ", size);
    stk_text_fit(out, type, 28, true, true);
    stk_buf_printf(out, "  %.16s\n", stk_text_or(f->ref.digest, ""));
}

static void put_listed(bool json, const stk_view_found *found, stk_buf *out)
{
    if (json) {
        stk_buf_text(out, out->len == 0 ? "[" : ",\n ");
        stk_show_artifact_json(found, NULL, found->ref.size, out);
    } else {
        put_line(found, out);
    }
}

static int list_run(bool json, stk_store *store, const char *run, stk_arena *arena, stk_buf *out,
                    stk_err *err)
{
    char id[40];
    STK_VIEW_AUTO view = NULL;
    STK_TRY(stk_store_resolve_run(store, run, id, err));
    STK_TRY(stk_view_load(store, id, &view, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        stk_view_details d;
        STK_TRY(stk_view_get_details(view, i, arena, &d, err));
        for (uint32_t k = 0; k < d.n_outputs; k++) {
            const stk_view_found found = {stk_view_get_task(view, i)->label, d.outputs[k]};
            put_listed(json, &found, out);
        }
        stk_arena_reset(arena);
    }
    return 0;
}

/* A named artifact with what its row says besides: when it was named, and by which run. */
static void put_named(const stk_view_found *found, const stk_named_row *row, stk_buf *out)
{
    stk_buf_text(out, out->len == 0 ? "[{" : ",\n {");
    put_fields(found, NULL, found->ref.size, out);
    stk_json_put_text(out, "run", row->run);
    stk_json_put_whole(out, "created_ms", row->created_ms);
    stk_json_put_raw(out, "tags", stk_text_or(found->ref.tags, "[]"));
    stk_json_close(out, '}');
}

static int list_names(bool json, stk_store *store, stk_arena *arena, stk_buf *out, stk_err *err)
{
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    STK_TRY(stk_store_list_named(store, NULL, NULL, UINT32_MAX, arena, &rows, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_found found = {rows[i].step, stk_view_named_ref(&rows[i], arena)};
        if (json) {
            put_named(&found, &rows[i], out);
        } else {
            put_line(&found, out);
        }
    }
    return 0;
}

int stk_show_artifacts(stk_store *store, const char *run, bool json, stk_arena *arena, stk_buf *out,
                       stk_err *err)
{
    if (run != NULL) {
        STK_TRY(list_run(json, store, run, arena, out, err));
    } else {
        STK_TRY(list_names(json, store, arena, out, err));
    }
    if (json) {
        stk_buf_text(out, out->len == 0 ? "[]\n" : "]\n");
    } else if (out->len == 0 && run != NULL) {
        stk_buf_text(out, "this run has no artifacts\n");
    } else if (out->len == 0) {
        stk_buf_text(out, "no named artifacts; 'stoker artifact list RUN' lists a run's\n");
    }
    return 0;
}
