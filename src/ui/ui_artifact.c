/* An artifact: what it is, which task made it, which used it, and from what. */
#include <string.h>
#include <sys/param.h>

#include "base/digest.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_html.h"
#include "show/show_text.h"
#include "sys/file.h"
#include "ui/ui_private.h"

enum { NAMES_MAX = 500, USES_SHOWN = 200, HTML_MAX = 64 << 20 };

static void put_artifact_link(ui_request *r, const char *digest, const char *text)
{
    stk_html_href(&r->out, "artifact", (const char *const[]){"digest", digest, NULL});
    stk_html_put(&r->out, "%s</a>", text);
}

static void put_use(ui_request *r, const ui_use *use)
{
    static const char *const kinds[] = {"made by", "taken from the cache by", "used by"};
    char text[64];
    stk_html_put(&r->out, "<tr><td class=\"dim\">%s</td><td><b>", kinds[use->kind]);
    const char *const pairs[] = {"run", use->run->id, "task", use->task, NULL};
    stk_html_href(&r->out, "task", pairs);
    stk_html_put(&r->out, "%s</a></b> <span class=\"dim\">%s</span></td><td>%s</td><td>", use->task,
                 use->name, use->run->pipeline);
    stk_html_href(&r->out, "run", (const char *const[]){"run", use->run->id, NULL});
    stk_html_put(&r->out, "%s</a></td><td class=\"num\">%s</td></tr>\n", use->run->name,
                 stk_text_time(use->run->created_ms, false, text, sizeof text));
}

/* The artifacts that the task of a use made or used, on the other side of it. */
static int put_beyond(ui_request *r, const ui_use *use, ui_use_kind wanted, uint32_t *n,
                      stk_err *err)
{
    ui_use *uses = NULL;
    uint32_t n_uses = 0, left = 0;
    STK_TRY(stk_ui_index_uses(r->at->index, NULL, use->run->id, use->task, r->arena, &uses, &n_uses,
                              &left, err));
    for (uint32_t i = 0; i < n_uses && *n < USES_SHOWN; i++) {
        if (uses[i].kind != wanted) {
            continue;
        }
        (*n)++;
        stk_buf_text(&r->out, "<tr><td>");
        put_artifact_link(r, uses[i].digest, stk_arena_printf(r->arena, "%.12s", uses[i].digest));
        stk_html_put(&r->out, "</td><td>%s</td><td class=\"dim\">%s of run %s</td></tr>\n",
                     uses[i].name, use->task, use->run->name);
    }
    return 0;
}

/* What the artifact was made from, or what was made with it. */
static int put_stream(ui_request *r, const ui_use *uses, uint32_t n, bool is_up, stk_err *err)
{
    uint32_t shown = 0;
    size_t before = r->out.len;
    stk_html_panel_open(&r->out, is_up ? "Made from" : "Made with it");
    stk_buf_text(
        &r->out,
        "<div class=\"scroll\"><table class=\"named\"><thead><tr><th>artifact</th><th>name</th>"
        "<th>of</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < n; i++) {
        if (uses[i].kind == (is_up ? UI_MADE : UI_USED)) {
            STK_TRY(put_beyond(r, &uses[i], is_up ? UI_USED : UI_MADE, &shown, err));
        }
    }
    stk_buf_text(&r->out, "</tbody></table></div>");
    stk_html_panel_close(&r->out);
    if (shown == 0) {
        r->out.len = before;
        r->out.data[before] = '\0';
    }
    return 0;
}

/* The artifact as its maker's record has it: its type, size, value. */
static int find_ref(ui_request *r, const ui_use *uses, uint32_t n, stk_view_ref *ret, stk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        STK_VIEW_AUTO view = NULL;
        stk_view_details d;
        uint32_t task = 0;
        if (uses[i].kind == UI_USED ||
            stk_view_load(r->at->store, uses[i].run->id, &view, NULL) < 0 ||
            !stk_view_find(view, uses[i].task, &task)) {
            continue;
        }
        STK_TRY(stk_view_get_details(view, task, r->arena, &d, err));
        for (uint32_t k = 0; k < d.n_outputs; k++) {
            if (stk_text_same(d.outputs[k].digest, ret->digest)) {
                stk_ui_share_put_artifact(r, &d.outputs[k]);
                STK_TRY(stk_html_artifact_served(&d.outputs[k], r->at->path, &r->out, err));
                return 0;
            }
        }
    }
    return 0;
}

