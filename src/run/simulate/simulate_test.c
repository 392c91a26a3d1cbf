/* Small clusters whose right answer is obvious, and files with mistakes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/testing.h"
#include "run/simulate/simulate.h"

static char folder[] = "/tmp/stk-simulate-XXXXXX";
static stk_arena *arena;

static const char *file(const char *text)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/f", folder);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static bool any(const char *gpu_class, const stk_device *device)
{
    return gpu_class == NULL || strstr(device->model, gpu_class) != NULL;
}

static stk_sim_result simulate(const char *cluster_text, const char *workload_text,
                               stk_pack_policy policy)
{
    stk_cluster cluster = {0};
    stk_workload workload;
    stk_sim_result result;
    stk_err err = {0};
    assert_int_equal(stk_cluster_add(&cluster, cluster_text, arena, &err), 0);
    assert_int_equal(stk_workload_load(file(workload_text), arena, &workload, &err), 0);
    assert_int_equal(stk_simulate(&cluster, &workload, policy, 7, any, &result, &err), 0);
    stk_cluster_done(&cluster);
    return result;
}

static void near(double a, double b)
{
    if (!(a - b < 1e-6 && b - a < 1e-6)) {
        fail_msg("%.9g is not %.9g", a, b);
    }
}

/* Two nodes of two: four single jobs fill them, the fifth is refused. */
static void test_fill(void **state)
{
    (void)state;
    for (int p = STK_PACK_STOKER; p <= STK_PACK_FRAGMENT; p++) {
        stk_sim_result r = simulate("2*2xH100", "gpus,count\n1,5\n", (stk_pack_policy)p);
        near(r.devices, 4);
        near(r.asked, 5);
        near(r.in_use_percent, 100);
        assert_int_equal(r.placed, 4);
        assert_int_equal(r.refused, 1);
        near(r.mean_wait_s, -1);
    }
}

/* Two single jobs, then a pair: a policy can place the pair only if it kept one machine empty. */
static void test_whole_machines_stay_whole(void **state)
{
    (void)state;
    static const char workload[] = "arrival,gpus\n0,1\n1,1\n2,2\n";
    stk_sim_result ours = simulate("2*2xH100", workload, STK_PACK_STOKER);
    assert_int_equal(ours.refused, 0);
    near(ours.in_use_percent, 100);
    near(ours.fragment_percent, 0);
    assert_int_equal(simulate("2*2xH100", workload, STK_PACK_BEST_FIT).refused, 0);
    assert_int_equal(simulate("2*2xH100", workload, STK_PACK_FRAGMENT).refused, 0);
}

/* Shares fill gaps: two shares of 40 GB go to one 80 GB device, so the other one stays whole. */
static void test_shares(void **state)
{
    (void)state;
    stk_sim_result r =
        simulate("2xH100", "arrival,gpus,gpu_memory\n0,,40GB\n1,,40GB\n2,1,\n", STK_PACK_STOKER);
    assert_int_equal(r.refused, 0);
    r = simulate("2xH100", "gpus,gpu_memory,count\n1,90GB,1\n", STK_PACK_STOKER);
    assert_int_equal(r.refused, 1);
}

/* One device, three jobs of 10 s that arrive together: they run one after the other. */
static void test_line(void **state)
{
    (void)state;
    stk_sim_result r =
        simulate("1xH100", "arrival,duration,gpus,count\n0,10,1,3\n", STK_PACK_STOKER);
    near(r.makespan_s, 30);
    near(r.mean_wait_s, 10);
    near(r.p95_wait_s, 20);
    near(r.fragment_percent, -1);
    /* a job that never fits doesn't delay the others */
    r = simulate("1xH100", "arrival,duration,gpus\n0,1,2\n0,5,1\n20,1,1\n", STK_PACK_STOKER);
    assert_int_equal(r.refused, 1);
    assert_int_equal(r.placed, 2);
    near(r.in_use_percent, 25); /* 5 s of the 20 until the last arrival */
}

/* A pair waits while single jobs keep arriving: they pass it, but not without limit. */
static void test_no_starving(void **state)
{
    (void)state;
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_buf_text(&text, "arrival,duration,gpus\n0,1.5,1\n0.1,1,2\n");
    for (int i = 0; i < 400; i++) {
        stk_buf_printf(&text, "%d,1.5,1\n", i + 1);
    }
    stk_sim_result r = simulate("2xH100", text.data, STK_PACK_STOKER);
    assert_int_equal(r.refused, 0);
    assert_true(r.p95_wait_s < 100);
}

