/* Tests of manifests that are only possible in C: texts that aren't UTF-8, and running out of
 * memory. The other tests are in tests/kubernetes/test_manifest.py. */
#include <string.h>

#include "away/kubernetes/kube_manifest.h"
#include "base/testing.h"

static const stk_driver_config config = {
    .stack = "s", .run = "r1", .carry = "image", .runner_image = "runner:1"};

static int make(const char *const *env, const char *text, bool as_set, size_t limit, stk_err *err)
{
    static const char *const argv[] = {"sh", "-c", "echo $HOME", NULL};
    static const char *const secret[] = {"TOKEN=x", NULL};
    static const char *const folders[] = {"/work", NULL};
    const stk_remote_job job = {.id = 1,
                                .attempt = 1,
                                .run = "r1",
                                .pipeline = "p",
                                .step = "train",
                                .name = "s-1",
                                .argv = argv,
                                .env = env,
                                .secret = secret,
                                .folders = folders,
                                .nodes = 2};
    STK_ARENA_AUTO arena = stk_arena_new(limit);
    stk_json options, docs;
    STK_TRY(stk_kube_options(text, "step 'train'", arena, &options, err));
    STK_TRY(stk_kube_make(&config, &job, &options, "ns", as_set, arena, &docs, err));
    assert_int_equal(stk_json_n_items(&docs), as_set ? 2 : 3);
    return 0;
}

static void test_odd_text(void **state)
{
    (void)state;
    const char *const env[] = {"A=\xff", NULL};
    stk_err err = {0};
    assert_int_equal(make(env, "{}", false, 0, &err), STK_E_SPEC);
    assert_non_null(strstr(err.text, "step 'train'"));
    assert_non_null(strstr(err.text, "isn't valid UTF-8"));
    assert_int_equal(make(NULL, "{\"labels\": {\"a\": \"x\\u0000\"}}", false, 0, &err), STK_E_SPEC);
    assert_int_equal(make(NULL, "{\"labels\": {\"a\": \"x\\\\u0000\"}}", false, 0, &err), 0);
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    const char *const env[] = {"A=1", "B=$2", NULL};
    const char *const options =
        "{\"gpu\": 2, \"gpu_type\": \"A100\", \"labels\": \"a=b\", \"env\": [{\"name\": \"C\"}],"
        " \"affinity\": {\"node_affinity\": {}}, \"use_tmpfs\": true, \"secrets\": \"s\","
        " \"additional_pod_spec_args\": {\"affinity\": {\"x\": {}}, \"volumes\": []}}";
    int failed[] = {0, 0};
    for (size_t set = 0; set < 2; set++) {
        stk_err err = {0};
        size_t limit = 512;
        for (int rc = -1; rc < 0; limit += 96) {
            rc = make(env, options, set, limit, &err);
            failed[set] += rc < 0;
            assert_true(limit < 1 << 20);
        }
        assert_true(failed[set] > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_text),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
