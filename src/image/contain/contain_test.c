#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/testing.h"
#include "image/contain/contain.h"
#include "image/contain/contain_private.h"
#include "sys/file.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/stk-contain-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)unsetenv("DOCKER_HOST");
    (void)unsetenv("CONTAINER_HOST");
    (void)unsetenv("DOCKER_CONTEXT");
    (void)setenv("DOCKER_CONFIG", folder, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

static void put(const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0755, NULL), 0);
    *slash = '/';
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, NULL), 0);
}

/* Where nothing listens, the error names the socket that was tried, and what named it. */
static void looked_at(const char *socket, const char *words)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_engine engine;
    stk_err err = {0};
    assert_int_equal(stk_engine_find(socket, arena, &engine, &err), STK_E_NOT_FOUND);
    if (strstr(err.text, words) == NULL) {
        fail_msg("'%s' isn't in: %s", words, err.text);
    }
}

static void test_where_it_is_looked_for(void **state)
{
    (void)state;
    char path[256];
    char hex[STK_DIGEST_HEX + 1];
    (void)setenv("XDG_RUNTIME_DIR", folder, 1);
    looked_at("/tmp/nobody.sock", "/tmp/nobody.sock (as named): isn't there");
    put("config.json", "{\"currentContext\": \"lab\"}");
    stk_digest_of("lab", 3, hex);
    (void)snprintf(path, sizeof path, "contexts/meta/%s/meta.json", hex);
    put(path, "{\"Endpoints\": {\"docker\": {\"Host\": \"unix:///tmp/lab.sock\"}}}");
    looked_at(NULL, "/tmp/lab.sock (docker context 'lab')");
    (void)setenv("CONTAINER_HOST", "unix:///tmp/pod.sock", 1);
    looked_at(NULL, "/tmp/pod.sock (CONTAINER_HOST)");
    (void)setenv("DOCKER_HOST", "tcp://10.0.0.1:2375", 1);
    looked_at(NULL, "tcp://10.0.0.1:2375 (DOCKER_HOST): it must be a Unix socket");
    (void)unsetenv("DOCKER_HOST");
    (void)unsetenv("CONTAINER_HOST");
}

static void test_default_sockets(void **state)
{
    (void)state;
    char words[128];
    (void)setenv("XDG_RUNTIME_DIR", folder, 1);
    if (access("/var/run/docker.sock", F_OK) == 0 || access("/run/podman/podman.sock", F_OK) == 0) {
        skip(); /* a container engine runs on this machine */
    }
    (void)snprintf(words, sizeof words, "%s/podman/podman.sock (a default socket): isn't there",
                   folder);
    looked_at(NULL, words);
    looked_at(NULL, "/run/podman/podman.sock");
}

static int read_task(const char *text, contain_spec *spec, stk_arena *arena, stk_err *err)
{
    char path[256];
    put("task.json", text);
    (void)snprintf(path, sizeof path, "%s/task.json", folder);
    return stk_contain_read(path, arena, spec, err);
}

static void test_a_task(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    contain_spec s;
    stk_err err = {0};
    (void)setenv("STK_TEST_SECRET", "sesame", 1);
    (void)unsetenv("STK_TEST_UNSET");
    assert_int_equal(
        read_task("{\"run\":\"r1\",\"step\":\"train\",\"task\":0,\"attempt\":2,\"container\":{"
                  "\"image\":\"sha256:1\",\"name\":\"img\",\"argv\":[\"a\",\"b\"],"
                  "\"env\":{\"K\":\"v=1\"},\"pass\":[\"STK_TEST_SECRET\",\"STK_TEST_UNSET\"],"
                  "\"mounts\":[{\"from\":\"/a\",\"to\":\"/b\",\"write\":true},{\"from\":\"/c\"}],"
                  "\"memory_bytes\":1000,\"gpus\":[\"GPU-1\"]}}",
                  &s, arena, &err),
        0);
    assert_string_equal(s.name, "stoker-r1-train-2");
    assert_string_equal(s.dir, folder);
    assert_int_equal(s.n_env, 2);
    assert_string_equal(s.env[0], "K=v=1");
    assert_string_equal(s.env[1], "STK_TEST_SECRET=sesame");
    assert_true(s.mounts[0].write && !s.mounts[1].write);
    assert_string_equal(s.mounts[1].to, "/c");
    assert_int_equal(s.memory_bytes, 1000);
    assert_int_equal(s.cpu_milli, -1);
    assert_string_equal(s.network, "host");
}

static void test_wrong_tasks(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "`container` is missing"},
        {"{\"container\":{\"argv\":[\"a\"]}}", "container.image must be"},
        {"{\"container\":{\"image\":\"x\"}}", "container.argv must be"},
        {"{\"container\":{\"image\":\"x\",\"argv\":[1]}}",
         "container.argv must be a list of strings"},
        {"{\"container\":{\"image\":\"x\",\"argv\":[\"a\"],\"network\":\"wlan\"}}",
         "container.network must be host, bridge or none"},
        {"{\"container\":{\"image\":\"x\",\"argv\":[\"a\"],\"mounts\":[{\"from\":\"b\"}]}}",
         "container.mounts must be"},
        {"{\"container\":{\"image\":\"x\",\"argv\":[\"a\"],\"memory_bytes\":0}}",
         "container.memory_bytes must be a number above 0"},
        {"{\"container\":{\"image\":\"x\",\"argv\":[\"a\"],\"env\":{\"K\":1}}}",
         "container.env must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        contain_spec s;
        stk_err err = {0};
        assert_int_equal(read_task(cases[i][0], &s, arena, &err), STK_E_SPEC);
        if (strstr(err.text, cases[i][1]) == NULL) {
            fail_msg("'%s' isn't in: %s", cases[i][1], err.text);
        }
    }
}

static void test_memory_groups(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
        bool oom, known;
    } cases[] = {
        {"v1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", true, true},
        {"v1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", false, true},
        {"v2/memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n", true, true},
        {"v2/memory.events", "low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n", false, true},
        {"none/other", "", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[256];
        bool known = false;
        put(cases[i].file, cases[i].text);
        (void)snprintf(dir, sizeof dir, "%s/%.*s", folder, (int)strcspn(cases[i].file, "/"),
                       cases[i].file);
        assert_int_equal(stk_contain_oom(dir, &known), cases[i].oom);
        assert_int_equal(known, cases[i].known);
        assert_int_equal(stk_contain_peak(dir), -1);
    }
    char dir[256];
    (void)snprintf(dir, sizeof dir, "%s/v1", folder);
    put("v1/memory.max_usage_in_bytes", "12345\n");
    assert_int_equal(stk_contain_peak(dir), 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_where_it_is_looked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_default_sockets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_task, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_tasks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_memory_groups, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
