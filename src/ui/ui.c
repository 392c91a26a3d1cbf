#include "ui/ui.h"

#include <errno.h>
#include <event2/buffer.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "show/show_css.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "ui/ui_private.h"

/* --- pages --- */

static int page_css(ui_request *r, stk_err *err)
{
    (void)err;
    r->type = "text/css; charset=utf-8";
    r->is_kept = true;
    stk_buf_text(&r->out, stk_show_css);
    stk_buf_text(&r->out, stk_show_alike_css);
    stk_buf_text(&r->out, stk_show_parts_css);
    stk_buf_text(&r->out, stk_show_lanes_css);
    stk_buf_text(&r->out, stk_show_plot_css);
    stk_buf_add(&r->out, stk_ui_css, stk_ui_css_len);
    return 0;
}

static int page_js(ui_request *r, stk_err *err)
{
    (void)err;
    r->type = "text/javascript; charset=utf-8";
    r->is_kept = true;
    stk_buf_add(&r->out, stk_ui_js, stk_ui_js_len);
    return 0;
}

static const struct {
    const char *name;
    ui_page page;
    bool posts; /* only by POST */
} pages[] = {{"", stk_ui_page_runs, false},
             {"runs", stk_ui_page_runs, false},
             {"run", stk_ui_page_run, false},
             {"task", stk_ui_page_task, false},
             {"card", stk_ui_page_card, false},
             {"log", stk_ui_page_log, false},
             {"text", stk_ui_page_text, false},
             {"names", stk_ui_page_names, false},
             {"artifact", stk_ui_page_artifact, false},
             {"raw", stk_ui_page_raw, false},
             {"now", stk_ui_page_now, false},
             {"compare", stk_ui_page_compare, false},
             {"steps", stk_ui_page_steps, false},
             {"devices", stk_ui_page_devices, false},
             {"metrics", stk_ui_page_metrics, false},
             {"change", stk_ui_page_change, false},
             {"act", stk_ui_page_act, true},
             {"ui.css", page_css, false},
             {"ui.js", page_js, false}};

/* The last part of the path, below the prefix; a proxy may have removed that. NULL: no page. */
static const char *page_of(const stk_ui *ui, const char *path)
{
    size_t n = strlen(ui->prefix);
    if (path == NULL || *path == '\0') {
        return "";
    }
    if (n > 0 && strncmp(path, ui->prefix, n) == 0 && path[n] == '/') {
        path += n;
    }
    return *path == '/' ? path + 1 : NULL;
}

static void answer_page(ui_request *r)
{
    stk_err err = {0};
    bool posts = evhttp_request_get_command(r->http) == EVHTTP_REQ_POST;
    int rc = STK_E_NOT_FOUND;
    bool has_store = r->at != NULL;
    size_t i = 0, n = sizeof pages / sizeof *pages;
    if (!has_store) {
        r->at = r->ui->stores;
    }
    if (r->at->mirror != NULL) {
        stk_mirror_look(r->at->mirror, NULL);
    }
    while (i < n && strcmp(r->page, pages[i].name) != 0) {
        i++;
    }
    if (!has_store) {
        stk_err_set(&err, rc, "this server shows %u store%s; there is none of this number",
                    r->ui->n_stores, stk_text_plural(r->ui->n_stores));
    } else if (i == n) {
        stk_err_set(&err, rc, "there is no page '%s'", r->page);
    } else if (pages[i].posts != posts) {
        rc = stk_err_set(&err, STK_E_USAGE, "page '%s' is not asked for in this way", r->page);
    } else {
        rc = pages[i].page(r, &err);
    }
    if (!r->is_deferred) {
        stk_ui_answer(r, rc, &err);
    }
}

static void read_body(ui_request *r)
{
    struct evbuffer *in = evhttp_request_get_input_buffer(r->http);
    size_t len = MIN(evbuffer_get_length(in), UI_BODY_MAX);
    char *text = stk_arena_alloc(r->arena, len + 1);
    if (text != NULL && evbuffer_remove(in, text, len) == (int)len && strlen(text) == len) {
        (void)evhttp_parse_query_str(text, &r->body);
    }
}

/* Pages of the first store stand at the root, those of others below s1/, s2/ …, so that relative
 * links stay in their store. Moves *page behind that. NULL: there is no such store. */
static ui_store *store_of(const stk_ui *ui, const char **page)
{
    const char *at = *page;
    char *end = NULL;
    if (at[0] != 's' || at[1] < '1' || at[1] > '9') {
        return &ui->stores[0];
    }
    unsigned long i = strtoul(at + 1, &end, 10);
    if (*end != '/') {
        return &ui->stores[0];
    }
    *page = end + 1;
    return i < ui->n_stores ? &ui->stores[i] : NULL;
}

