/* The table of runs: filtered, sorted, in pages. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_text.h"
#include "ui/ui_private.h"

enum { PAGE = 100, SHOWN = 8, NAMES = 60, CONDITIONS = 20 };

typedef struct names {
    const char *items[NAMES]; /* of values that the page's runs have: parameters first */
    bool is_parameter[NAMES], is_number[NAMES];
    uint32_t n;
    const char *shown[SHOWN];
    uint32_t n_shown;
    bool has_cost;
} names;

/* --- choosing runs --- */

/* Keeps the runs for which all of "a>1 and b=2" holds. */
static int filter_runs(ui_request *r, stk_run_values *runs, uint32_t *n, stk_err *err)
{
    char *text = stk_arena_dup(r->arena, stk_text_or(stk_ui_get(r, "where"), ""));
    STK_TRY(stk_err_if_null(text, err));
    for (int i = 0; text != NULL && i < CONDITIONS; i++) {
        char *next = strcasestr(text, " and ");
        if (next != NULL) {
            *next = '\0';
            next += 5;
        }
        text += strspn(text, " ");
        for (size_t end = strlen(text); end > 0 && text[end - 1] == ' ';) {
            text[--end] = '\0';
        }
        if (*text != '\0' && *n > 0) {
            STK_TRY(stk_runs_where(runs, n, text, err));
        }
        text = next;
    }
    return 0;
}

static bool has_tag(const stk_run_row *row, const char *tag)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *tags = row->tags == NULL ? NULL : stk_json_read(scratch, row->tags);
    for (uint32_t i = 0; i < stk_json_n_items(tags); i++) {
        if (stk_json_is(stk_json_item(tags, i), tag)) {
            return true;
        }
    }
    return false;
}

/* Keeps the runs of the pipeline and the tag that the query names. */
static void keep_named(const ui_request *r, stk_run_values *runs, uint32_t *n)
{
    const char *pipeline = stk_text_if_any(stk_ui_get(r, "pipeline"));
    const char *tag = stk_text_if_any(stk_ui_get(r, "tag"));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        if ((pipeline == NULL || strcmp(runs[i].row->pipeline, pipeline) == 0) &&
            (tag == NULL || has_tag(runs[i].row, tag))) {
            runs[kept++] = runs[i];
        }
    }
    *n = kept;
}

static bool needs_values(const ui_request *r)
{
    return stk_text_if_any(stk_ui_get(r, "sort")) != NULL ||
           stk_text_if_any(stk_ui_get(r, "where")) != NULL;
}

void stk_ui_put_left(ui_request *r)
{
    char text[32];
    uint32_t left = stk_ui_index_left(r->at->index);
    if (needs_values(r) && left > 0) {
        stk_buf_clear(&r->change);
        stk_buf_text(&r->change, "of=now");
        stk_buf_printf(&r->out, "<p class=\"dim\">%s runs are still to be read.</p>\n",
                       stk_text_count(left, text, sizeof text));
    }
}

int stk_ui_choose_runs(ui_request *r, stk_run_values **ret_runs, uint32_t *ret_n, stk_err *err)
{
    const char *by = stk_text_if_any(stk_ui_get(r, "sort"));
    STK_TRY(stk_ui_index_runs(r->at->index, needs_values(r), r->arena, ret_runs, ret_n, err));
    keep_named(r, *ret_runs, ret_n);
    STK_TRY(filter_runs(r, *ret_runs, ret_n, err));
    if (by == NULL || *ret_n == 0) {
        return 0;
    }
    return stk_runs_sort(*ret_runs, *ret_n, by, err);
}

/* --- columns --- */

static void add_name(names *all, const stk_run_value *value)
{
    for (uint32_t i = 0; i < all->n; i++) {
        if (strcmp(all->items[i], value->name) == 0) {
            return;
        }
    }
    if (all->n < NAMES) {
        all->is_parameter[all->n] = value->is_parameter;
        all->is_number[all->n] = value->is_number;
        all->items[all->n++] = value->name;
    }
}

static bool is_chosen(const ui_request *r, const char *name)
{
    for (const struct evkeyval *one = r->query.tqh_first; one != NULL; one = one->next.tqe_next) {
        if (strcmp(one->key, "col") == 0 && strcmp(one->value, name) == 0) {
            return true;
        }
    }
    return false;
}

