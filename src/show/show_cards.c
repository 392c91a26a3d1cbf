/* The pages in a run's folder, card.html and STEP-ID.card.html, and the links between them and to
 * the logs. Links are relative, so that they hold for a copy of the store too. */
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_html_private.h"
#include "show/show_svg.h"
#include "show/show_task_card.h"
#include "sys/file.h"

enum {
    MAX_TASK_CARDS = 100, /* written with a run's card */
    MAX_EARLIER = 50      /* runs among which the one before is looked for */
};

static char *folder_of(const stk_view *view, stk_arena *arena)
{
    const stk_view_run *run = stk_view_get_run(view);
    if (run->store == NULL) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s/runs/%s", run->store, run->id);
}

const char *stk_task_card_path(const stk_view *view, uint32_t i_task, stk_arena *arena)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *folder = folder_of(view, arena);
    if (folder == NULL) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s/%s-%u.card.html", folder, task->name, task->id);
}

/* --- links --- */

static void open_task_link(const page *p, uint32_t i_task, const char *target, const char *stream)
{
    const char *const pairs[] = {"run",
                                 p->run->id,
                                 "task",
                                 stk_view_get_task(p->view, i_task)->label,
                                 stream == NULL ? NULL : "stream",
                                 stream,
                                 NULL};
    stk_html_href(p->out, target, pairs);
}

void stk_html_task_link(const page *p, uint32_t i_task, const char *text)
{
    if (p->served) {
        open_task_link(p, i_task, "task", NULL);
        stk_html_put(p->out, "%s</a>", text);
        return;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path = NULL;
    if (arena != NULL && p->linked) {
        path = stk_task_card_path(p->view, i_task, arena);
    }
    if (path != NULL && access(path, F_OK) == 0) {
        stk_html_put(p->out, "<a href=\"%s\">%s</a>", stk_text_behind(path, '/'), text);
    } else {
        stk_html_user(p->out, text);
    }
}

/* A link to a log, or nothing if it is empty. */
static void log_link(const page *p, uint32_t i_task, const char *name, const char *path)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *folder = arena == NULL ? NULL : folder_of(p->view, arena);
    size_t n = folder == NULL ? 0 : strlen(folder);
    struct stat st;
    if (path == NULL || n == 0 || strncmp(path, folder, n) != 0 || stat(path, &st) < 0 ||
        st.st_size == 0) {
        return;
    }
    if (p->served) {
        stk_buf_char(p->out, ' ');
        open_task_link(p, i_task, "log", name);
        stk_html_put(p->out, "%s</a>", name);
    } else {
        stk_html_put(p->out, " <a href=\"%s\">%s</a>", path + n + 1, name);
    }
}

void stk_html_log_links(const page *p, uint32_t i_task, const stk_view_details *d)
{
    if ((p->linked || p->served) && d->stdout_path != NULL) {
        log_link(p, i_task, "stdout", d->stdout_path);
        log_link(p, i_task, "stderr", d->stderr_path);
    }
}

void stk_html_artifact_link(const page *p, const char *step, const stk_view_ref *ref)
{
    bool is_link = p->served && ref->digest != NULL;
    if (is_link) {
        stk_html_href(p->out, "artifact", (const char *const[]){"digest", ref->digest, NULL});
    }
    if (step != NULL) {
        stk_html_put(p->out, "%s.", step);
    }
    stk_html_user(p->out, ref->name);
    stk_buf_text(p->out, stk_text_when(is_link, "</a>"));
}

/* The run of the same pipeline that was made before this one and has a card. */
static const stk_run_row *run_before(const page *p, stk_arena *arena)
{
    stk_run_row *rows = NULL;
    uint32_t n = 0, i = 0;
    if (p->store == NULL || stk_store_list_runs(p->store, p->run->pipeline, NULL, MAX_EARLIER,
                                                arena, &rows, &n, NULL) < 0) {
        return NULL;
    }
    while (i < n && strcmp(rows[i].id, p->run->id) != 0) {
        i++;
    }
    for (i++; i < n; i++) {
        const char *path =
            stk_arena_printf(arena, "%s/runs/%s/card.html", p->run->store, rows[i].id);
        if (p->served || (path != NULL && access(path, F_OK) == 0)) {
            return &rows[i];
        }
    }
    return NULL;
}

void stk_html_before_link(const page *p)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_run_row *before = NULL;
    char text[32] = "";
    if (arena != NULL && (p->linked || p->served)) {
        before = run_before(p, arena);
    }
    if (before == NULL) {
        return;
    }
    if (before->ended_ms > before->created_ms) {
        stk_units_format_duration(before->ended_ms - before->created_ms, text, sizeof text);
    }
    stk_buf_text(p->out, " · before: ");
    if (p->served) {
        stk_html_href(p->out, "run", (const char *const[]){"run", before->id, NULL});
    } else {
        stk_html_put(p->out, "<a href=\"../%s/card.html\">", before->id);
    }
    stk_html_put(p->out, "%s</a> (%s%s%s)", before->name, before->status,
                 stk_text_when(*text != '\0', " in "), text);
    if (p->served) {
        stk_buf_text(p->out, " · ");
        stk_html_href(p->out, "compare",
                      (const char *const[]){"run", p->run->id, "run", before->id, NULL});
        stk_buf_text(p->out, "compare</a>");
    }
}

/* --- pages --- */

int stk_html_write_task_card(const stk_view *view, uint32_t i_task,
                             const stk_task_card_options *options, int64_t now_ms, const char *path,
                             stk_err *err)
{
    STK_BUF_AUTO html = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_TRY(stk_html_task_card(view, i_task, options, now_ms, &html, err));
    return stk_file_write_atomic(path, html.data, html.len, 0644, err);
}

/* Writes the pages of the first tasks that ran or failed. One that can't be written has no link. */
static void write_task_cards(const stk_view *view, int64_t now_ms)
{
    STK_BUF_AUTO graph = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    bool collapsed = false;
    uint32_t n = 0;
    if (stk_svg_graph(view, now_ms, &graph, &collapsed, NULL) < 0) {
        stk_buf_clear(&graph);
    }
    const stk_task_card_options options = {.rank = -1, .linked = true, .graph = &graph};
    for (uint32_t i = 0; arena != NULL && i < stk_view_n_tasks(view) && n < MAX_TASK_CARDS; i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        const char *path = task->end_data == NULL ? NULL : stk_task_card_path(view, i, arena);
        if (path != NULL && stk_html_write_task_card(view, i, &options, now_ms, path, NULL) == 0) {
            n++;
        }
        stk_arena_reset(arena);
    }
}

int stk_html_write_card(const stk_view *view, stk_store *store, int64_t now_ms, char **ret_path,
                        stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    STK_BUF_AUTO html = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO path = STK_BUF_INIT(8192);
    if (run->store == NULL) {
        return stk_err_set(err, STK_E_USAGE, "run %s has no folder for its card", run->id);
    }
    write_task_cards(view, now_ms);
    STK_TRY(stk_html_card(view, store, now_ms, true, &html, err));
    stk_buf_printf(&path, "%s/runs/%s/card.html", run->store, run->id);
    STK_TRY(stk_buf_check(&path, err));
    STK_TRY(stk_file_write_atomic(path.data, html.data, html.len, 0644, err));
    *ret_path = path.data;
    path.data = NULL; /* now the caller's */
    return 0;
}