/* The list of stores asks for `runs?store=2`, wherever it stands. */
static bool leads_elsewhere(ui_request *r)
{
    char where[40];
    int64_t i = stk_ui_get_whole(r, "store", -1, r->ui->n_stores - 1);
    if (i < 0 || strcmp(r->page, "runs") != 0) {
        return false;
    }
    const char *up = stk_text_when(r->at != r->ui->stores, "../");
    if (i == 0) {
        (void)snprintf(where, sizeof where, "./%sruns", up);
    } else {
        (void)snprintf(where, sizeof where, "./%ss%d/runs", up, (int)i);
    }
    stk_ui_redirect(r, where);
    return true;
}

static void on_request(struct evhttp_request *http, void *arg)
{
    stk_ui *ui = arg;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const char *query = evhttp_uri_get_query(uri), *page = page_of(ui, evhttp_uri_get_path(uri));
    ui_request *r = calloc(1, sizeof *r);
    stk_ui_connection_asked(ui, http);
    if (r == NULL || page == NULL || (r->arena = stk_arena_new(0)) == NULL) {
        free(r);
        evhttp_send_error(http, HTTP_NOTFOUND, NULL);
        return;
    }
    r->ui = ui;
    r->http = http;
    r->at = store_of(ui, &page);
    r->page = page;
    r->out = STK_BUF_INIT(STK_MARKUP_MAX);
    r->change = STK_BUF_INIT(UI_HEADERS_MAX);
    r->now_ms = stk_clock_wall_ms(&stk_clock_real);
    ui->asked_ms = stk_clock_mono_ms(&stk_clock_real);
    if (query != NULL) {
        (void)evhttp_parse_query_str(query, &r->query);
    }
    read_body(r);
    if (stk_ui_guard(r) && !leads_elsewhere(r)) {
        answer_page(r);
    }
}

/* --- opening --- */

static int check_prefix(stk_ui *ui, stk_err *err)
{
    const char *text = stk_text_or(ui->options->prefix, "");
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '/') {
        n--;
    }
    const char *good = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~@";
    if (n >= sizeof ui->prefix || strspn(text, good) < n || (n > 0 && text[0] != '/')) {
        return stk_err_set(err, STK_E_USAGE,
                           "--prefix '%s' is no path of letters, digits and / - _ . ~ @ that "
                           "begins with /",
                           text);
    }
    (void)snprintf(ui->prefix, sizeof ui->prefix, "%.*s", (int)n, text);
    return 0;
}

static int make_tokens(stk_ui *ui, stk_err *err)
{
    const char *text = ui->options->token;
    stk_ui_random(ui->form);
    if (text == NULL) {
        stk_ui_random(ui->token);
        return 0;
    }
    const char *good = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(text);
    if (n < STK_UI_TOKEN_MIN || n >= sizeof ui->token || strspn(text, good) != n) {
        return stk_err_set(err, STK_E_USAGE,
                           "STOKER_UI_TOKEN isn't %d to %zu letters, digits, '-' and '_'",
                           STK_UI_TOKEN_MIN, sizeof ui->token - 1);
    }
    (void)snprintf(ui->token, sizeof ui->token, "%s", text);
    return 0;
}

