/* The host's side of `stoker gpus --stack` and `stoker top --stack`: its picture as text. */
#include <pthread.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_hosts.h"
#include "show/gpus.h"
#include "show/top/top.h"

static pthread_mutex_t one_look = PTHREAD_MUTEX_INITIALIZER; /* at a time */
static stk_top *top; /* kept, because usage of CPUs is the difference of two pictures */

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

static int look_at_top(const stk_json *ask, stk_buf *out, stk_err *err)
{
    bool is_json = stk_json_is(stk_json_get(ask, "form"), "json");
    const stk_style style = style_of(ask);
    int rc = 0;
    if (top == NULL) {
        rc = stk_top_open(&top, err);
    }
    if (rc < 0) {
        stk_top_close(top);
        top = NULL;
        return rc;
    }
    return stk_top_draw(top, is_json ? NULL : &style, (int)stk_json_get_whole(ask, "rows", 0), out,
                        err);
}

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

const stk_link_op stk_cli_far_ops[] = {{"gpus", answer_gpus}, {"top", answer_top}, {NULL, NULL}};
