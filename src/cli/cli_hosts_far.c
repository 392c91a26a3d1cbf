/* The host's side of `stoker gpus --stack` and `stoker top --stack`: its picture as text. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_cancelling.h"
#include "cli/cli_hosts.h"
#include "show/gpus.h"
#include "show/top/top.h"
#include "sys/file.h"

static pthread_mutex_t one_look = PTHREAD_MUTEX_INITIALIZER; /* at a time */
static stk_top *top; /* kept, because usage of CPUs is the difference of two pictures */
static stk_top_screen
    *screens[2]; /* of steps, of programs; they keep what keys have made of them */
static stk_cli_cancelling cancelling = {.said_fd = -1};

static stk_style style_of(const stk_json *ask)
{
    return (stk_style){.colour = stk_json_is_true(stk_json_get(ask, "colour")),
                       .utf8 = stk_json_is_true(stk_json_get(ask, "utf8")),
                       .columns = (int)stk_json_get_whole(ask, "columns", 100)};
}

static int look_at_gpus(const stk_json *ask, stk_buf *out, stk_err *err)
{
    const char *form = stk_text_or(stk_json_get_text(ask, "form"), "");
    const stk_style style = style_of(ask);
    __attribute__((cleanup(stk_gpus_close))) stk_gpus gpus;
    STK_TRY(stk_gpus_open(&gpus, err));
    STK_TRY(stk_gpus_look(&gpus, err));
    if (strcmp(form, "json") == 0) {
        stk_gpus_json(&gpus, out);
        return 0;
    }
    if (strcmp(form, "lines") == 0) {
        stk_gpus_lines(&gpus, out);
        return 0;
    }
    stk_gpus_table(&gpus, &style, out);
    if (stk_json_get_text(ask, "topology") != NULL) {
        stk_gpus_topology(&gpus, out);
    }
    return 0;
}

static int open_top(stk_err *err)
{
    int rc = 0;
    if (top == NULL) {
        rc = stk_top_open(&top, err);
    }
    if (rc < 0) {
        stk_top_close(top);
        top = NULL;
    }
    return rc;
}

static int look_at_top(const stk_json *ask, stk_buf *out, stk_err *err)
{
    bool is_json = stk_json_is(stk_json_get(ask, "form"), "json");
    const stk_style style = style_of(ask);
    STK_TRY(open_top(err));
    return stk_top_draw(top, is_json ? NULL : &style, (int)stk_json_get_whole(ask, "rows", 0), out,
                        err);
}

/* --- a screen --- */

/* A run whose engine is here is cancelled here; of others only the near end knows the store. */
static void cancel_asked(stk_top_screen *screen, stk_buf *ret)
{
    const char *store = NULL, *run = NULL;
    char path[1400], said[300];
    stk_err err = {0};
    stk_top_screen_asked(screen, &store, &run);
    (void)snprintf(path, sizeof path, "%s/runs/%s/lock", store, run);
    if (!stk_file_exists(path)) {
        stk_json_put_text(ret, "cancel", run);
        return;
    }
    (void)snprintf(said, sizeof said, "cancelling run %s", run);
    if (stk_cli_cancelling_begin(&cancelling, store, NULL, run, &err) < 0) {
        stk_top_screen_say(screen, err.text, true);
    } else {
        stk_top_screen_say(screen, said, false);
    }
}

static int draw_screen(const stk_json *ask, stk_buf *ret, stk_buf *out, stk_err *err)
{
    bool processes = stk_json_is_true(stk_json_get(ask, "processes")), is_done = false,
         quits = false;
    const stk_json *keys = stk_json_get(ask, "keys");
    const stk_style style = style_of(ask);
    char said[300];
    STK_TRY(open_top(err));
    if (screens[processes] == NULL) {
        screens[processes] = stk_top_screen_new(top, processes);
        STK_TRY(stk_err_if_null(screens[processes], err));
    }
    stk_top_screen *screen = screens[processes];
    if (stk_json_is_true(stk_json_get(ask, "look"))) {
        STK_TRY(stk_top_look(top, err));
    }
    for (uint32_t i = 0; i < stk_json_n_items(keys) && !quits; i++) {
        int key = (int)stk_json_whole(stk_json_item(keys, i), -1);
        stk_top_act act = stk_top_screen_key(screen, key);
        quits = act == STK_TOP_QUIT;
        if (act == STK_TOP_CANCEL) {
            cancel_asked(screen, ret);
        }
    }
    stk_json_put_bool(ret, "quit", quits);
    if (stk_cli_cancelling_hear(&cancelling, said, sizeof said, &is_done)) {
        stk_top_screen_say(screen, said, !is_done);
    }
    stk_json_put_bool(ret, "types", stk_top_screen_types(screen));
    return stk_top_screen_draw(screen, &style, (int)stk_json_get_whole(ask, "rows", 24), out, err);
}

static int answer_screen(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                         stk_buf *ret_body, stk_err *err)
{
    (void)body;
    (void)n;
    (void)pthread_mutex_lock(&one_look);
    int rc = draw_screen(ask, ret, ret_body, err);
    (void)pthread_mutex_unlock(&one_look);
    return rc;
}

/* --- pictures --- */

static int answer(int (*look)(const stk_json *, stk_buf *, stk_err *), const stk_json *ask,
                  stk_buf *out, stk_err *err)
{
    (void)pthread_mutex_lock(&one_look);
    int rc = look(ask, out, err);
    (void)pthread_mutex_unlock(&one_look);
    return rc;
}

static int answer_gpus(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err)
{
    (void)body;
    (void)n;
    (void)ret;
    return answer(look_at_gpus, ask, ret_body, err);
}

static int answer_top(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    (void)body;
    (void)n;
    (void)ret;
    return answer(look_at_top, ask, ret_body, err);
}

const stk_link_op stk_cli_far_ops[] = {
    {"gpus", answer_gpus}, {"top", answer_top}, {"screen", answer_screen}, {NULL, NULL}};
