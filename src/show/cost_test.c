/* What runs cost, to the cent: prices, grants and times are given. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/cost.h"
#include "show/hours.h"
#include "show/runs.h"
#include "show/show_testing.h"
#include "sys/file.h"

#define HOUR 3600000ll

static const char prices[] = "prices:\n"
                             "  currency: USD\n"
                             "  cpu_hour: 0.1\n"
                             "  memory_gb_hour: 0.01\n"
                             "  devices: {H100: 4, A100-80GB: 2, 1g.10gb: 0.5}\n"
                             "stacks:\n"
                             "  lab:\n"
                             "    backend: slurm\n"
                             "    store: /s\n"
                             "    prices: {gpu_hour: 1, cpu_hour: 0}\n";

typedef struct bench {
    char dir[64], store[80], from[PATH_MAX];
    stk_cost *cost;
    stk_err err;
} bench;

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    (void)snprintf(b->dir, sizeof b->dir, "/tmp/stk-cost-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    assert_non_null(getcwd(b->from, sizeof b->from));
    assert_return_code(chdir(b->dir), errno); /* away from a stoker.yaml above the build */
    (void)snprintf(b->store, sizeof b->store, "%s/.stoker", b->dir);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    stk_cost_free(b->cost);
    assert_return_code(chdir(b->from), errno);
    (void)stk_file_remove_tree(b->dir, NULL);
    free(b);
    return 0;
}

static int open_prices(bench *b, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/stoker.yaml", b->dir);
    b->err = (stk_err){0};
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, &b->err), 0);
    stk_cost_free(b->cost);
    return stk_cost_open(b->store, &b->cost, &b->err);
}

#define H100                                                                                       \
    "{\"vendor\":\"nvidia\",\"model\":\"NVIDIA H100 80GB HBM3\",\"memory_bytes\":80000000000"
#define A100 "{\"vendor\":\"nvidia\",\"model\":\"NVIDIA A100-SXM4-80GB\",\"memory_bytes\":"

static void begin(stk_show_case *c, const char *steps, const char *host)
{
    char spec[1024], created[256];
    (void)snprintf(spec, sizeof spec, "{\"stoker\":1,\"name\":\"p\",\"steps\":{%s}}", steps);
    stk_case_new(c, spec, NULL);
    (void)snprintf(created, sizeof created, "{\"pipeline\":\"p\",\"host\":%s}", host);
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0, created);
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 0, "{}");
}

static void start(stk_show_case *c, uint32_t attempt, int64_t ms, const char *granted)
{
    char data[1024];
    (void)snprintf(data, sizeof data, "{\"granted\":{%s}}", granted);
    stk_case_feed(c, STK_EV_TASK_STARTED, 0, attempt, ms, data);
}

/* An attempt of one hour with this grant, in a run of its own. */
static double hour_of(const bench *b, const char *granted, const char *end, const char *step)
{
    stk_show_case c;
    begin(&c, step, "{}");
    start(&c, 1, 0, granted);
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 0, 1, HOUR, end);
    double cost = stk_cost_of_run(b->cost, c.view, 0);
    stk_case_done(&c);
    return cost;
}

static void assert_cost(double is, double wanted)
{
    if (!(fabs(is - wanted) < 1e-9)) {
        fail_msg("it costs %.9f, not %.9f", is, wanted);
    }
}

