#include "show/show_task_card.h"

#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/code.h"
#include "show/show_components.h"
#include "show/show_css.h"
#include "show/show_html_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"
#include "sys/file.h"

enum { LOG_LINES = 40 };

/* The page of one task: `card` is what the step wrote, or NULL. */
typedef struct sheet {
    page p;
    uint32_t i_task;
    int64_t rank;
    const stk_view_task *task;
    const stk_json *card;
    const char *type;
    const stk_buf *graph; /* or NULL: it is drawn */
    int reload_s;
} sheet;

/* --- head --- */

static bool is_live(const sheet *s)
{
    return stk_view_is_live(s->p.view) && !stk_state_is_final(s->task->state);
}

static void meta(const sheet *s, const stk_view_details *d)
{
    stk_buf *out = s->p.out;
    char text[64];
    stk_html_put(out, "<div class=\"meta\">task <code>%s/%s", s->p.run->id, s->task->label);
    if (s->rank > 0) {
        stk_buf_printf(out, "_node_%lld", (long long)s->rank);
    }
    stk_buf_text(out, "</code> of ");
    if (s->p.served) {
        stk_html_href(out, "run", (const char *const[]){"run", s->p.run->id, NULL});
    } else if (s->p.linked) {
        stk_buf_text(out, "<a href=\"card.html\">");
    }
    stk_html_user(out, s->p.run->pipeline);
    stk_buf_text(out, stk_text_when(s->p.served || s->p.linked, "</a>"));
    if (s->task->started_ms > 0) {
        stk_buf_printf(out, " · %s", stk_text_time(s->task->started_ms, false, text, sizeof text));
    }
    if (d->cached_from != NULL) {
        stk_html_put(out, " · taken over from run <code>%s</code>", d->cached_from);
    }
    stk_buf_text(out, "</div></header>\n");
}

static int head(const sheet *s)
{
    const page *p = &s->p;
    stk_buf *out = p->out;
    stk_view_details d;
    const char *status = stk_view_status(p->view, s->task, true);
    const char *title = stk_json_get_text(s->card, "title");
    STK_TRY(stk_html_details(p, s->i_task, &d));
    title = stk_text_or(title, stk_view_who(p->view, s->i_task, p->arena));
    if (p->served) {
        stk_html_title(out, title, status);
        meta(s, &d);
        return 0;
    }
    stk_html_open(out, "img-src data:; ");
    stk_html_put(out, "%s %s</title>\n", title, status);
    if (s->reload_s > 0 && is_live(s)) {
        stk_buf_printf(out, "<meta http-equiv=\"refresh\" content=\"%d\"/>\n", s->reload_s);
    }
    stk_buf_text(out, "<style>\n");
    stk_buf_text(out, stk_show_css);
    stk_buf_text(out, stk_show_parts_css);
    stk_buf_text(out, "</style></head>\n<body><main>\n");
    stk_html_title(out, title, status);
    meta(s, &d);
    return 0;
}

static int tiles(const sheet *s)
{
    stk_buf *out = s->p.out;
    stk_view_details d;
    STK_TRY(stk_html_details(&s->p, s->i_task, &d));
    if (s->task->started_ms == 0) {
        return 0;
    }
    int64_t ms = stk_show_took_ms(s->task->started_ms, s->task->ended_ms, s->p.now_ms);
    stk_buf_text(out, "<div class=\"tiles\">\n");
    stk_html_tile_seconds(out, (double)ms / 1000, "wall time");
    stk_html_tile_seconds(out, d.used.cpu_s, "CPU time");
    stk_html_tile_bytes(out, d.used.memory_bytes, "peak memory");
    if (s->task->attempt > 1) {
        stk_html_tile_count(out, s->task->attempt, "attempts");
    }
    stk_buf_text(out, "</div>\n");
    return 0;
}

static int notes(const sheet *s)
{
    stk_view_details d;
    STK_TRY(stk_html_details(&s->p, s->i_task, &d));
    for (uint32_t i = 0; i < d.n_warnings; i++) {
        stk_html_note(s->p.out, NULL, d.warnings[i]);
    }
    if (s->task->state == STK_TASK_FAILED) {
        return stk_html_failure(&s->p, s->i_task);
    }
    return 0;
}

