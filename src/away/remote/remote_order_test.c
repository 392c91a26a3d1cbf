#include <stdio.h>
#include <string.h>

#include "away/remote/remote_order.h"
#include "base/testing.h"

/* --- names --- */

static void check_name(const char *step, uint32_t task, uint32_t attempt, const char *word)
{
    char name[STK_REMOTE_NAME + 1], tail[64];
    stk_remote_name("20261122-010203-abcdef", step, task, attempt, name);
    assert_true(strlen(name) <= STK_REMOTE_NAME);
    assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(name));
    assert_memory_equal(name, "s-", 2);
    assert_int_equal(name[10], '-');
    (void)snprintf(tail, sizeof tail, "%s-%u-%u", word, task, attempt);
    if (strstr(name, "--") == NULL) {
        assert_string_equal(name + 11, tail);
    } else {
        assert_memory_equal(name + 11, word, strlen(word));
    }
}

static void test_names(void **state)
{
    (void)state;
    check_name("train", 0, 1, "train");
    check_name("train", 1999999, 1000, "train");
    check_name("Train_Model.v2", 3, 1, "train-model-v2--");
    check_name("a--b", 3, 1, "a--b--");
    check_name("a-step-whose-name-is-much-longer-than-fits-into-a-job", 4294967295u, 4294967295u,
               "a");
    char longest[129];
    memset(longest, 'x', 128);
    longest[128] = '\0';
    check_name(longest, 0, 1, "xxxxxxxxxxxxxx");
}

static void test_names_differ(void **state)
{
    static const struct {
        const char *run, *step;
        uint32_t task, attempt;
    } all[] = {{"r1", "train", 0, 1},   {"r2", "train", 0, 1},   {"r1", "Train", 0, 1},
               {"r1", "train", 0, 2},   {"r1", "train", 1, 1},   {"r1", "train-0", 1, 1},
               {"r1", "train-1", 1, 1}, {"r1", "tra.in", 0, 1},  {"r1", "tra_in", 0, 1},
               {"r1", "tra-in", 0, 1},  {"r1", "tra--in", 0, 1}, {"r1", "TRAIN", 0, 1}};
    char names[sizeof all / sizeof *all][STK_REMOTE_NAME + 1];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        stk_remote_name(all[i].run, all[i].step, all[i].task, all[i].attempt, names[i]);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(names[i], names[k]);
        }
    }
}

static void test_key(void **state)
{
    (void)state;
    assert_string_equal(stk_remote_key("/p/.stoker", "/p/.stoker/runs/r/train/0/1"),
                        "runs/r/train/0/1");
    assert_null(stk_remote_key("/p/.stoker", "/p/.stoker2/runs/r/train/0/1"));
    assert_null(stk_remote_key("/p/.stoker", "/p/.stoker/runs/r/train/0"));
    assert_null(stk_remote_key("/p/.stoker", "/p/.stoker/tmp/r/train/0/1"));
}

/* --- job.json --- */

