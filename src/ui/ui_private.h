/* Shared by the files of this room. */
#ifndef STK_UI_PRIVATE_H
#define STK_UI_PRIVATE_H

#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>

#include "away/mirror/mirror.h"
#include "base/arena.h"
#include "base/buf.h"
#include "show/gpus.h"
#include "show/runs.h"
#include "show/show_markup.h"
#include "store/store.h"
#include "store/view/view.h"
#include "ui/ui.h"

enum {
    UI_HEADERS_MAX = 16 << 10, /* bytes of a request's head … */
    UI_BODY_MAX = 64 << 10,    /* … and of its body */
    UI_REQUEST_MS = 10000,     /* a request must be complete by then … */
    UI_ANSWER_MS = 120000,     /* … and its answer made and taken */
    UI_CONNECTIONS = 256,      /* at once; the oldest incomplete ones are closed for new ones */
    UI_SECRET = 32             /* hexadecimal digits of a random word */
};

typedef struct ui_index ui_index;
typedef struct ui_now ui_now;
typedef struct ui_jobs ui_jobs;

/* A store that pages show. */
typedef struct ui_store {
    stk_store *store;
    const char *path;
    const char *name;   /* what people know it by: its path, or the URL of the share */
    stk_mirror *mirror; /* of the share; NULL: it is a store of this host */
    bool is_own;        /* changes may be made */
    ui_index *index;
} ui_store;

struct stk_ui {
    const stk_ui_options *options;
    struct event_base *base;
    struct evhttp *http;
    struct event *ends[3];
    ui_store *stores;
    uint32_t n_stores;
    ui_now *now;
    ui_jobs *jobs;
    struct ui_connections *connections;
    int port;
    char token[129];
    char form[65];   /* the token of forms */
    char cookie[48]; /* its name */
    char prefix[256];
    char *url;
    int64_t asked_ms; /* monotonic: the last request */
};

/* One request. `out` gets the content of <main>, or the whole answer if the page isn't framed. */
typedef struct ui_request {
    stk_ui *ui;
    ui_store *at; /* the store that it asks for; before stk_ui_guard NULL: there is none */
    struct evhttp_request *http;
    const char *page; /* the last part of the path, "run" */
    struct evkeyvalq query, body;
    stk_arena *arena;
    stk_buf out;
    stk_buf
        change; /* the query of `change` by which the page sees that it is stale; empty: never */
    const char *title; /* of the document */
    const char *type;  /* of an answer without a frame; NULL: framed */
    const char *csp;   /* of such an answer; NULL: nothing may be loaded or run */
    bool is_kept;      /* the browser may keep the answer */
    bool is_deferred;  /* the answer comes later */
    int64_t now_ms;
} ui_request;

/* --- ui_request.c --- */

void stk_ui_request_free(ui_request *r);
/* A value of the query; NULL if it has none. */
const char *stk_ui_get(const ui_request *r, const char *name);
/* The same with the number at most `max`. */
int64_t stk_ui_get_whole(const ui_request *r, const char *name, int64_t otherwise, int64_t max);
/* A value of the query that must be there: STK_E_USAGE if it isn't. */
int stk_ui_need(const ui_request *r, const char *name, const char **ret, stk_err *err);
/* Sends the page or the error, and frees the request. */
void stk_ui_answer(ui_request *r, int rc, const stk_err *err);
/* Sends the reader to another page, and frees the request. */
void stk_ui_redirect(ui_request *r, const char *where);

/* --- ui_guard.c --- */

/* Whether the request may be answered. If not, it has been answered, and is freed. */
bool stk_ui_guard(ui_request *r);
void stk_ui_random(char ret_text[UI_SECRET + 1]);
bool stk_ui_secrets_equal(const char *a, const char *b); /* in constant time, of equal lengths */
/* Whether a POST comes from a page of ours. */
bool stk_ui_guard_form(const ui_request *r);

/* --- ui_connection.c: connections end in time --- */

int stk_ui_connections_open(stk_ui *ui, stk_err *err);
void stk_ui_connections_close(stk_ui *ui);
/* The request of a connection is complete. */
void stk_ui_connection_asked(stk_ui *ui, struct evhttp_request *http);

/* --- ui_index.c: all runs of a store with their values, read once and again when they change ---
 */

int stk_ui_index_open(stk_ui *ui, const ui_store *of, ui_index **ret, stk_err *err);
void stk_ui_index_close(ui_index *index);
/* All runs, newest first, in the request's arena; they and their texts stay valid until the next
 * request. With `all`, reads values for a second; what is left is read while nobody asks. */
int stk_ui_index_runs(ui_index *index, bool all, stk_arena *arena, stk_run_values **ret_runs,
                      uint32_t *ret_n, stk_err *err);
/* The prices for the store, as stk_ui_index_runs has read them; NULL: there are none. */
const stk_cost *stk_ui_index_cost(const ui_index *index);
const char *stk_ui_index_no_cost(const ui_index *index); /* what is wrong with them, or "" */
uint32_t stk_ui_index_left(const ui_index *index);       /* runs without values so far */
/* Reads the values of these runs if they have none, or have changed; replaces them in place. */
int stk_ui_index_read(ui_index *index, stk_run_values *runs, uint32_t n, stk_err *err);
/* The same for some milliseconds; *ret_left: so many have no values yet. */
int stk_ui_index_read_some(ui_index *index, stk_run_values *runs, uint32_t n, uint32_t *ret_left,
                           stk_err *err);