static void find_names(const ui_request *r, const stk_run_values *runs, uint32_t n, names *all)
{
    bool chooses = stk_ui_get(r, "col") != NULL;
    all->has_cost = stk_runs_have_cost(runs, n);
    for (int parameters = 1; parameters >= 0; parameters--) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < runs[i].n; k++) {
                if (runs[i].items[k].is_parameter == (parameters == 1)) {
                    add_name(all, &runs[i].items[k]);
                }
            }
        }
    }
    for (uint32_t i = 0; i < all->n && all->n_shown < SHOWN; i++) {
        bool is_wanted = all->is_number[i];
        if (all->is_parameter[i]) {
            is_wanted = all->n_shown < SHOWN / 2;
        }
        if (chooses) {
            is_wanted = is_chosen(r, all->items[i]);
        }
        if (is_wanted) {
            all->shown[all->n_shown++] = all->items[i];
        }
    }
}

/* --- the table --- */

/* A link to a page with the query of this one, but one value changed; NULL: without it. */
static void open_same(ui_request *r, const char *page, const char *name, const char *value)
{
    const char *before = "?";
    stk_buf_printf(&r->out, "<a href=\"%s", page);
    for (const struct evkeyval *one = r->query.tqh_first; one != NULL; one = one->next.tqe_next) {
        if (strcmp(one->key, name) != 0 && strcmp(one->key, "page") != 0 && one->value[0] != '\0') {
            stk_buf_text(&r->out, before);
            stk_buf_percent(&r->out, one->key, strlen(one->key), "");
            stk_buf_char(&r->out, '=');
            stk_buf_percent(&r->out, one->value, strlen(one->value), "/");
            before = "&amp;";
        }
    }
    if (value != NULL) {
        stk_buf_printf(&r->out, "%s%s=", before, name);
        stk_buf_percent(&r->out, value, strlen(value), "/");
    }
    stk_buf_text(&r->out, "\">");
}

/* The head of a column, which sorts by it: ascending, then descending. */
static void put_column(ui_request *r, const char *name, const char *title, const char *class)
{
    const char *by = stk_text_or(stk_ui_get(r, "sort"), "");
    bool up = strcmp(by, name) == 0, down = by[0] == '-' && strcmp(by + 1, name) == 0;
    const char *order = "none", *mark = "";
    const char *next = name;
    if (up) {
        order = "ascending";
        mark = " ▲";
        next = stk_arena_printf(r->arena, "-%s", name);
    } else if (down) {
        order = "descending";
        mark = " ▼";
    }
    stk_html_put(&r->out, "<th class=\"%s\" aria-sort=\"%s\">", class, order);
    open_same(r, "runs", "sort", stk_text_or(next, name));
    stk_html_put(&r->out, "%s%s</a></th>", title, mark);
}

/* The curve of a metric, as high as its own least and greatest values are apart. */
static void put_shape(stk_buf *out, const stk_run_value *value)
{
    stk_buf_text(out,
                 "<svg class=\"spark\" viewBox=\"0 0 120 40\" aria-hidden=\"true\"><path d=\"");
    for (uint32_t i = 0; i < value->n_shape; i++) {
        stk_buf_char(out, "ML"[i > 0]);
        stk_buf_printf(out, "%u %d", i * 120 / (value->n_shape - 1u),
                       38 - value->shape[i] * 36 / UINT8_MAX);
    }
    stk_buf_text(out, "\"/></svg>");
}

/* The class of a cell; only what is long goes over several lines. */
static const char *class_of(const char *text, const char *else_class)
{
    return strlen(text) > 24 ? "long" : else_class;
}

static void put_value_cell(ui_request *r, const stk_run_values *run, const char *name)
{
    stk_run_value value = {0};
    if (!stk_runs_get(run, name, &value) || value.text == NULL) {
        stk_html_cell(&r->out, "num dim", "–");
        return;
    }
    stk_html_put(&r->out, "<td class=\"%s\">%s", class_of(value.text, "num"), value.text);
    if (value.has_range && value.min < value.max) {
        stk_buf_printf(&r->out, "<br/><span class=\"dim range\">%.4g … %.4g</span>", value.min,
                       value.max);
    }
    if (value.n_shape > 1) {
        put_shape(&r->out, &value);
    }
    stk_buf_text(&r->out, stk_text_when(value.is_earlier, "<br/><span class=\"dim range\">of an "
                                                          "earlier run</span>"));
    stk_buf_text(&r->out, "</td>");
}