static void test_grants(void **state)
{
    bench *b = *state;
    static const struct {
        const char *granted, *end, *step;
        double cost;
    } cases[] = {
        {"\"devices\":[]", "{}", "", 0},
        /* who asked for no CPUs pays for the time of those that it used */
        {"\"devices\":[]", "{\"used\":{\"cpu_s\":1800}}", "", 0.05},
        {"\"cpu_count\":4,\"devices\":[]", "{\"used\":{\"cpu_s\":1800}}", "", 0.4},
        {"\"devices\":[]", "{\"used\":{\"wall_s\":1800}}", "", -1},
        {"\"nodes\":2,\"devices\":[]", "{\"used\":{\"cpu_s\":1800}}", "", -1},
        {"\"stack\":\"lab\",\"devices\":[]", "{\"used\":{\"cpu_s\":1800}}", "", 0},
        {"\"cpu_count\":4,\"memory_bytes\":20000000000,\"devices\":[]", "{}", "", 0.4 + 0.2},
        {"\"devices\":[" H100 "}," H100 "}]", "{}", "", 8},
        /* the time that the task itself tells */
        {"\"devices\":[" H100 "}]", "{\"used\":{\"wall_s\":1800,\"cpu_s\":0}}", "", 2},
        /* a share, a slice with a price, and one by its part of the device */
        {"\"devices\":[" H100 ",\"share_bytes\":20000000000}]", "{}", "", 1},
        {"\"devices\":[" A100 "10468982784,\"profile\":\"1g.10gb\"}]", "{}", "", 0.5},
        {"\"devices\":[" A100 "42949672960,\"profile\":\"3g.40gb\"}]", "{}", "", 1},
        /* no price is guessed */
        {"\"devices\":[{\"vendor\":\"nvidia\",\"model\":\"NVIDIA L4\"}]", "{}", "", -1},
        /* another stack: its own prices, the file's for the rest, devices as reported at the end */
        {"\"stack\":\"lab\",\"cpu_count\":8,\"memory_bytes\":10000000000,\"devices\":[]",
         "{\"granted\":{\"devices\":[" H100 "}]}}", "", 1 + 0.1},
        {"\"stack\":\"lab\",\"nodes\":2,\"memory_bytes\":10000000000,\"devices\":[]",
         "{\"granted\":{\"devices\":[" H100 "}]}}", "", 2 * (1 + 0.1)},
        /* CPUs and memory as the machine that ran it reports them */
        {"\"stack\":\"local\",\"cpu_count\":1,\"devices\":[]",
         "{\"granted\":{\"cpu_count\":4,\"memory_bytes\":20000000000,\"devices\":[]}}", "",
         0.4 + 0.2},
    };
    assert_int_equal(open_prices(b, prices), 0);
    assert_string_equal(stk_cost_currency(b->cost), "USD");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char step[256];
        (void)snprintf(step, sizeof step, "\"a\":{\"run\":\"true\"%s}", cases[i].step);
        assert_cost(hour_of(b, cases[i].granted, cases[i].end, step), cases[i].cost);
    }
}

/* All attempts count, what comes from the cache costs nothing, and what runs counts until now. */
static void test_attempts(void **state)
{
    bench *b = *state;
    stk_show_case c;
    assert_int_equal(open_prices(b, prices), 0);
    begin(&c, "\"a\":{\"run\":\"true\"},\"b\":{\"run\":\"true\"}", "{}");
    start(&c, 1, 0, "\"devices\":[" H100 "}]");
    stk_case_feed(&c, STK_EV_TASK_FAILED, 0, 1, HOUR, "{\"final\":false}");
    start(&c, 2, 2 * HOUR, "\"devices\":[" H100 "}]");
    stk_case_feed(&c, STK_EV_TASK_CACHED, 1, 0, 2 * HOUR + 1, "{\"key\":\"k\"}");
    assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(2 * HOUR + HOUR / 4)), 4 + 1);
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 0, 2, 2 * HOUR + HOUR / 2, "{}");
    assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(9 * HOUR)), 4 + 2);
    stk_case_done(&c);
    stk_case_mixed(&c, NULL);
    assert_cost(stk_cost_of_run(NULL, c.view, 0), -1);
    stk_case_done(&c);
}

#define ON_LAB "\"stack\":\"lab\",\"memory_bytes\":100000000000,\"devices\":[]"
#define GPUS ",\"resources\":{\"gpu_count\":1}"
#define WAITS "{\"waits\":\"the queue is full\"}"

