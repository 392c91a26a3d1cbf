/* The card's table of a growing run's artifacts: those of one name that a step's tasks made are one
 * row. */
#include <string.h>
#include <sys/param.h>

#include "base/map.h"
#include "base/units.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

static const char *name_of(const page *p, uint32_t i_step)
{
    return stk_spec_step(stk_view_spec(p->view), i_step)->name;
}

/* The artifacts of one name that the tasks of a step made. */
typedef struct made {
    uint32_t i_step, n;
    int64_t bytes; /* sum of the known sizes; -1: none is known */
    stk_view_ref first;
} made;

static int add_made(const page *p, uint32_t i_step, const char *name, const stk_json *ref,
                    stk_map *known, made *all, uint32_t *n, stk_arena *keep)
{
    const char *key = stk_arena_printf(keep, "%u %s", i_step, name);
    uint64_t at = 0;
    STK_TRY(stk_err_if_null(key, p->err));
    if (!stk_map_get(known, key, &at)) {
        if (*n == MAX_ARTIFACTS) {
            return 0;
        }
        at = (*n)++;
        all[at] =
            (made){.i_step = i_step,
                   .bytes = -1,
                   .first = {.name = stk_arena_dup(keep, name),
                             .digest = stk_arena_dup(keep, stk_json_get_text(ref, "digest")),
                             .format = stk_arena_dup(keep, stk_json_get_text(ref, "format")),
                             .type = stk_arena_dup(keep, stk_json_get_text(ref, "type")),
                             .value = stk_json_dump_in(stk_json_get(ref, "value"), keep),
                             .preview = stk_arena_dup(keep, stk_json_get_text(ref, "preview")),
                             .size = stk_json_get_whole(ref, "size", -1)}};
        if (all[at].first.name == NULL || stk_map_put(known, key, at) < 0) {
            return stk_err_nomem(p->err);
        }
    }
    int64_t size = stk_json_get_whole(ref, "size", -1);
    all[at].n++;
    if (size >= 0) {
        all[at].bytes = size + MAX(all[at].bytes, 0);
    }
    return 0;
}

static int find_made(const page *p, made *all, uint32_t *ret_n, stk_arena *keep)
{
    STK_MAP_AUTO known = {0};
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *end = stk_json_read(scratch, task->end_data);
        for (uint32_t k = 0; k < stk_json_n_members(stk_json_get(end, "outputs")); k++) {
            const char *name = stk_json_key(stk_json_get(end, "outputs"), k)->text;
            const stk_json *ref = stk_json_value(stk_json_get(end, "outputs"), k);
            STK_TRY(add_made(p, task->i_step, name, ref, &known, all, ret_n, keep));
        }
    }
    return 0;
}

int stk_html_grown_artifacts(const page *p)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = 0;
    char text[32];
    STK_TRY(stk_err_if_null(keep, p->err));
    made *all = stk_arena_array(keep, MAX_ARTIFACTS, sizeof *all);
    STK_TRY(stk_err_if_null(all, p->err));
    STK_TRY(find_made(p, all, &n, keep));
    if (n > 0) {
        stk_html_artifacts_open(p->out, "Artifacts");
    }
    for (uint32_t i = 0; i < n; i++) {
        const made *one = &all[i];
        if (one->n == 1) {
            stk_html_artifact_row(p, name_of(p, one->i_step), &one->first, NULL);
            continue;
        }
        stk_html_put(p->out, "<tr><td><b>%s.%s</b> <span class=\"dim\">×%s</span></td>",
                     name_of(p, one->i_step), one->first.name,
                     stk_text_count(one->n, text, sizeof text));
        stk_html_cell(p->out, NULL, "");
        stk_html_cell(p->out, NULL, one->first.type);
        stk_html_cell_size(p->out, one->bytes);
        stk_buf_text(p->out, "<td class=\"dim\">one a task</td></tr>\n");
    }
    if (n > 0) {
        stk_html_artifacts_close(p->out);
    }
    return 0;
}