static void put_tag_cell(ui_request *r, const stk_run_row *row)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *tags = row->tags == NULL ? NULL : stk_json_read(scratch, row->tags);
    stk_buf_text(&r->out, "<td>");
    for (uint32_t i = 0; i < MIN(stk_json_n_items(tags), 20); i++) {
        const char *tag = stk_text_or(stk_json_text(stk_json_item(tags, i)), "?");
        stk_html_href(&r->out, "runs", (const char *const[]){"tag", tag, NULL});
        stk_html_put(&r->out, "<span class=\"tag\">%s</span></a> ", tag);
    }
    stk_buf_text(&r->out, "</td>");
}

static void put_run_row(ui_request *r, const stk_run_values *run, const names *all)
{
    const stk_run_row *row = run->row;
    char text[64];
    stk_html_put(&r->out,
                 "<tr><td class=\"pick\"><input type=\"checkbox\" name=\"run\" value=\"%s\" "
                 "aria-label=\"compare run %s\"/></td><td class=\"%s\"><b>",
                 row->id, row->id, class_of(row->name, ""));
    stk_html_href(&r->out, "run", (const char *const[]){"run", row->id, NULL});
    stk_html_put(&r->out, "%s</a></b></td><td class=\"%s\">", row->name,
                 class_of(row->pipeline, ""));
    stk_html_user(&r->out, row->pipeline);
    stk_buf_text(&r->out, "</td><td>");
    stk_html_status(&r->out, row->status);
    stk_html_put(&r->out, "</td><td class=\"num\">%s</td><td class=\"num\">",
                 stk_text_time(row->created_ms, false, text, sizeof text));
    int64_t end = row->ended_ms != 0 ? row->ended_ms : row->now_ms;
    if (end > row->created_ms) {
        stk_html_seconds(&r->out, (double)(end - row->created_ms) / 1000);
    }
    stk_buf_text(&r->out, "</td>");
    if (all->has_cost && run->cost >= 0) {
        const char *currency = stk_cost_currency(stk_ui_index_cost(r->at->index));
        stk_html_cell(&r->out, "num", stk_cost_text(run->cost, currency, text, sizeof text));
    } else if (all->has_cost) {
        stk_html_cell(&r->out, "num dim", "–");
    }
    for (uint32_t i = 0; i < all->n_shown; i++) {
        put_value_cell(r, run, all->shown[i]);
    }
    put_tag_cell(r, row);
    stk_buf_text(&r->out, "</tr>\n");
}

static void put_hidden(ui_request *r, const char *name)
{
    const char *value = stk_text_if_any(stk_ui_get(r, name));
    if (value != NULL) {
        stk_html_put(&r->out, "<input type=\"hidden\" name=\"%s\" value=\"%s\"/>", name, value);
    }
}

static void put_table(ui_request *r, const stk_run_values *runs, uint32_t n, const names *all)
{
    stk_buf *out = &r->out;
    stk_buf_text(out, "<form action=\"compare\" class=\"panel\"><div class=\"scroll\"><table "
                      "class=\"runs\"><thead><tr><th><span class=\"hidden\">compare</span></th>");
    put_column(r, "run", "run", "");
    put_column(r, "pipeline", "pipeline", "");
    put_column(r, "status", "status", "");
    put_column(r, "created", "started", "num");
    put_column(r, "duration", "duration", "num");
    if (all->has_cost) {
        put_column(r, "cost", "cost", "num");
    }
    for (uint32_t i = 0; i < all->n_shown; i++) {
        put_column(r, all->shown[i], all->shown[i], "num");
    }
    stk_buf_text(out, "<th>tags</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < n; i++) {
        put_run_row(r, &runs[i], all);
    }
    stk_buf_text(out, "</tbody></table></div>\n<p class=\"below\">");
    stk_buf_text(out, "<button>Compare the marked runs</button> or ");
    open_same(r, "compare", "col", NULL);
    stk_buf_text(out, "all of them</a></p></form>\n");
}

/* --- around it --- */