/* What went elsewhere: devices without a report have no cost, what only waited has none to pay. */
static void test_elsewhere(void **state)
{
    bench *b = *state;
    static const struct {
        const char *step, *waits, *end; /* of an attempt of one hour; NULL: it runs */
        double cost;
    } cases[] = {
        {"", NULL, NULL, 1},
        {GPUS, NULL, NULL, -1},
        {GPUS, NULL, "{}", -1}, /* cancelled */
        {GPUS, NULL, "{\"used\":{\"wall_s\":0},\"granted\":{\"checkpoints\":{\"n\":0}}}", -1},
        {"", NULL, "{\"used\":{\"wall_s\":0},\"granted\":{\"checkpoints\":{\"n\":0}}}", 1},
        {GPUS, NULL, "{\"used\":{\"wall_s\":1800},\"granted\":{\"devices\":[" H100 "}]}}",
         0.5 + 0.5},
        {GPUS, WAITS, NULL, 0},
        {GPUS, WAITS, "{}", 0},
        {GPUS, WAITS, "{\"used\":{\"wall_s\":0}}", 0},
        {"", WAITS, "{\"used\":{\"wall_s\":1800},\"granted\":{\"devices\":[]}}", 0.5},
    };
    assert_int_equal(open_prices(b, prices), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_show_case c;
        char step[256];
        (void)snprintf(step, sizeof step, "\"a\":{\"run\":\"true\"%s}", cases[i].step);
        begin(&c, step, "{}");
        start(&c, 1, 0, ON_LAB);
        if (cases[i].waits != NULL) {
            stk_case_feed(&c, STK_EV_NOTE, 0, 1, 1, cases[i].waits);
        }
        if (cases[i].end != NULL) {
            stk_case_feed(&c, STK_EV_TASK_FAILED, 0, 1, HOUR, cases[i].end);
        }
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), cases[i].cost);
        if (cases[i].end != NULL) { /* the same as an earlier attempt */
            start(&c, 2, HOUR, "\"devices\":[]");
            assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), cases[i].cost);
        }
        stk_case_done(&c);
    }
}

/* When an attempt ended that no engine saw ending isn't known. Without a price that doesn't
 * matter. */
static void test_without_an_end(void **state)
{
    bench *b = *state;
    static const char *const granted[] = {"\"devices\":[" H100 "}]", "\"devices\":[]"};
    assert_int_equal(open_prices(b, "prices: {devices: {H100: 4}}\n"), 0);
    for (int i = 0; i < 2; i++) {
        stk_show_case c;
        begin(&c, "\"a\":{\"run\":\"true\"}", "{}");
        start(&c, 1, 0, granted[i]);
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), i == 0 ? 4 : 0);
        stk_case_feed(&c, STK_EV_RUN_ENDED, UINT32_MAX, 0, HOUR, "{\"status\":\"interrupted\"}");
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), i - 1);
        stk_case_feed(&c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 2 * HOUR, "{\"resumed\":true}");
        start(&c, 2, 2 * HOUR, "\"devices\":[]");
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(3 * HOUR)), i - 1);
        stk_case_done(&c);
    }
}

/* CPU time that wasn't asked for is known when its attempt ends: until then it isn't 0. */
static void test_cpu_time(void **state)
{
    bench *b = *state;
    static const struct {
        const char *granted;
        double live;
    } cases[] = {{"\"devices\":[]", -1}, {"\"devices\":[" H100 "}]", 4}};
    assert_int_equal(open_prices(b, prices), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_show_case c;
        begin(&c, "\"a\":{\"run\":\"true\"}", "{}");
        start(&c, 1, 0, cases[i].granted);
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), cases[i].live);
        stk_case_feed(&c, STK_EV_TASK_FAILED, 0, 1, HOUR, "{\"used\":{\"cpu_s\":1800}}");
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)),
                    MAX(cases[i].live, 0) + 0.05);
        start(&c, 2, HOUR, cases[i].granted);
        stk_case_feed(&c, STK_EV_RUN_ENDED, UINT32_MAX, 0, HOUR, "{\"status\":\"interrupted\"}");
        assert_cost(stk_cost_of_run(b->cost, c.view, stk_case_ms(HOUR)), -1);
        stk_case_done(&c);
    }
}

/* The hours of devices are those of all nodes; how busy they were is known of the first one. */
static void test_hours_of_nodes(void **state)
{
    bench *b = *state;
    static const char spec[] = "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\"}}}";
    static const char end[] = "{\"used\":{\"wall_s\":3600,\"gpu_held_s\":3600,\"gpu_busy_s\":900},"
                              "\"granted\":{\"stack\":\"lab\",\"devices\":[" H100 "}]}}";
    stk_event_row rows[] = {
        {.kind = STK_EV_RUN_CREATED, .task = UINT32_MAX, .data = "{\"pipeline\":\"p\"}"},
        {.kind = STK_EV_TASK_STARTED,
         .attempt = 1,
         .data = "{\"granted\":{\"stack\":\"lab\",\"nodes\":3,\"devices\":[]}}"},
        {.time_ms = HOUR, .kind = STK_EV_TASK_SUCCEEDED, .attempt = 1, .data = end}};
    stk_commit commit = {.events = rows, .n_events = 3};
    STK_HOURS_AUTO hours = NULL;
    stk_store *store = NULL;
    char id[40];
    int lock = -1;
    assert_int_equal(open_prices(b, prices), 0);
    assert_int_equal(stk_store_open(b->store, STK_STORE_CREATE, &store, &b->err), 0);
    assert_int_equal(
        stk_store_new_run(store, NULL, "p", spec, sizeof spec - 1, 0, id, &lock, &b->err), 0);
    assert_int_equal(stk_store_commit(store, id, &commit, &b->err), 0);
    assert_int_equal(stk_hours_new(0, &hours, &b->err), 0);
    assert_int_equal(stk_hours_add(hours, store, b->cost, &b->err), 0);
    const stk_hours_sum all = stk_hours_total(hours);
    assert_cost(all.held_s, 3 * 3600);
    assert_cost(all.known_s, 3600);
    assert_cost(all.busy_s, 900);
    assert_cost(all.cost, 3);
    assert_cost(all.wasted_cost, 0.75);
    (void)close(lock);
    stk_store_close(store);
}

