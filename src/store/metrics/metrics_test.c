/* What metrics.jsonl says, and what is chosen of it to look at. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/testing.h"
#include "store/metrics/metrics.h"
#include "sys/file.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/metrics-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

/* An attempt directory with this file. */
static const char *attempt(const char *name, const char *text)
{
    static char dir[128];
    char path[160];
    (void)snprintf(dir, sizeof dir, "%s/%s", folder, name);
    (void)snprintf(path, sizeof path, "%s/" STK_METRICS_FILE, dir);
    assert_int_equal(stk_file_mkdirs(dir, 0755, NULL), 0);
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, NULL), 0);
    return dir;
}

static void test_lines(void **state)
{
    static const struct {
        const char *text;
        uint32_t n_metrics, n_points, n_bad;
        double last;
    } cases[] = {
        {"", 0, 0, 0, NAN},
        {"{\"loss\":0.5}\n", 1, 1, 0, 0.5},
        {"{\"step\":1,\"time\":1764280000.25,\"loss\":0.5,\"n\":3}\n", 2, 1, 0, 0.5},
        {"{\"loss\":true}\n{\"loss\":\"nan\"}\n", 1, 2, 0, NAN},
        {"{\"loss\":\"-inf\"}\n", 1, 1, 0, -INFINITY},
        {"\n{\"loss\":1}\n\n{\"loss\":2}", 1, 1, 0, 1}, /* the last line isn't whole */
        {"{\"loss\":\"good\"}\n{\"loss\":1}\n", 1, 1, 1, 1},
        {"{\"step\":-1,\"loss\":1}\n{\"step\":1.5,\"loss\":1}\n[1]\n{\"\":1}\n{\n", 0, 0, 5, NAN},
        {"{\"time\":\"now\",\"loss\":1}\n", 0, 0, 1, NAN},
    };
    char name[16];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_METRICS_AUTO m = NULL;
        (void)snprintf(name, sizeof name, "%zu", i);
        assert_int_equal(stk_metrics_new(&m, NULL), 0);
        assert_int_equal(stk_metrics_add_attempt(m, attempt(name, cases[i].text), NULL), 0);
        assert_int_equal(stk_metrics_n(m), cases[i].n_metrics);
        assert_int_equal(stk_metrics_n_bad(m), cases[i].n_bad);
        assert_int_equal(stk_metrics_bad(m) != NULL, cases[i].n_bad > 0);
        if (cases[i].n_metrics > 0) {
            stk_metric one = stk_metrics_get(m, 0);
            assert_string_equal(one.name, "loss");
            assert_int_equal(one.n, cases[i].n_points);
            assert_true(one.last == cases[i].last || (isnan(one.last) && isnan(cases[i].last)));
        }
    }
}

static void test_point(void **state)
{
    (void)state;
    STK_METRICS_AUTO m = NULL;
    const char *dir = attempt("point", "{\"step\":7,\"time\":1764280000.25,\"loss\":0.5}\n");
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    assert_int_equal(stk_metrics_add_attempt(m, dir, NULL), 0);
    stk_metric one = stk_metrics_get(m, 0);
    assert_int_equal(one.points[0].step, 7);
    assert_int_equal(one.points[0].time_ms, 1764280000250);
}

/* The second attempt goes on at step 3. */
static void test_attempts_are_one_curve(void **state)
{
    (void)state;
    STK_METRICS_AUTO m = NULL;
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    const char *first = "{\"step\":1,\"a\":1}\n{\"step\":2,\"a\":2}\n{\"step\":3,\"a\":3}\n"
                        "{\"step\":4,\"a\":4}\n{\"other\":1}\n";
    assert_int_equal(stk_metrics_add_attempt(m, attempt("1", first), NULL), 0);
    const char *second = "{\"step\":3,\"a\":30}\n{\"step\":3,\"a\":31}\n";
    assert_int_equal(stk_metrics_add_attempt(m, attempt("2", second), NULL), 0);
    stk_metric a = stk_metrics_get(m, 0);
    double wanted[] = {1, 2, 30, 31};
    assert_int_equal(a.n, 4);
    for (uint32_t i = 0; i < a.n; i++) {
        assert_true(a.points[i].value == wanted[i]);
    }
    assert_int_equal(stk_metrics_get(m, 1).n, 1);
}

static void test_ranks(void **state)
{
    char path[200];
    (void)state;
    STK_METRICS_AUTO m = NULL;
    const char *dir = attempt("gang", "{\"loss\":1}\n");
    (void)snprintf(path, sizeof path, "%s/rank-2", dir);
    assert_int_equal(mkdir(path, 0755), 0);
    (void)snprintf(path, sizeof path, "%s/rank-2/" STK_METRICS_FILE, dir);
    assert_int_equal(stk_file_write(path, "{\"loss\":2}\n", 11, 0644, NULL), 0);
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    assert_int_equal(stk_metrics_add_attempt(m, dir, NULL), 0);
    assert_int_equal(stk_metrics_n(m), 2);
    assert_int_equal(stk_metrics_get(m, 1).rank, 2);
    assert_true(stk_metrics_get(m, 1).last == 2);
}