static void put_filter(ui_request *r, const names *all)
{
    stk_buf *out = &r->out;
    stk_html_put(out,
                 "<form class=\"filter\" action=\"runs\" role=\"search\"><label>where "
                 "<input name=\"where\" id=\"where\" value=\"%s\" "
                 "placeholder=\"lr&gt;0.1 and status=succeeded\"/></label>"
                 "<label>pipeline <input name=\"pipeline\" id=\"pipeline\" value=\"%s\"/></label>"
                 "<label>tag <input name=\"tag\" id=\"tag\" value=\"%s\"/></label>",
                 stk_ui_get(r, "where"), stk_ui_get(r, "pipeline"), stk_ui_get(r, "tag"));
    put_hidden(r, "sort");
    stk_buf_text(out, "<button>Show</button>");
    if (all->n > 0) {
        stk_buf_text(out, "<details class=\"columns\"><summary>columns</summary><div>");
        for (uint32_t i = 0; i < all->n; i++) {
            bool is_shown = false;
            for (uint32_t k = 0; k < all->n_shown; k++) {
                is_shown = is_shown || all->shown[k] == all->items[i];
            }
            stk_html_put(out, "<label><input type=\"checkbox\" name=\"col\" value=\"%s\"",
                         all->items[i]);
            stk_buf_text(out, stk_text_when(is_shown, " checked=\"\""));
            stk_html_put(out, "/> %s</label>", all->items[i]);
        }
        stk_buf_printf(out, "</div><p class=\"dim\">at most %d</p></details>", SHOWN);
    }
    stk_buf_text(out, "</form>\n");
}

static void put_pages(ui_request *r, uint32_t n, uint32_t page)
{
    char number[16];
    uint32_t last = n == 0 ? 0 : (n - 1) / PAGE;
    if (last == 0) {
        return;
    }
    stk_buf_text(&r->out, "<p class=\"pages\">");
    if (page > 0) {
        (void)snprintf(number, sizeof number, "%u", page - 1);
        open_same(r, "runs", "page", number);
        stk_buf_text(&r->out, "← newer</a> ");
    }
    stk_buf_printf(&r->out, "page %u of %u ", page + 1, last + 1);
    if (page < last) {
        (void)snprintf(number, sizeof number, "%u", page + 1);
        open_same(r, "runs", "page", number);
        stk_buf_text(&r->out, "older →</a>");
    }
    stk_buf_text(&r->out, "</p>\n");
}

/* A condition that can't be read leaves the page usable. */
static void put_trouble(ui_request *r, const stk_err *why)
{
    stk_html_put(&r->out, "<div class=\"note\">%s %s</div>\n", why->text, why->hint);
}

int stk_ui_page_runs(ui_request *r, stk_err *err)
{
    stk_run_values *runs = NULL;
    stk_err why = {0};
    char count[32];
    uint32_t n = 0;
    names all = {0};
    r->title = "runs";
    stk_buf_printf(&r->change, "of=runs");
    int rc = stk_ui_choose_runs(r, &runs, &n, &why);
    if (rc < 0 && rc != STK_E_USAGE) {
        *err = why;
        return rc;
    }
    if (rc < 0) {
        n = 0;
    }
    uint32_t page = (uint32_t)stk_ui_get_whole(r, "page", 0, n == 0 ? 0 : (n - 1) / PAGE);
    uint32_t shown = MIN(n - page * PAGE, PAGE);
    STK_TRY(stk_ui_index_read(r->at->index, runs + page * PAGE, shown, err));
    find_names(r, runs + page * PAGE, shown, &all);
    stk_html_put(&r->out,
                 "<header><div class=\"title\"><h1>Runs</h1></div><div class=\"meta\">%s in "
                 "<code>%s</code></div></header>\n",
                 stk_text_count(n, count, sizeof count), r->at->name);
    stk_ui_put_said(r);
    stk_ui_put_left(r);
    if (rc < 0) {
        put_trouble(r, &why);
    }
    if (stk_ui_index_no_cost(r->at->index)[0] != '\0') {
        stk_html_put(&r->out, "<div class=\"note\">No cost is shown: %s</div>\n",
                     stk_ui_index_no_cost(r->at->index));
    }
    put_filter(r, &all);
    if (shown > 0) {
        put_table(r, runs + page * PAGE, shown, &all);
    } else if (r->at->mirror == NULL) {
        stk_buf_text(&r->out, "<section class=\"panel\"><p class=\"dim\">There is no such run. "
                              "<code>stoker run FILE</code> makes one.</p></section>\n");
    } else {
        stk_buf_text(&r->out, "<section class=\"panel\"><p class=\"dim\">There is no such run. "
                              "Runs of a stack whose <code>store:</code> this is come here."
                              "</p></section>\n");
    }
    put_pages(r, n, page);
    return 0;
}
