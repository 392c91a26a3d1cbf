/* Views of a real store: loaded, refreshed, interrupted; the time that the cache saved. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/show_json.h"
#include "show/show_testing.h"
#include "show/show_text.h"
#include "sys/file.h"

static const char spec_text[] =
    "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\",\"outputs\":[\"x\"]},"
    "\"b\":{\"run\":\"true\",\"inputs\":{\"x\":{\"from\":\"a.x\"}}}}}";

static void must(int rc, const stk_err *err)
{
    if (rc < 0) {
        fail_msg("%s", err->text);
    }
}

static void commit(stk_store *store, const char *run, stk_event_kind kind, uint32_t task,
                   int64_t at_ms, const char *data, const stk_cache_row *cache)
{
    stk_err err = {0};
    stk_event_row row = {
        .time_ms = stk_case_ms(at_ms), .kind = kind, .task = task, .attempt = 1, .data = data};
    stk_commit c = {.events = &row, .n_events = 1, .cache = cache, .n_cache = cache ? 1 : 0};
    must(stk_store_commit(store, run, &c, &err), &err);
}

static const char *const refs =
    "{\"x\":{\"digest\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
    "\"size\":3,\"format\":\"json\",\"type\":\"int\"}}";

/* A first run: step a takes 2.5 s and is cached. */
static void first_run(stk_store *store, char id[40])
{
    stk_err err = {0};
    int lock = -1;
    must(stk_store_new_run(store, NULL, "p", spec_text, sizeof spec_text - 1, stk_case_ms(0), id,
                           &lock, &err),
         &err);
    STK_BUF_AUTO data = STK_BUF_INIT(4096);
    stk_buf_printf(&data, "{\"outputs\":%s,\"used\":{\"cpu_s\":2,\"wall_s\":2.5}}", refs);
    stk_cache_row cache = {.key = "00ff",
                           .pipeline = "p",
                           .step = "a",
                           .parts = "{}",
                           .run = id,
                           .task = 0,
                           .created_ms = stk_case_ms(2600),
                           .outputs = refs};
    commit(store, id, STK_EV_RUN_CREATED, UINT32_MAX, 0, "{\"name\":\"first\"}", NULL);
    commit(store, id, STK_EV_RUN_STARTED, UINT32_MAX, 0, "{}", NULL);
    commit(store, id, STK_EV_TASK_STARTED, 0, 100, "{}", NULL);
    commit(store, id, STK_EV_TASK_SUCCEEDED, 0, 2600, data.data, &cache);
    commit(store, id, STK_EV_RUN_ENDED, UINT32_MAX, 2700, "{\"status\":\"succeeded\"}", NULL);
    (void)close(lock);
}

static void test_load_and_follow(void **state)
{
    (void)state;
    char dir[] = "/tmp/stk_show_XXXXXX", id[40];
    assert_non_null(mkdtemp(dir));
    stk_err err = {0};
    stk_store *store = NULL;
    stk_view *view = NULL;
    must(stk_store_open(dir, STK_STORE_CREATE, &store, &err), &err);
    first_run(store, id);

    char second[40];
    int lock = -1;
    must(stk_store_new_run(store, NULL, "p", spec_text, sizeof spec_text - 1, stk_case_ms(5000),
                           second, &lock, &err),
         &err);
    commit(store, second, STK_EV_RUN_CREATED, UINT32_MAX, 5000, "{}", NULL);
    commit(store, second, STK_EV_RUN_STARTED, UINT32_MAX, 5000, "{}", NULL);
    must(stk_view_load(store, second, &view, &err), &err);
    assert_true(stk_view_is_live(view)); /* this test holds its lock */

    STK_BUF_AUTO data = STK_BUF_INIT(4096);
    stk_buf_printf(&data, "{\"key\":\"00ff\",\"from_run\":\"%s\",\"outputs\":%s}", id, refs);
    commit(store, second, STK_EV_TASK_CACHED, 0, 5001, data.data, NULL);
    commit(store, second, STK_EV_TASK_STARTED, 1, 5002, "{}", NULL);
    uint32_t n_new = 0;
    must(stk_view_refresh(view, store, &n_new, &err), &err);
    assert_int_equal(n_new, 2);
    assert_int_equal(stk_view_get_run(view)->n[STK_TASK_CACHED], 1);
    stk_view_totals totals;
    must(stk_view_total(view, store, stk_case_ms(6000), &totals, &err), &err);
    assert_true(totals.saved_s > 2.49 && totals.saved_s < 2.51);

    (void)close(lock); /* as if its engine died */
    must(stk_view_refresh(view, store, &n_new, &err), &err);
    assert_int_equal(n_new, 0);
    assert_string_equal(stk_view_get_run(view)->status, "interrupted");
    stk_style style = {.utf8 = true, .columns = 100};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    must(stk_text_summary(view, store, NULL, stk_case_ms(9000), &style, &out, &err), &err);
    assert_non_null(strstr(out.data, "p interrupted"));
    assert_non_null(strstr(out.data, "stoker resume"));
    assert_non_null(strstr(out.data, "! b"));
    assert_non_null(strstr(out.data, "1 cache hit saved 2.50 s"));

    /* The path that --json names is where the store keeps the artifact. */
    const char *path = NULL;
    stk_artifact artifact;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    must(stk_store_add_bytes(store, "42\n", 3, &artifact, &err), &err);
    must(stk_store_artifact(store, artifact.digest, arena, &path, NULL, &err), &err);
    stk_buf_clear(&data);
    stk_buf_printf(&data, "{\"outputs\":{\"y\":{\"digest\":\"%s\",\"size\":3}}}", artifact.digest);
    commit(store, second, STK_EV_TASK_SUCCEEDED, 1, 6000, data.data, NULL);
    must(stk_view_refresh(view, store, &n_new, &err), &err);
    stk_buf_clear(&out);
    must(stk_show_json_task(view, 1, &out, &err), &err);
    assert_non_null(strstr(out.data, path));

    stk_view_free(view);
    stk_store_close(store);
    must(stk_file_remove_tree(dir, &err), &err);
}

/* An engine that dies between its run's row and first events leaves a run of unknown duration,
 * which resume refuses. */
static void test_nothing_on_record(void **state)
{
    (void)state;
    char dir[] = "/tmp/stk_show_XXXXXX", id[40];
    assert_non_null(mkdtemp(dir));
    stk_err err = {0};
    stk_store *store = NULL;
    stk_view *view = NULL;
    int lock = -1;
    must(stk_store_open(dir, STK_STORE_CREATE, &store, &err), &err);
    must(stk_store_new_run(store, NULL, "p", spec_text, sizeof spec_text - 1, stk_case_ms(0), id,
                           &lock, &err),
         &err);
    must(stk_store_commit(store, id, &(stk_commit){0}, &err), &err);
    (void)close(lock);
    must(stk_view_load(store, id, &view, &err), &err);
    stk_style style = {.utf8 = true, .columns = 100};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    must(stk_text_summary(view, store, NULL, stk_case_ms(9000), &style, &out, &err), &err);
    assert_non_null(strstr(out.data, "p interrupted · 2 steps · 0 ms"));
    assert_non_null(strstr(out.data, "with 'stoker run'"));
    assert_null(strstr(out.data, "stoker resume"));
    stk_view_free(view);
    stk_store_close(store);
    must(stk_file_remove_tree(dir, &err), &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load_and_follow),
                                       cmocka_unit_test(test_nothing_on_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