static int need_digest(ui_request *r, const char **ret, stk_err *err)
{
    STK_TRY(stk_ui_need(r, "digest", ret, err));
    if (!stk_digest_is_hex(*ret)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' is not the digest of an artifact", *ret);
    }
    return 0;
}

int stk_ui_page_artifact(ui_request *r, stk_err *err)
{
    stk_view_ref ref = {.size = -1};
    ui_use *uses = NULL;
    uint32_t n = 0, left = 0;
    STK_TRY(need_digest(r, &ref.digest, err));
    STK_TRY(
        stk_ui_index_uses(r->at->index, ref.digest, NULL, NULL, r->arena, &uses, &n, &left, err));
    r->title = stk_arena_printf(r->arena, "artifact %.12s", ref.digest);
    const char *name = "artifact";
    for (uint32_t i = n; i-- > 0;) {
        if (uses[i].kind != UI_USED) {
            name = stk_arena_printf(r->arena, "%s.%s", uses[i].task, uses[i].name);
        }
    }
    stk_html_put(&r->out,
                 "<header><div class=\"title\"><h1>%s</h1></div><div class=\"meta\"><code>%s</code>"
                 "</div></header>\n",
                 name, ref.digest);
    if (left > 0) {
        stk_buf_text(&r->change, "of=now");
        stk_buf_printf(&r->out, "<p class=\"dim\">%u runs are still to be searched.</p>\n", left);
    }
    STK_TRY(find_ref(r, uses, n, &ref, err));
    stk_html_panel_open(&r->out, "Made and used");
    stk_buf_text(&r->out, "<div class=\"scroll\"><table><thead><tr><td></td><th>task</th>"
                          "<th>pipeline</th><th>run</th><th>started</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < MIN(n, USES_SHOWN); i++) {
        put_use(r, &uses[i]);
    }
    stk_buf_text(&r->out, "</tbody></table></div>");
    if (n > USES_SHOWN) {
        stk_buf_printf(&r->out, "<p class=\"meta\">and %u more</p>", n - USES_SHOWN);
    }
    stk_html_panel_close(&r->out);
    STK_TRY(put_stream(r, uses, n, true, err));
    return put_stream(r, uses, n, false, err);
}

int stk_ui_page_raw(ui_request *r, stk_err *err)
{
    const char *digest = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    r->type = "text/html; charset=utf-8";
    r->csp = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
             "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
    STK_TRY(need_digest(r, &digest, err));
    const char *path = stk_view_artifact_path(r->arena, r->at->path, digest);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_file_read_untrusted(path, HTML_MAX, &text, &len, err));
    return stk_buf_add(&r->out, text, len);
}

int stk_ui_page_names(ui_request *r, stk_err *err)
{
    stk_named_row *rows = NULL;
    uint32_t n = 0;
    char text[64];
    r->title = "artifacts";
    stk_buf_printf(&r->change, "of=runs");
    STK_TRY(stk_store_list_named(r->at->store, NULL, NULL, NAMES_MAX, r->arena, &rows, &n, err));
    stk_buf_text(&r->out, "<header><div class=\"title\"><h1>Artifacts with a name</h1></div>"
                          "</header>\n<section class=\"panel\"><div class=\"scroll\"><table>"
                          "<thead><tr><th>name</th><th>version</th><th>made by</th><th>digest</th>"
                          "<th>at</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < n; i++) {
        stk_html_put(&r->out, "<tr><td><b>%s</b></td><td>%s</td><td>", rows[i].name,
                     rows[i].version);
        if (rows[i].run != NULL && stk_store_has_run(r->at->store, rows[i].run)) {
            stk_html_href(&r->out, "run", (const char *const[]){"run", rows[i].run, NULL});
            stk_html_put(&r->out, "%s of %s</a>", rows[i].step, rows[i].run);
        }
        stk_buf_text(&r->out, "</td><td>");
        put_artifact_link(r, rows[i].digest, stk_arena_printf(r->arena, "%.12s", rows[i].digest));
        stk_html_put(&r->out, "</td><td class=\"num\">%s</td></tr>\n",
                     stk_text_time(rows[i].created_ms, false, text, sizeof text));
    }
    stk_buf_text(&r->out, "</tbody></table></div>");
    if (n == 0) {
        stk_buf_text(&r->out, "<p class=\"dim\">No artifact has a name. A step gives one by "
                              "<code>ArtifactConfig(name=…)</code>.</p>");
    }
    stk_html_panel_close(&r->out);
    return 0;
}