static int components(const sheet *s)
{
    const stk_json *list = stk_json_get(s->card, "components");
    if (stk_json_n_items(list) > 0) {
        stk_buf_text(s->p.out, "<section class=\"panel report\"><h2>Report of the step</h2>\n");
        stk_html_components(s->p.out, list);
        stk_html_panel_close(s->p.out);
    }
    return 0;
}

/* --- what the engine knows --- */

static void pairs(const sheet *s, const char *heading, const char *json)
{
    STK_BUF_AUTO rows = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_html_pairs(&s->p, &rows, "", json);
    stk_html_pairs_panel(s->p.out, heading, &rows);
}

static int parameters(const sheet *s)
{
    pairs(s, "Parameters", s->p.run->parameters);
    return 0;
}

/* What the step logged, and the failure that @catch handled. */
static int metadata(const sheet *s)
{
    stk_view_details d;
    STK_TRY(stk_html_details(&s->p, s->i_task, &d));
    pairs(s, "Metadata", d.metadata);
    return 0;
}

/* The artifacts of one table, which the first row opens. `previews`: what the step's card says of
 * them, by name; or NULL. */
typedef struct artifact_list {
    const char *heading;
    const stk_json *previews;
    uint32_t n, most;
} artifact_list;

static void artifact_row(const sheet *s, artifact_list *list, const stk_view_ref *ref)
{
    if (list->n++ == 0) {
        stk_html_artifacts_open(s->p.out, list->heading);
    }
    stk_html_artifact_row(&s->p, NULL, ref, stk_json_get_text(list->previews, ref->name));
}

static void artifacts_end(const sheet *s, const artifact_list *list)
{
    if (list->n > 0) {
        stk_html_artifacts_close(s->p.out);
    }
}

/* Those of a scope; with `own` those that the task itself made. */
static void scope_rows(const sheet *s, const stk_view_scope *scope, bool own, artifact_list *list)
{
    for (uint32_t i = 0; i < scope->n && list->n < list->most; i++) {
        if (own && scope->items[i].task != s->i_task) {
            continue;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *json = stk_json_read(scratch, scope->items[i].ref);
        const stk_view_ref ref = {.name = scope->items[i].name,
                                  .digest = stk_json_get_text(json, "digest"),
                                  .format = stk_json_get_text(json, "format"),
                                  .type = stk_json_get_text(json, "type"),
                                  .size = stk_json_get_whole(json, "size", -1),
                                  .value = stk_json_dump_in(stk_json_get(json, "value"), scratch),
                                  .preview = stk_json_get_text(json, "preview")};
        artifact_row(s, list, &ref);
    }
}

static int artifacts(const sheet *s)
{
    stk_view_details d;
    artifact_list list = {"Artifacts", stk_json_get(s->card, "previews"), 0, MAX_ARTIFACTS};
    STK_TRY(stk_html_details(&s->p, s->i_task, &d));
    if (stk_view_grows(s->p.view)) {
        stk_view_scope scope = {0};
        STK_TRY(stk_view_get_scope(s->p.view, s->i_task, (uint32_t)MAX(s->rank, 0), s->p.arena,
                                   &scope, s->p.err));
        scope_rows(s, &scope, false, &list);
        d.n_outputs = 0; /* the scope includes them */
    }
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        artifact_row(s, &list, &d.outputs[i]);
    }
    artifacts_end(s, &list);
    return 0;
}

/* What attempts before the last had made, the newest first. */
static int earlier_artifacts(const sheet *s)
{
    uint32_t room = MAX_ARTIFACTS;
    for (const stk_view_attempt *one = s->task->earlier; one != NULL; one = one->before) {
        stk_view_scope scope = {0};
        artifact_list list = {.most = room};
        list.heading = stk_arena_printf(s->p.arena, "Artifacts of attempt %u", one->number);
        STK_TRY(stk_err_if_null(list.heading, s->p.err));
        STK_TRY(stk_view_attempt_scope(s->p.view, s->i_task, (uint32_t)MAX(s->rank, 0), one,
                                       s->p.arena, &scope, s->p.err));
        scope_rows(s, &scope, true, &list);
        artifacts_end(s, &list);
        room -= list.n;
    }
    return 0;
}

