/* How long a run has still to go, by earlier ones of many tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/eta.h"
#include "show/show_testing.h"
#include "sys/file.h"

static const char wide_spec[] =
    "{\"stoker\":1,\"name\":\"p\",\"steps\":{"
    "\"start\":{\"run\":\"true\",\"outputs\":[\"a\"],\"next\":\"work\",\"foreach\":\"a\"},"
    "\"work\":{\"run\":\"true\",\"next\":\"end\"},"
    "\"end\":{\"run\":\"true\",\"join\":true}}}";

enum { MANY = 30000, WORK_MS = 2000, WIDTH = 10, END_MS = 5000 };

typedef struct bench {
    char dir[64], id[40];
    stk_store *store;
    int lock;
    stk_event_row *rows;
    uint32_t n;
    stk_err err;
} bench;

static void must(int rc, const stk_err *err)
{
    if (rc < 0) {
        fail_msg("%s", err->text);
    }
}

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    (void)strcpy(b->dir, "/tmp/stk-eta-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)setenv("STOKER_SYNC", "0", 1);
    must(stk_store_open(b->dir, STK_STORE_CREATE, &b->store, &b->err), &b->err);
    b->rows = calloc(3 * MANY + 100, sizeof *b->rows);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    stk_store_close(b->store);
    (void)stk_file_remove_tree(b->dir, NULL);
    free(b->rows);
    free(b);
    return 0;
}

static void add(bench *b, stk_event_kind kind, uint32_t task, int64_t ms, const char *data)
{
    b->rows[b->n++] = (stk_event_row){
        .time_ms = stk_case_ms(ms), .kind = kind, .task = task, .attempt = 1, .data = data};
}

/* A run whose `work` has n tasks of two seconds, ten at once; of these so many end. */
static void make_run(bench *b, uint32_t n, uint32_t n_ended)
{
    char added[100], join[64];
    b->n = 0;
    must(stk_store_new_run(b->store, NULL, "p", wide_spec, sizeof wide_spec - 1, stk_case_ms(0),
                           b->id, &b->lock, &b->err),
         &b->err);
    (void)snprintf(added, sizeof added,
                   "{\"step\":\"work\",\"n\":%u,\"deps\":[0],\"split\":0,\"branch\":0}", n);
    add(b, STK_EV_RUN_CREATED, UINT32_MAX, 0, "{\"pipeline\":\"p\"}");
    add(b, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}");
    add(b, STK_EV_TASK_ADDED, 0, 0, "{\"step\":\"start\",\"n\":1,\"deps\":[]}");
    add(b, STK_EV_TASK_STARTED, 0, 0, "{}");
    add(b, STK_EV_TASK_SUCCEEDED, 0, 0, "{}");
    add(b, STK_EV_TASK_ADDED, 1, 0, added);
    int64_t ms = 0;
    for (uint32_t i = 0; i < n_ended; i += WIDTH, ms += WORK_MS) {
        for (uint32_t k = 1; k <= WIDTH; k++) {
            add(b, STK_EV_TASK_STARTED, i + k, ms, "{}");
        }
        for (uint32_t k = 1; k <= WIDTH; k++) {
            add(b, STK_EV_TASK_SUCCEEDED, i + k, ms + WORK_MS, "{}");
        }
    }
    if (n_ended == n) {
        (void)snprintf(join, sizeof join, "{\"step\":\"end\",\"n\":1,\"deps\":[1]}");
        add(b, STK_EV_TASK_ADDED, n + 1, ms, join);
        add(b, STK_EV_TASK_STARTED, n + 1, ms, "{}");
        add(b, STK_EV_TASK_SUCCEEDED, n + 1, ms + END_MS, "{}");
        add(b, STK_EV_RUN_ENDED, UINT32_MAX, ms + END_MS, "{\"status\":\"succeeded\"}");
    }
    stk_commit commit = {.events = b->rows, .n_events = b->n};
    must(stk_store_commit(b->store, b->id, &commit, &b->err), &b->err);
}

/* Of a run of 30,000 tasks the time left is known, and no call reads all of it. */
static void test_many(void **state)
{
    bench *b = *state;
    STK_VIEW_AUTO view = NULL;
    make_run(b, MANY, MANY);
    (void)close(b->lock);
    make_run(b, MANY, 100);
    must(stk_view_load(b->store, b->id, &view, &b->err), &b->err);
    stk_eta *eta = stk_eta_new(view, b->store);
    int64_t now_ms = stk_case_ms(100 / WIDTH * WORK_MS), left_ms = -1;
    int n_calls = 0;
    while (left_ms < 0 && n_calls < 100000) {
        left_ms = stk_eta_left_ms(eta, now_ms);
        n_calls++;
    }
    assert_int_equal(left_ms, (MANY - 100) / WIDTH * WORK_MS + END_MS);
    assert_true(n_calls > 1);
    stk_eta_free(eta);
    (void)close(b->lock);
}

/* The newest runs count, by the median, and one whose task is new says nothing. */
static void test_small(void **state)
{
    bench *b = *state;
    STK_VIEW_AUTO view = NULL;
    make_run(b, 20, 0);
    must(stk_view_load(b->store, b->id, &view, &b->err), &b->err);
    stk_eta *eta = stk_eta_new(view, b->store);
    assert_int_equal(stk_eta_left_ms(eta, stk_case_ms(3000)), -1);
    stk_eta_free(eta);
    stk_view_free(view);
    view = NULL;
    (void)close(b->lock);
    make_run(b, 20, 20);
    (void)close(b->lock);
    make_run(b, 20, 10);
    must(stk_view_load(b->store, b->id, &view, &b->err), &b->err);
    eta = stk_eta_new(view, b->store);
    assert_int_equal(stk_eta_left_ms(eta, stk_case_ms(1000)), -1); /* too early */
    assert_int_equal(stk_eta_left_ms(eta, stk_case_ms(3000)), WORK_MS + END_MS);
    stk_eta_free(eta);
    (void)close(b->lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