static void test_prices(void **state)
{
    bench *b = *state;
    static const struct {
        const char *text, *part;
    } wrong[] = {{"prices: 3", "prices"},
                 {"prices: {gpu: 3}", "unknown key"},
                 {"prices: {gpu_hour: -1}", "gpu_hour"},
                 {"prices: {cpu_hour: much}", "cpu_hour"},
                 {"prices: {devices: {H100: free}}", "H100"},
                 {"prices: {currency: US Dollar}", "short word"},
                 {"stacks: {lab: {backend: slurm, prices: {currency: EUR}}}", "whole file"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char all[400];
        assert_true(open_prices(b, wrong[i].text) < 0);
        assert_null(b->cost);
        (void)snprintf(all, sizeof all, "%s %s", b->err.text, b->err.hint);
        if (strstr(all, wrong[i].part) == NULL) {
            fail_msg("'%s' isn't in: %s", wrong[i].part, all);
        }
    }
    static const char *const none[] = {"stacks: {}\n", "prices: {currency: USD}\n", "prices: {}\n"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(open_prices(b, none[i]), 0);
        assert_null(b->cost);
    }
    assert_int_equal(open_prices(b, "prices: {gpu_hour: 0}\n"), 0);
    assert_string_equal(stk_cost_currency(b->cost), "");
    assert_cost(hour_of(b, "\"devices\":[" H100 "}]", "{}", "\"a\":{\"run\":\"true\"}"), 0);
    stk_cost *other = b->cost;
    b->cost = NULL;
    assert_int_equal(open_prices(b, "prices: {gpu_hour: 0}\n"), 0);
    assert_true(stk_cost_same(other, b->cost));
    assert_int_equal(open_prices(b, "prices: {gpu_hour: 1}\n"), 0);
    assert_false(stk_cost_same(other, b->cost));
    assert_false(stk_cost_same(other, NULL));
    stk_cost_free(other);
}

static void test_text(void **state)
{
    char text[32], here[PATH_MAX];
    (void)state;
    assert_non_null(getcwd(here, sizeof here)); /* a folder that tests have removed has no path */
    assert_string_equal(stk_cost_text(12.345, "USD", text, sizeof text), "12.35 USD");
    assert_string_equal(stk_cost_text(0.00123, "", text, sizeof text), "0.0012");
    assert_string_equal(stk_cost_text(0, "EUR", text, sizeof text), "0.00 EUR");
}

/* A condition and an order by cost; a run whose cost is unknown doesn't match, and comes last. */
static void test_chosen(void **state)
{
    (void)state;
    const stk_run_row rows[] = {{.id = "a"}, {.id = "b"}, {.id = "c"}};
    stk_run_values runs[] = {
        {&rows[0], NULL, 0, -1}, {&rows[1], NULL, 0, 3}, {&rows[2], NULL, 0, 1}};
    stk_err err = {0};
    uint32_t n = 3;
    assert_int_equal(stk_runs_sort(runs, n, "-cost", &err), 0);
    assert_string_equal(runs[0].row->id, "b");
    assert_string_equal(runs[2].row->id, "a");
    assert_int_equal(stk_runs_where(runs, &n, "cost<2", &err), 0);
    assert_true(n == 1 && strcmp(runs[0].row->id, "c") == 0);
    runs[0].cost = -1;
    assert_int_equal(stk_runs_where(runs, &n, "cost<2", &err), STK_E_USAGE);
    assert_non_null(strstr(err.hint, "prices"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_grants, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_attempts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_elsewhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cpu_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_hours_of_nodes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_prices, set_up, tear_down),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