static int graph(const sheet *s)
{
    bool collapsed = false;
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    if (s->graph != NULL) {
        stk_html_panel(s->p.out, "Graph", "<div class=\"scroll tall\">", s->graph, "</div>");
        return 0;
    }
    int rc = stk_svg_graph(s->p.view, s->p.now_ms, &svg, &collapsed, s->p.err);
    if (rc != STK_E_LIMIT) {
        STK_TRY(rc);
        stk_html_panel(s->p.out, "Graph", "<div class=\"scroll tall\">", &svg, "</div>");
    }
    return 0;
}

static int code(const sheet *s)
{
    const stk_json *kept = stk_code_read(s->p.view, s->p.arena);
    uint32_t n = stk_code_n(kept, s->task->name);
    for (uint32_t i = 0; i < n; i++) {
        stk_code_part part = stk_code_get(kept, s->task->name, i);
        if (i == 0) {
            stk_html_panel_open(s->p.out, "Code of the step");
        }
        stk_html_put(s->p.out, "<details%s><summary><code>%s</code> ",
                     stk_text_when(!part.is_module, " open"), part.name);
        stk_html_put(s->p.out, "<span class=\"dim\">%s</span></summary>",
                     stk_text_or(part.file, "a notebook's cell"));
        stk_html_python(s->p.out, part.text);
        stk_buf_text(s->p.out, "</details>\n");
    }
    if (n > 0) {
        stk_html_panel_close(s->p.out);
    }
    return 0;
}

static int resources(const sheet *s)
{
    stk_buf *out = s->p.out;
    stk_html_panel_open(out, "Resources: asked, granted, used");
    stk_buf_text(out, "<div class=\"scroll\"><table "
                      "class=\"steps\"><thead><tr><th>task</th><th>status</th><th>time"
                      "</th><th>asked</th><th>granted</th><th>used</th><td></td></tr></thead>"
                      "<tbody>\n");
    int rc = stk_html_step_row(&s->p, s->i_task);
    stk_buf_text(out, "</tbody></table></div>");
    stk_html_panel_close(out);
    return rc;
}

static int curves(const sheet *s)
{
    uint32_t n_shown = 0;
    int rc = stk_html_curves(&s->p, s->i_task, &n_shown);
    if (n_shown > 0) {
        stk_html_panel_close(s->p.out);
    }
    return rc;
}

static int metrics(const sheet *s)
{
    uint32_t n_shown = 0;
    int rc = stk_html_metrics(&s->p, s->i_task, &n_shown);
    if (n_shown > 0) {
        stk_html_panel_close(s->p.out);
    }
    return rc;
}

static void log_end(stk_buf *out, const char *name, const char *path)
{
    STK_BUF_AUTO tail = STK_BUF_INIT(1u << 20);
    if (path != NULL) {
        stk_text_tail(&tail, path, LOG_LINES);
    }
    if (tail.len > 0) {
        stk_html_put(out, "<h3>%s</h3><pre>%s</pre>", name, tail.data);
    }
}

static int logs(const sheet *s)
{
    stk_view_details d;
    STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_TRY(stk_html_details(&s->p, s->i_task, &d));
    log_end(&text, "stdout", d.stdout_path);
    log_end(&text, "stderr", d.stderr_path);
    stk_html_panel(s->p.out, "Ends of the logs", "", &text, "");
    return 0;
}

/* --- the page --- */

typedef int (*part)(const sheet *s);
/* The parts of a page, by the card's type. */
static const part all_parts[] = {
    head,    tiles,    notes, components, parameters, artifacts, earlier_artifacts,
    metrics, metadata, graph, code,       resources,  curves,    logs,
    NULL};
static const part blank_parts[] = {head, notes, components, NULL};
static const part device_parts[] = {head, tiles, resources, curves, NULL};

static int write_page(const sheet *s)
{
    const part *parts = all_parts;
    if (s->type != NULL && strcmp(s->type, "blank") == 0) {
        parts = blank_parts;
    } else if (s->type != NULL && strcmp(s->type, "gpu_profile") == 0) {
        parts = device_parts;
    }
    for (size_t i = 0; parts[i] != NULL; i++) {
        STK_TRY(parts[i](s));
    }
    stk_html_put(s->p.out, "<footer>stoker %s · <code>stoker card %s/%s</code></footer>\n",
                 STK_VERSION, s->p.run->id, s->task->label);
    stk_buf_text(s->p.out, stk_text_when(!s->p.served, "</main></body></html>\n"));
    if (s->p.out->failed) {
        return stk_err_set(s->p.err, STK_E_LIMIT, "the card of task %s is larger than %zu bytes",
                           s->task->label, s->p.out->max);
    }
    return 0;
}