bool stk_ui_index_is_live(const ui_index *index); /* some run is */
/* Where an artifact was made, taken from the cache, or used. */
typedef enum { UI_MADE, UI_CACHED, UI_USED } ui_use_kind;
typedef struct ui_use {
    ui_use_kind kind;
    const char *digest, *task, *name; /* the task's label; the name of the output or input */
    const stk_run_row *run;
} ui_use;
/* The uses of an artifact (`run` NULL), or the artifacts of a task; oldest run first.
 * *ret_left: runs that haven't been searched yet; they are while nobody asks. */
int stk_ui_index_uses(ui_index *index, const char *digest, const char *run, const char *task,
                      stk_arena *arena, ui_use **ret_uses, uint32_t *ret_n, uint32_t *ret_left,
                      stk_err *err);

/* --- ui_now.c --- */

int stk_ui_now_open(stk_ui *ui, stk_err *err);
void stk_ui_now_close(stk_ui *ui);

/* What a device did at one moment. */
typedef struct ui_look {
    int64_t ms;
    int32_t busy, memory; /* percent; -1 unknown */
    char holder[96];      /* "": free */
} ui_look;

/* Fills `kept` looks of each device, a second apart until `now_ms`, by what the stores keep of the
 * tasks that had it. Returns how many of the last ones say something. */
uint32_t stk_ui_past(const stk_ui *ui, const stk_gpus *gpus, int64_t now_ms, ui_look *looks,
                     uint32_t kept);

/* --- ui_act.c: changes --- */

int stk_ui_jobs_open(stk_ui *ui, stk_err *err);
void stk_ui_jobs_close(stk_ui *ui);
/* Buttons for what can be done with a run; nothing in a store that isn't ours. */
void stk_ui_put_actions(ui_request *r, const stk_view_run *run);
/* What the last change said, if the request comes from it. */
void stk_ui_put_said(ui_request *r);

/* --- ui_share.c: what is different for a store that machines share --- */

/* Opens the store: by its mirror if it is a share. */
int stk_ui_share_open(stk_ui *ui, const char *text, ui_store *ret, stk_err *err);
/* Says above the page how old it is, and what is wrong. */
void stk_ui_share_put_state(const ui_request *r, stk_buf *out);
/* A word that differs once that does; "" for a store of this host. */
void stk_ui_share_put_version(ui_request *r);
/* A number that changes while the mirror gets fresher. */
int64_t stk_ui_share_tick(const ui_request *r);
/* When files of a run came last, in ns: files come without events. 0: it is no mirror. */
int64_t stk_ui_share_files(const ui_store *at, const char *run);
/* Says of a live run how old its last news is. */
void stk_ui_share_put_news(ui_request *r, const stk_view *view);
/* Somebody looks at this run, at the previews of its tasks' artifacts, at the files of a task. */
void stk_ui_share_want_run(const ui_request *r, const stk_view *view);
void stk_ui_share_want_task(const ui_request *r, const stk_view *view, uint32_t i_task);
/* Whether more of a task's files may come; says why there are none (*ret_why; NULL: no reason). */
bool stk_ui_share_awaits(const ui_request *r, const stk_view *view, uint32_t i_task,
                         const char **ret_why);
/* Asks for an artifact and says what the share has of it. */
void stk_ui_share_put_artifact(ui_request *r, const stk_view_ref *ref);

/* --- pages --- */

typedef int (*ui_page)(ui_request *r, stk_err *err);
int stk_ui_page_runs(ui_request *r, stk_err *err);
int stk_ui_page_run(ui_request *r, stk_err *err);
int stk_ui_page_task(ui_request *r, stk_err *err);
int stk_ui_page_card(ui_request *r, stk_err *err); /* the HTML that a card class wrote */
int stk_ui_page_log(ui_request *r, stk_err *err);
int stk_ui_page_text(ui_request *r, stk_err *err);  /* what a log has beyond some place */
int stk_ui_page_names(ui_request *r, stk_err *err); /* named artifacts */
int stk_ui_page_artifact(ui_request *r, stk_err *err);
int stk_ui_page_raw(ui_request *r, stk_err *err); /* an artifact of HTML */
int stk_ui_page_now(ui_request *r, stk_err *err);
int stk_ui_page_metrics(ui_request *r, stk_err *err);
int stk_ui_page_change(ui_request *r, stk_err *err);
int stk_ui_page_compare(ui_request *r, stk_err *err);
int stk_ui_page_steps(ui_request *r, stk_err *err);
int stk_ui_page_devices(ui_request *r, stk_err *err);
int stk_ui_page_act(ui_request *r, stk_err *err);

/* The runs that the query's filter leaves, in its order, as stk_ui_index_runs has them.
 * STK_E_USAGE: the filter can't be read. */
int stk_ui_choose_runs(ui_request *r, stk_run_values **ret_runs, uint32_t *ret_n, stk_err *err);
/* Says how many runs that filter hasn't seen yet, and has the page come again. */
void stk_ui_put_left(ui_request *r);
/* Loads the run that the query names; the caller frees the view. */
int stk_ui_load_run(ui_request *r, stk_view **ret_view, stk_err *err);
/* The task of that run that the query names. */
int stk_ui_find_task(ui_request *r, const stk_view *view, uint32_t *ret_task, stk_err *err);

extern const unsigned char stk_ui_css[], stk_ui_js[];
extern const unsigned long stk_ui_css_len, stk_ui_js_len;

#endif