/* A store that is given twice, by whatever path or URL. */
static int check_twice(const stk_ui *ui, const ui_store *one, stk_err *err)
{
    for (uint32_t i = 0; i < ui->n_stores; i++) {
        struct stat a, b;
        const ui_store *other = &ui->stores[i];
        if (stat(one->path, &a) == 0 && stat(other->path, &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino) {
            return stk_err_set(err, STK_E_USAGE, "store '%s' is given twice", one->name);
        }
    }
    return 0;
}

static int open_one(stk_ui *ui, const char *text, ui_store *ret, stk_err *err)
{
    STK_TRY(stk_ui_share_open(ui, text, ret, err));
    STK_TRY(check_twice(ui, ret, err));
    return stk_ui_index_open(ui, ret, &ret->index, err);
}

static void close_store(ui_store *one)
{
    stk_ui_index_close(one->index);
    stk_store_close(one->store);
    stk_mirror_close(one->mirror);
    *one = (ui_store){0};
}

static int open_stores(stk_ui *ui, stk_err *err)
{
    const stk_ui_options *o = ui->options;
    ui->stores = calloc(o->n_stores, sizeof *ui->stores);
    STK_TRY(stk_err_if_null(ui->stores, err));
    int rc = 0;
    for (uint32_t i = 0; i < o->n_stores && (rc == 0 || o->skips_stores); i++) {
        ui_store *one = &ui->stores[ui->n_stores];
        rc = open_one(ui, o->stores[i], one, err);
        if (rc == 0) {
            ui->n_stores++;
        } else {
            close_store(one);
        }
    }
    return ui->n_stores > 0 && o->skips_stores ? 0 : rc;
}

static int bind_port(stk_ui *ui, stk_err *err)
{
    int wanted = ui->options->port, port = wanted == 0 ? STK_UI_PORT : wanted;
    struct evhttp_bound_socket *bound =
        evhttp_bind_socket_with_handle(ui->http, "127.0.0.1", (uint16_t)port);
    if (bound == NULL && wanted == 0) {
        bound = evhttp_bind_socket_with_handle(ui->http, "127.0.0.1", 0);
    }
    if (bound == NULL) {
        stk_err_sys(err, STK_E_BUSY, errno, "listening on port %d of 127.0.0.1", port);
        stk_err_hint(err, "choose another one by --port, or leave it out for any that is free");
        return STK_E_BUSY;
    }
    struct sockaddr_in address = {0};
    socklen_t len = sizeof address;
    (void)getsockname(evhttp_bound_socket_get_fd(bound), (struct sockaddr *)&address, &len);
    ui->port = ntohs(address.sin_port);
    (void)snprintf(ui->cookie, sizeof ui->cookie, "stoker-ui-%d", ui->port);
    ui->url = stk_file_printf("http://127.0.0.1:%d%s/?token=%s", ui->port, ui->prefix, ui->token);
    return stk_err_if_null(ui->url, err);
}

static void on_end_signal(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    (void)event_base_loopbreak(arg);
}

static int catch_ends(stk_ui *ui, stk_err *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ui->ends[i] = evsignal_new(ui->base, numbers[i], on_end_signal, ui->base);
        STK_TRY(stk_err_if_null(ui->ends[i], err));
        (void)event_add(ui->ends[i], NULL);
    }
    return 0;
}

static int start_http(stk_ui *ui, stk_err *err)
{
    STK_TRY(stk_err_if_null(ui->base = event_base_new(), err));
    STK_TRY(stk_err_if_null(ui->http = evhttp_new(ui->base), err));
    evhttp_set_allowed_methods(ui->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
    evhttp_set_max_headers_size(ui->http, UI_HEADERS_MAX);
    evhttp_set_max_body_size(ui->http, UI_BODY_MAX);
    /* ui_connection.c ends what takes too long; libevent's own limit must not be shorter, because
     * it runs on while a page is made. */
    evhttp_set_timeout(ui->http, UI_ANSWER_MS / 1000);
    evhttp_set_gencb(ui->http, on_request, ui);
    STK_TRY(stk_ui_connections_open(ui, err));
    return catch_ends(ui, err);
}

int stk_ui_open(const stk_ui_options *options, stk_ui **ret, stk_err *err)
{
    stk_ui *ui = *ret = calloc(1, sizeof *ui);
    STK_TRY(stk_err_if_null(ui, err));
    ui->options = options;
    STK_TRY(check_prefix(ui, err));
    STK_TRY(make_tokens(ui, err));
    STK_TRY(start_http(ui, err));
    STK_TRY(open_stores(ui, err));
    STK_TRY(stk_ui_now_open(ui, err));
    STK_TRY(stk_ui_jobs_open(ui, err));
    return bind_port(ui, err);
}

const char *stk_ui_url(const stk_ui *ui)
{
    return ui->url;
}

int stk_ui_serve(stk_ui *ui, stk_err *err)
{
    if (event_base_dispatch(ui->base) < 0) {
        return stk_err_set(err, STK_E_SYS, "waiting for requests failed");
    }
    return 0;
}

void stk_ui_close(stk_ui *ui)
{
    if (ui == NULL) {
        return;
    }
    stk_ui_jobs_close(ui);
    stk_ui_now_close(ui);
    if (ui->http != NULL) {
        evhttp_free(ui->http);
    }
    stk_ui_connections_close(ui);
    for (uint32_t i = 0; ui->stores != NULL && i < ui->n_stores; i++) {
        close_store(&ui->stores[i]);
    }
    for (size_t i = 0; i < sizeof ui->ends / sizeof *ui->ends; i++) {
        if (ui->ends[i] != NULL) {
            event_free(ui->ends[i]);
        }
    }
    if (ui->base != NULL) {
        event_base_free(ui->base);
    }
    free(ui->stores);
    free(ui->url);
    free(ui);
}