static void test_order(void **state)
{
    const stk_remote_link links[] = {{"in/data", "/s/artifacts/ab/cd"}, {"in/l/0", "/x \"y\""}};
    const char *argv[] = {"/bin/sh", "-c", "echo \"$A\"\n", NULL};
    const char *env[] = {"A=b=c", "EMPTY=", "U=ü", NULL};
    const char *pass[] = {"TOKEN", NULL};
    const char *classes[] = {"A100", "H100", NULL};
    stk_remote_order o = {.run = "r",
                          .step = "train",
                          .task = 7,
                          .attempt = 2,
                          .dir = "/s/runs/r/train/7/2",
                          .store = "/s",
                          .argv = argv,
                          .env = env,
                          .pass = pass,
                          .task_json = "{\"stoker\":1,\"inputs\":{}}",
                          .links = links,
                          .n_links = 2,
                          .code_digest = "dd",
                          .code_root = "/p",
                          .timeout_ms = 60000,
                          .grace_ms = 5000,
                          .gang = true,
                          .checkpoints = "/s/runs/r/train/7/checkpoints",
                          .nodes = 2,
                          .threads = 4,
                          .device_vendor = "nvidia",
                          .n_devices = 8,
                          .device_classes = classes};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    stk_remote_order back;
    (void)state;
    assert_int_equal(stk_remote_order_write(&o, &text, &err), 0);
    assert_int_equal(stk_remote_order_read(text.data, text.len, arena, &back, &err), 0);
    assert_string_equal(back.argv[2], argv[2]);
    assert_null(back.argv[3]);
    assert_string_equal(back.env[0], "A=b=c");
    assert_string_equal(back.env[1], "EMPTY=");
    assert_string_equal(back.env[2], "U=ü");
    assert_string_equal(back.pass[0], "TOKEN");
    assert_null(back.cwd);
    assert_string_equal(back.links[1].at, "in/l/0");
    assert_string_equal(back.links[1].target, links[1].target);
    assert_string_equal(back.code_root, "/p");
    assert_string_equal(back.task_json, o.task_json);
    assert_string_equal(back.device_vendor, "nvidia");
    assert_int_equal(back.n_devices, 8);
    assert_string_equal(back.device_classes[1], "H100");
    assert_null(back.device_classes[2]);
    assert_int_equal(back.nodes, 2);
    assert_int_equal(back.timeout_ms, 60000);
    assert_true(back.gang);
    assert_false(back.reads_samples);
    o.device_vendor = NULL; /* any vendor */
    o.device_classes = NULL;
    text.len = 0;
    assert_int_equal(stk_remote_order_write(&o, &text, &err), 0);
    assert_int_equal(stk_remote_order_read(text.data, text.len, arena, &back, &err), 0);
    assert_null(back.device_vendor);
    assert_null(back.device_classes);
    assert_int_equal(back.n_devices, 8);
}