static void test_class_and_host(void **state)
{
    (void)state;
    static const char cluster[] = "nodes,machine,cpus,memory\n1,2xA100,8,64GB\n1,2xH100,8,64GB\n";
    char copy[200];
    (void)snprintf(copy, sizeof copy, "%s/cluster.csv", folder);
    FILE *f = fopen(copy, "we");
    (void)fputs(cluster, f);
    (void)fclose(f);
    stk_sim_result r = simulate(copy, "gpus,gpu_class,count\n1,A100,3\n", STK_PACK_STOKER);
    assert_int_equal(r.placed, 2);
    r = simulate(copy, "gpus,cpus,count\n1,5,4\n", STK_PACK_STOKER);
    assert_int_equal(r.placed, 2); /* the CPUs are the bottleneck */
    r = simulate(copy, "cpus,memory,count\n0,40GB,4\n", STK_PACK_STOKER);
    assert_int_equal(r.placed, 2);
}

static void test_json_is_the_same(void **state)
{
    (void)state;
    stk_sim_result r = simulate("2xH100",
                                "[{\"gpus\": 1, \"gpu_memory\": \"40GB\", \"count\": 4},\n"
                                " {\"gpus\": 1, \"gpu_class\": null}]",
                                STK_PACK_BEST_FIT);
    assert_int_equal(r.placed, 4);
    assert_int_equal(r.refused, 1);
}

static void test_made_up(void **state)
{
    (void)state;
    stk_cluster cluster = {0};
    stk_workload w;
    stk_workload again;
    stk_err err = {0};
    double in_use[4];
    assert_int_equal(stk_cluster_add(&cluster, "8*8xH100", arena, &err), 0);
    assert_int_equal(stk_workload_make(&cluster, 1.3, 0, 3, arena, &w, &err), 0);
    assert_int_equal(stk_workload_make(&cluster, 1.3, 0, 3, arena, &again, &err), 0);
    assert_int_equal(w.n, again.n);
    assert_memory_equal(w.jobs, again.jobs, w.n * sizeof *w.jobs);
    for (int p = STK_PACK_STOKER; p <= STK_PACK_FRAGMENT; p++) {
        stk_sim_result r;
        assert_int_equal(stk_simulate(&cluster, &w, (stk_pack_policy)p, 1, any, &r, &err), 0);
        assert_true(r.asked >= 1.29 * r.devices && r.asked < 1.5 * r.devices);
        assert_true(r.in_use_percent > 50 && r.in_use_percent <= 100 + 1e-9);
        in_use[p] = r.in_use_percent;
    }
    assert_true(in_use[STK_PACK_STOKER] > in_use[STK_PACK_RANDOM]);
    stk_cluster_done(&cluster);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *says;
        int line;
    } cases[] = {{"gpus,gpu_memroy\n1,2\n", "unknown column 'gpu_memroy'", 1},
                 {"gpus\n1\nx\n", "gpus 'x' is not a number", 3},
                 {"gpus\n1,2\n", "more fields", 2},
                 {"gpus,gpus\n1,2\n", "twice", 1},
                 {"gpus\n0.5\n", "gpu_memory", 2},
                 {"gpu_memory\nlots\n", "amount of memory", 2},
                 {"", "empty", 0},
                 {"gpus\n", "no jobs", 0},
                 {"duration,gpus\n1,1\n,1\n", "some have none", 0},
                 {"{}", "not a list", 1},
                 {"[\n3]", "not an object", 2},
                 {"[{\"gpus\": [1]}]", "number or text", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_workload w;
        stk_err err = {0};
        assert_int_equal(stk_workload_load(file(cases[i].text), arena, &w, &err), STK_E_USAGE);
        if (strstr(err.text, cases[i].says) == NULL || err.line != cases[i].line) {
            fail_msg("case %zu: '%s' at line %d", i, err.text, err.line);
        }
    }
    stk_cluster cluster = {0};
    stk_err err = {0};
    assert_true(stk_cluster_add(&cluster, "4*8xH1000", arena, &err) < 0);
    assert_int_equal(stk_cluster_add(&cluster, "0*8xH100", arena, &err), STK_E_LIMIT);
    assert_int_equal(stk_cluster_add(&cluster, "200000*8xH100", arena, &err), STK_E_LIMIT);
    stk_cluster_done(&cluster);
}

static int begin(void **state)
{
    (void)state;
    arena = stk_arena_new(0);
    return mkdtemp(folder) == NULL || arena == NULL ? -1 : 0;
}

static int end(void **state)
{
    (void)state;
    char command[200];
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    stk_arena_free(arena);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_whole_machines_stay_whole),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_no_starving),
        cmocka_unit_test(test_class_and_host),
        cmocka_unit_test(test_json_is_the_same),
        cmocka_unit_test(test_made_up),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