/* Of a long file only the end is read: whole lines, and of a short one all. */
static void test_last(void **state)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    (void)state;
    stk_buf_text(&text, "{\"rare\":1}\n");
    for (int i = 0; i < 5000; i++) {
        stk_buf_printf(&text, "{\"step\":%d,\"loss\":%d}\n", i, i);
    }
    STK_METRICS_AUTO m = NULL;
    STK_METRICS_AUTO few = NULL;
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    assert_int_equal(stk_metrics_add_last(m, attempt("long", text.data), NULL), 0);
    assert_int_equal(stk_metrics_n(m), 1);
    assert_int_equal(stk_metrics_n_bad(m), 0);
    assert_true(stk_metrics_get(m, 0).last == 4999);
    assert_in_range(stk_metrics_get(m, 0).n, 100, 1000);
    assert_int_equal(stk_metrics_new(&few, NULL), 0);
    assert_int_equal(stk_metrics_add_last(few, attempt("short", "{\"a\":1}\n{\"b\":2}\n"), NULL),
                     0);
    assert_int_equal(stk_metrics_n(few), 2);
}

#define EVENTS "train/events.out.tfevents.1795820078.host.1.0"

/* A file that TensorBoard's own writer made: loss = 1, 1/2 … 1/5, a histogram and a text. */
static const char *events_folder(void)
{
    static char path[512];
    const char *slash = strstr(__FILE__, "src/store/");
    (void)snprintf(path, sizeof path, "%.*stests/data/tensorboard", (int)(slash - __FILE__),
                   __FILE__);
    return path;
}

static void test_events(void **state)
{
    (void)state;
    STK_METRICS_AUTO m = NULL;
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    assert_int_equal(stk_metrics_add_events(m, events_folder(), NULL), 0);
    assert_int_equal(stk_metrics_n(m), 1);
    stk_metric loss = stk_metrics_get(m, 0);
    assert_string_equal(loss.name, "train/loss");
    assert_int_equal(loss.n, 5);
    for (uint32_t i = 0; i < loss.n; i++) {
        assert_int_equal(loss.points[i].step, i);
        assert_true(fabs(loss.points[i].value - 1.0 / (i + 1)) < 1e-6);
        assert_in_range(loss.points[i].time_ms, 1795820000000, 1795821000000);
    }
    assert_int_equal(stk_metrics_n_bad(m), 0);
}

/* What the task logged itself isn't doubled. */
static void test_events_beside_own(void **state)
{
    (void)state;
    STK_METRICS_AUTO m = NULL;
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    const char *dir = attempt("own", "{\"train/loss\":7}\n");
    assert_int_equal(stk_metrics_add_attempt(m, dir, NULL), 0);
    assert_int_equal(stk_metrics_add_events(m, events_folder(), NULL), 0);
    assert_int_equal(stk_metrics_n(m), 1);
    assert_true(stk_metrics_get(m, 0).n == 1 && stk_metrics_get(m, 0).last == 7);
}

/* Cut anywhere, and with any byte changed, it gives fewer or other values, and no more than that.
 */
static void test_damaged_events(void **state)
{
    char from[600], path[200];
    char *data = NULL;
    size_t len = 0;
    (void)state;
    (void)snprintf(from, sizeof from, "%s/" EVENTS, events_folder());
    assert_int_equal(stk_file_read(from, 1 << 20, &data, &len, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/cut/a.tfevents.1", folder);
    (void)snprintf(from, sizeof from, "%s/cut", folder);
    assert_int_equal(stk_file_mkdirs(from, 0755, NULL), 0);
    for (size_t i = 0; i < 2 * len; i++) {
        STK_METRICS_AUTO m = NULL;
        size_t n = i < len ? i : len;
        char *at = &data[i < len ? 0 : i - len];
        *at = (char)(*at ^ (i < len ? 0 : 0xff));
        assert_int_equal(stk_file_write(path, data, n, 0644, NULL), 0);
        *at = (char)(*at ^ (i < len ? 0 : 0xff));
        assert_int_equal(stk_metrics_new(&m, NULL), 0);
        assert_int_equal(stk_metrics_add_events(m, from, NULL), 0);
        assert_in_range(stk_metrics_n(m), 0, 2);
    }
    free(data);
}

static void test_absent(void **state)
{
    (void)state;
    STK_METRICS_AUTO m = NULL;
    assert_int_equal(stk_metrics_new(&m, NULL), 0);
    assert_int_equal(stk_metrics_add_attempt(m, "/nowhere/at/all", NULL), 0);
    assert_int_equal(stk_metrics_n(m), 0);
}

/* A spike, and a NaN, among 100,000 values stay visible. */
static void test_thin(void **state)
{
    enum { N = 100000, MOST = 100 };
    stk_metric_point *points = calloc(N, sizeof *points), few[MOST];
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        points[i] = (stk_metric_point){.step = i, .time_ms = -1, .value = i % 7};
    }
    points[54321].value = 1000;
    points[77777].value = NAN;
    stk_metric whole = {.n = N, .points = points};
    uint32_t n = stk_metric_thin(&whole, MOST, few);
    bool has_spike = false, has_nan = false;
    assert_in_range(n, MOST / 2, MOST);
    assert_int_equal(few[0].step, 0);
    assert_int_equal(few[n - 1].step, N - 1);
    for (uint32_t i = 0; i < n; i++) {
        has_spike = has_spike || few[i].value == 1000;
        has_nan = has_nan || isnan(few[i].value);
        assert_true(i == 0 || few[i].step > few[i - 1].step);
    }
    assert_true(has_spike && has_nan);
    whole.n = MOST;
    assert_int_equal(stk_metric_thin(&whole, MOST, few), MOST);
    free(points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines),
                                       cmocka_unit_test(test_point),
                                       cmocka_unit_test(test_attempts_are_one_curve),
                                       cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_last),
                                       cmocka_unit_test(test_events),
                                       cmocka_unit_test(test_events_beside_own),
                                       cmocka_unit_test(test_damaged_events),
                                       cmocka_unit_test(test_absent),
                                       cmocka_unit_test(test_thin)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