/* Orders that anyone with write access to the share may have written. */
static void test_order_refused(void **state)
{
    static const struct {
        const char *key, *value;
    } members[] = {{"stoker", "1"},
                   {"run", "\"r\""},
                   {"step", "\"s\""},
                   {"store", "\"/s\""},
                   {"dir", "\"/s/runs/r/s/0/1\""},
                   {"argv", "[\"a\"]"},
                   {"nodes", "1"},
                   {"task_json", "{}"}};
    static const struct {
        const char *key, *value, *said; /* said NULL: it is valid */
    } cases[] = {
        {"cwd", "\"/x\"", NULL},
        {"stoker", "2", "has format 2"},
        {"stoker", "\"1\"", "has format 0"},
        {"run", "null", "'run'"},
        {"store", "\"s\"", "'store'"},
        {"dir", "\"/tmp\"", "'dir'"},
        {"dir", "\"/s/runs/../../etc\"", "'dir'"},
        {"argv", "[]", "'argv'"},
        {"argv", "[1]", "'argv'"},
        {"argv", "{\"a\":\"b\"}", "'argv'"},
        {"env", "{\"A\":1}", "'env'"},
        {"env", "[\"A\"]", "'env'"},
        {"pass", "\"A\"", "'pass'"},
        {"links", "{\"in/x\":\"/y\"}", NULL},
        {"links", "{\"../x\":\"/y\"}", "'links'"},
        {"links", "{\"in/../../x\":\"/y\"}", "'links'"},
        {"links", "{\"/etc/x\":\"/y\"}", "'links'"},
        {"links", "{\"out/x\":\"/y\"}", "'links'"},
        {"links", "{\"in/x\":7}", "'links'"},
        {"code", "{\"digest\":\"d\"}", "'code'"},
        {"code", "{\"digest\":\"d\",\"root\":\"../p\"}", "'code'"},
        {"code", "7", "'code'"},
        {"asked_devices", "{\"vendor\":\"nvidia\",\"count\":99999}", "'asked_devices'"},
        {"asked_devices", "{\"count\":1}", "'asked_devices'"},
        {"asked_devices", "{\"vendor\":null,\"count\":1,\"classes\":[]}", "'asked_devices'"},
        {"asked_devices", "{\"vendor\":null,\"count\":1,\"classes\":[7]}", "'asked_devices'"},
        {"checkpoints", "\"/s/../x\"", "'checkpoints'"},
        {"nodes", "0", "'nodes'"},
        {"timeout_ms", "-1", "'timeout_ms'"},
        {"task_json", "[1,2,3]", "'task_json'"},
        {"task_json", "{,", "not valid JSON"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
        stk_err err = {0};
        stk_remote_order back;
        stk_buf_printf(&text, "{\"%s\":%s", cases[i].key, cases[i].value);
        for (size_t k = 0; k < sizeof members / sizeof *members; k++) {
            if (strcmp(members[k].key, cases[i].key) != 0) {
                stk_buf_printf(&text, ",\"%s\":%s", members[k].key, members[k].value);
            }
        }
        stk_buf_char(&text, '}');
        int rc = stk_remote_order_read(text.data, text.len, arena, &back, &err);
        if (cases[i].said == NULL) {
            assert_int_equal(rc, 0);
        } else if (rc == 0 || strstr(err.text, cases[i].said) == NULL) {
            fail_msg("%s: %d %s", text.data, rc, err.text);
        }
    }
}

/* --- end.json --- */

static void test_end(void **state)
{
    const stk_remote_file files[] = {
        {.name = "stdout.log", .data = "hello\n", .size = 6},
        {.name = "rank-1/raw", .data = "\0\1\2\xff", .size = 4},
        {.name = "empty", .data = "", .size = 0},
        {.name = "samples.bin", .key = "runs/r/s/0/1/files/samples.bin", .size = 12345}};
    stk_remote_end end = {.host = "pod-1",
                          .node = 1,
                          .started_ms = 5,
                          .ended_ms = -1,
                          .granted = "{\"cpus\":[]}",
                          .files = files,
                          .n_files = 4};
    end.outcome = (stk_outcome){.failure = STK_FAIL_PREEMPTED,
                                .exit_status = -1,
                                .signal = 15,
                                .wall_ms = 99,
                                .cpu_us = -1,
                                .peak_memory_bytes = 1 << 20,
                                .read_bytes = -1,
                                .write_bytes = 0,
                                .n_devices = 1,
                                .libraries = 0x8000000000000001ull,
                                .has_looked = true};
    (void)snprintf(end.outcome.text, sizeof end.outcome.text, "told \"to\" end");
    end.outcome.devices[0] = (stk_outcome_device){.uuid = "GPU-1",
                                                  .index = 3,
                                                  .busy_percent_mean = 12.5,
                                                  .busy_s = -1,
                                                  .peak_memory_bytes = -1,
                                                  .context = 1};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    stk_remote_end back;
    (void)state;
    assert_int_equal(stk_remote_end_write(&end, &text, &err), 0);
    assert_int_equal(stk_remote_end_read(text.data, text.len, arena, &back, &err), 0);
    assert_int_equal(back.outcome.failure, STK_FAIL_PREEMPTED);
    assert_int_equal(back.outcome.exit_status, -1);
    assert_int_equal(back.outcome.signal, 15);
    assert_int_equal(back.outcome.cpu_us, -1);
    assert_int_equal(back.outcome.write_bytes, 0);
    assert_true(back.outcome.libraries == end.outcome.libraries);
    assert_string_equal(back.outcome.text, "told \"to\" end");
    assert_string_equal(back.outcome.devices[0].uuid, "GPU-1");
    assert_null(back.outcome.devices[0].model);
    assert_true(back.outcome.devices[0].busy_percent_mean > 12.4);
    assert_true(back.outcome.devices[0].busy_s < 0);
    assert_int_equal(back.outcome.devices[0].context, 1);
    assert_int_equal(back.ended_ms, -1);
    assert_int_equal(back.n_files, 4);
    assert_int_equal(back.files[1].size, 4);
    assert_memory_equal(back.files[1].data, files[1].data, 4);
    assert_int_equal(back.files[2].size, 0);
    assert_string_equal(back.files[3].key, files[3].key);
    assert_int_equal(back.files[3].size, 12345);
    assert_string_equal(back.granted, "{\"cpus\":[]}");
}

/* Paths that a pod reports are not trusted. */
static void test_end_paths(void **state)
{
    static const struct {
        const char *name;
        bool is_fine;
    } cases[] = {
        {"a", true},       {"rank-1/b", true},    {"..a", true},        {"../a", false},
        {"/etc/a", false}, {"a/../b", false},     {"a//b", false},      {"", false},
        {"a/..", false},   {".", false},          {"./a", false},       {"task.json", false},
        {"a/", false},     {"x/task.json", true}, {"in/data/a", false}, {"rank-1/in/a", false},
        {"out/a", false},  {"tmp/a", false},      {"in", true},         {"bin/a", true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_err err = {0};
        stk_remote_end back;
        char text[512];
        int n = snprintf(text, sizeof text,
                         "{\"stoker\":1,\"outcome\":{\"ok\":true,\"failure\":\"none\"},\"files\":{"
                         "\"%s\":{\"text\":"
                         "\"\"}}}",
                         cases[i].name);
        int rc = stk_remote_end_read(text, (size_t)n, arena, &back, &err);
        assert_int_equal(rc, cases[i].is_fine ? 0 : STK_E_PROTOCOL);
    }
}

/* --- lists of arrays --- */

static void test_list(void **state)
{
    static const char *const keys[] = {"runs/r1/w \"x/7/1", "runs/r1/w \"x/12/3"};
    static const char *const other[] = {"runs/r1/w/7/1", "runs/r1/v/8/1"};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 16);
    STK_BUF_AUTO wrong = STK_BUF_INIT(1 << 16);
    const char **back = NULL;
    uint32_t n = 0;
    stk_err err = {0};
    (void)state;
    assert_int_equal(stk_remote_list_write(keys, 2, &text, &err), 0);
    assert_string_equal(text.data, "{\"stoker\":1,\"at\":\"runs/r1/w \\\"x\",\"keys\":"
                                   "[\"7/1\",\"12/3\"]}");
    assert_int_equal(stk_remote_list_read(text.data, text.len, arena, &back, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(back[0], keys[0]);
    assert_string_equal(back[1], keys[1]);
    assert_int_equal(stk_remote_list_write(other, 2, &wrong, &err), STK_E_BUG);
    for (size_t i = 0; i < 3; i++) {
        const char *bad = (const char *const[]){"{}", "{\"at\":\"a\",\"keys\":{}}",
                                                "{\"at\":\"a\",\"keys\":[1]}"}[i];
        assert_int_equal(stk_remote_list_read(bad, strlen(bad), arena, &back, &n, &err),
                         STK_E_PROTOCOL);
    }
}

/* How an empty object of the share is read, and documents that aren't JSON objects. */
static void test_no_documents(void **state)
{
    static const char *const texts[] = {NULL, "", "null", "7", "\"a text\"", "[1,2,3,4,5]", "{}"};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t len = texts[i] == NULL ? 0 : strlen(texts[i]);
        stk_remote_order order;
        stk_remote_end end;
        const char **keys = NULL;
        uint32_t n = 0;
        stk_err err = {0};
        assert_true(stk_remote_order_read(texts[i], len, arena, &order, &err) < 0);
        assert_true(stk_remote_end_read(texts[i], len, arena, &end, &err) < 0);
        assert_true(stk_remote_list_read(texts[i], len, arena, &keys, &n, &err) < 0);
        assert_true(err.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_names_differ),
        cmocka_unit_test(test_key),           cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_refused), cmocka_unit_test(test_end),
        cmocka_unit_test(test_end_paths),     cmocka_unit_test(test_list),
        cmocka_unit_test(test_no_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