static bool is_called(const char *have, const char *id)
{
    return have != NULL && strcmp(have, id) == 0;
}

/* Returns the index of the card with this id, else with this name. If `id` is NULL: of the first
 * card without an id, else 0. n: no card has the id. */
static uint32_t find_card(const stk_task_card *cards, uint32_t n, const char *id)
{
    for (uint32_t i = 0; i < n; i++) {
        if (id == NULL && cards[i].id == NULL && cards[i].type != NULL) {
            return i;
        }
        if (id != NULL && is_called(cards[i].id, id)) {
            return i;
        }
    }
    for (uint32_t i = 0; id != NULL && i < n; i++) {
        if (is_called(cards[i].name, id)) {
            return i;
        }
    }
    return id == NULL ? 0 : n;
}

/* Finds the card to show. Returns 0 and NULL if no id was given and the task has no card. */
static int choose_card(const sheet *s, const char *id, const stk_task_card **ret)
{
    stk_task_card *cards = NULL;
    uint32_t n = 0;
    *ret = NULL;
    STK_TRY(stk_task_cards(s->p.view, s->i_task, s->rank, s->p.arena, &cards, &n, s->p.err));
    uint32_t i = find_card(cards, n, id);
    if (i < n) {
        *ret = &cards[i];
    }
    if (i < n || id == NULL) {
        return 0;
    }
    stk_err_set(s->p.err, STK_E_NOT_FOUND, "task %s has no card '%s'", s->task->label, id);
    if (n > 0) {
        stk_err_hint(s->p.err, "it has %u, the first is '%s'; --list names all", n, cards[0].name);
    }
    return s->p.err->code;
}

int stk_html_task_card(const stk_view *view, uint32_t i_task, const stk_task_card_options *options,
                       int64_t now_ms, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_ARENA_AUTO keep = stk_arena_new(0);
    if (scratch == NULL || keep == NULL) {
        return stk_err_nomem(err);
    }
    size_t preview_room = MAX_PREVIEWS_BYTES;
    sheet s = {.p = {.view = view,
                     .preview_room = &preview_room,
                     .linked = options->linked,
                     .served = options->served,
                     .run = stk_view_get_run(view),
                     .now_ms = now_ms,
                     .arena = keep,
                     .out = out,
                     .err = err},
               .i_task = i_task,
               .rank = options->rank,
               .task = stk_view_get_task(view, i_task),
               .graph = options->graph,
               .reload_s = options->reload_s};
    const stk_task_card *card = NULL;
    STK_TRY(choose_card(&s, options->id, &card));
    if (card != NULL && card->html != NULL && !options->served) {
        STK_TEXT_AUTO html = NULL;
        size_t len = 0;
        STK_TRY(stk_file_read_untrusted(card->html, MAX_CARD_BYTES, &html, &len, err));
        return stk_buf_add(out, html, len) < 0 ? STK_E_LIMIT : 0;
    }
    if (card != NULL) {
        s.card = stk_show_read_card(card->path, keep);
        s.type = card->type;
    }
    s.p.arena = scratch;
    return write_page(&s);
}

int stk_html_card_file(const char *path, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    sheet s = {.p = {.arena = arena, .out = out, .err = err}};
    s.card = stk_show_read_card(path, arena);
    const char *type = stk_json_get_text(s.card, "type");
    if (type == NULL) {
        return stk_err_set(err, STK_E_NOT_FOUND, "'%s' is not a card", path);
    }
    stk_html_page_open(out, stk_text_or(stk_json_get_text(s.card, "title"), "Card"));
    stk_buf_text(out, "</header>\n");
    STK_TRY(components(&s));
    if (strcmp(type, "blank") != 0) {
        pairs(&s, "Artifacts", stk_json_dump_in(stk_json_get(s.card, "previews"), arena));
    }
    stk_html_page_close(out);
    return out->failed ? stk_err_set(err, STK_E_LIMIT, "the card '%s' is too large", path) : 0;
}
