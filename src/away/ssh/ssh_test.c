/* The order, and the far end: jobs with a keeper of their own, asked as a connection would. A shell
 * script stands for the program: it keeps as the real one does, and its agent does what the test's
 * order says. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/remote/remote_order.h"
#include "away/ssh/ssh_private.h"
#include "base/testing.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { WAIT_MS = 20000 };

typedef struct bench {
    char folder[64];
    stk_arena *arena;
    stk_err err;
} bench;

/* The agent's key is its script. */
static void write_program(const bench *b)
{
    char path[PATH_MAX], self[PATH_MAX], text[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n] = '\0';
    (void)snprintf(path, sizeof path, "%s/program", b->folder);
    (void)snprintf(text, sizeof text,
                   "#!/bin/sh\n[ $1 = keep ] && exec %s keep \"$2\" \"$3\"\n"
                   "in=${STOKER_AGENT_GATE%%:*} out=${STOKER_AGENT_GATE#*:}\n"
                   "eval \"$3\"\n",
                   self);
    assert_int_equal(stk_file_write(path, text, strlen(text), 0755, NULL), 0);
    assert_int_equal(setenv("STOKER_SSH_PROGRAM", path, 1), 0);
}

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    (void)snprintf(b->folder, sizeof b->folder, "/tmp/stk-ssh-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    b->arena = stk_arena_new(0);
    assert_int_equal(setenv("XDG_STATE_HOME", b->folder, 1), 0);
    write_program(b);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    stk_arena_free(b->arena);
    assert_int_equal(stk_file_remove_tree(b->folder, NULL), 0);
    free(b);
    return 0;
}

static int ask(bench *b, const char *op, const char *head, stk_json *ret, stk_buf *body)
{
    STK_BUF_AUTO answer = STK_BUF_INIT(1 << 20);
    const stk_json *asked = stk_json_read(b->arena, stk_arena_dup(b->arena, head));
    const stk_link_op *o = stk_ssh_far_ops;
    while (strcmp(o->name, op) != 0) {
        o++;
    }
    assert_non_null(asked);
    stk_json_open(&answer, NULL, '{');
    int rc = o->handle(asked, NULL, 0, &answer, body, &b->err);
    stk_json_close(&answer, '}');
    if (rc == 0) {
        const stk_json *read = stk_json_read(b->arena, stk_buf_keep(&answer, b->arena));
        assert_non_null(read);
        *ret = *read;
    }
    return rc;
}

static void start(bench *b, const char *name, const char *script, const char *secrets)
{
    STK_BUF_AUTO head = STK_BUF_INIT(1 << 16);
    stk_json answer;
    stk_json_open(&head, NULL, '{');
    stk_json_put_text(&head, "name", name);
    stk_json_open(&head, "order", '{');
    stk_json_put_text(&head, "key", script);
    stk_json_put_text(&head, "store", stk_arena_printf(b->arena, "%s/store", b->folder));
    stk_json_put_raw(&head, "env", "[\"COLOUR=green\"]");
    stk_json_close(&head, '}');
    stk_json_put_raw(&head, "secrets", secrets);
    stk_json_close(&head, '}');
    if (ask(b, "ssh.start", head.data, &answer, NULL) < 0) {
        fail_msg("%s", b->err.text);
    }
}

/* Looks until the job is in this state; returns what was said of it. */
static stk_json look(bench *b, const char *name, const char *state, stk_buf *log)
{
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + WAIT_MS;
    while (stk_clock_mono_ms(&stk_clock_real) < until) {
        stk_json answer;
        const char *head =
            stk_arena_printf(b->arena,
                             "{\"jobs\":[{\"name\":\"%s\",\"from\":%zu,\"state\":\"live\"}],"
                             "\"wait_ms\":1000}",
                             name, log->len);
        assert_int_equal(ask(b, "ssh.look", head, &answer, log), 0);
        const stk_json *job = stk_json_item(stk_json_get(&answer, "jobs"), 0);
        if (strcmp(stk_json_get_text(job, "state"), state) == 0 &&
            stk_json_get_whole(job, "log_bytes", -1) <= (int64_t)log->len) {
            return *job;
        }
    }
    fail_msg("job %s isn't %s", name, state);
    return (stk_json){0};
}

static stk_json tell(bench *b, const char *op, const char *name, int64_t grace_ms)
{
    stk_json answer;
    const char *head = stk_arena_printf(b->arena, "{\"name\":\"%s\",\"grace_ms\":%lld}", name,
                                        (long long)grace_ms);
    if (ask(b, op, head, &answer, NULL) < 0) {
        fail_msg("%s: %s", op, b->err.text);
    }
    return answer;
}

/* What it prints and how it ends are there, its secrets aren't in any file, and starting it again
 * does nothing. */
static void test_whole_life(void **state)
{
    bench *b = *state;
    STK_BUF_AUTO log = STK_BUF_INIT(1 << 20);
    char path[PATH_MAX], folder[PATH_MAX];
    const char *script = "echo held >&$out; echo $COLOUR ${#TOKEN}; echo once >> $2/times; exit 7";
    start(b, "s-a-1", script, "[\"TOKEN=hush-hush\"]");
    start(b, "s-a-1", script, "[\"TOKEN=hush-hush\"]");
    stk_json job = look(b, "s-a-1", "ended", &log);
    start(b, "s-a-1", script, "[\"TOKEN=hush-hush\"]");
    assert_int_equal(stk_json_get_whole(&job, "exit_status", -1), 7);
    assert_true(stk_json_is_true(stk_json_get(&job, "held")));
    assert_string_equal(log.data, "green 9\n");
    STK_TEXT_AUTO times = NULL;
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/store/times", b->folder);
    assert_int_equal(stk_file_read(path, 1000, &times, &len, NULL), 0);
    assert_string_equal(times, "once\n");
    assert_int_equal(stk_ssh_job_folder("s-a-1", folder, NULL), 0);
    const char *grep = stk_arena_printf(b->arena, "grep -rq hush %s", folder);
    assert_int_not_equal(system(grep), 0);
    (void)tell(b, "ssh.forget", "s-a-1", 0);
    assert_false(stk_file_exists(folder));
    (void)look(b, "s-a-1", "none", &log);
}

/* SIGTERM first; what doesn't end is killed with all its children. */
static void test_stop(void **state)
{
    bench *b = *state;
    STK_BUF_AUTO log = STK_BUF_INIT(1 << 20);
    stk_json job;
    start(b, "s-polite-1", "trap 'echo told; exit 3' TERM; echo on; while :; do sleep 0.1; done",
          "[]");
    while (log.len == 0) {
        (void)look(b, "s-polite-1", "live", &log);
    }
    (void)tell(b, "ssh.stop", "s-polite-1", 60000);
    job = look(b, "s-polite-1", "ended", &log);
    assert_int_equal(stk_json_get_whole(&job, "exit_status", -1), 3);
    assert_non_null(strstr(log.data, "told"));
    stk_buf_clear(&log);
    start(b, "s-deaf-1", "trap '' TERM; setsid sh -c 'echo $$; exec sleep 600' & wait", "[]");
    while (log.len == 0) {
        (void)look(b, "s-deaf-1", "live", &log);
    }
    pid_t child = (pid_t)strtol(log.data, NULL, 10);
    (void)tell(b, "ssh.stop", "s-deaf-1", 100);
    job = look(b, "s-deaf-1", "ended", &log);
    assert_int_equal(stk_json_get_whole(&job, "signal", 0), SIGKILL);
    assert_int_equal(kill(child, 0), -1);
}

/* A stop that comes before the start wins, whenever the start arrives. */
static void test_stopped_before(void **state)
{
    bench *b = *state;
    STK_BUF_AUTO log = STK_BUF_INIT(1 << 20);
    (void)tell(b, "ssh.stop", "s-early-1", 0);
    start(b, "s-early-1", "echo ran", "[]");
    stk_json job = look(b, "s-early-1", "ended", &log);
    assert_int_equal(stk_json_get_whole(&job, "signal", 0), SIGTERM);
    assert_int_equal(log.len, 0);
}

/* The gate of a gang opens when all have their devices; who has none says why. */
static void test_gate(void **state)
{
    bench *b = *state;
    STK_BUF_AUTO log = STK_BUF_INIT(1 << 20);
    start(b, "s-gang-1", "echo held >&$out; read word <&$in; echo heard $word", "[]");
    for (stk_json job = {0}; !stk_json_is_true(stk_json_get(&job, "held"));) {
        job = look(b, "s-gang-1", "live", &log);
    }
    assert_int_equal(log.len, 0);
    (void)tell(b, "ssh.go", "s-gang-1", 0);
    (void)look(b, "s-gang-1", "ended", &log);
    assert_string_equal(log.data, "heard go\n");
    stk_buf_clear(&log);
    start(b, "s-busy-1", "echo busy GPU 0 by run R >&$out; exit 76", "[]");
    stk_json job = look(b, "s-busy-1", "ended", &log);
    assert_string_equal(stk_json_get_text(&job, "text"), "GPU 0 by run R");
    assert_int_equal(stk_json_get_whole(&job, "exit_status", -1), STK_AGENT_BUSY);
}

/* The lock says that the keeper is gone: the job is lost, and nothing of it is left. */
static void test_keeper_killed(void **state)
{
    bench *b = *state;
    STK_BUF_AUTO log = STK_BUF_INIT(1 << 20);
    char folder[PATH_MAX], path[PATH_MAX];
    STK_TEXT_AUTO begun = NULL;
    size_t len = 0;
    start(b, "s-orphan-1", "echo $$; exec sleep 600", "[]");
    while (log.len == 0) {
        (void)look(b, "s-orphan-1", "live", &log);
    }
    pid_t agent = (pid_t)strtol(log.data, NULL, 10);
    assert_int_equal(stk_ssh_job_folder("s-orphan-1", folder, NULL), 0);
    stk_ssh_job_path(folder, "begun", path);
    assert_int_equal(stk_file_read(path, 1000, &begun, &len, NULL), 0);
    pid_t keeper = (pid_t)strtol(strstr(begun, "\"pid\":") + 6, NULL, 10);
    assert_int_equal(kill(keeper, SIGKILL), 0);
    stk_json job = look(b, "s-orphan-1", "lost", &log);
    assert_non_null(strstr(stk_json_get_text(&job, "text"), "ended from outside"));
    for (int i = 0; i < 1000 && kill(agent, 0) == 0; i++) { /* the kernel ends it with its keeper */
        (void)waitpid(-1, NULL, WNOHANG);
        (void)usleep(10000);
    }
    assert_int_equal(kill(agent, 0), -1);
    start(b, "s-orphan-1", "echo again", "[]"); /* never twice */
    (void)look(b, "s-orphan-1", "lost", &log);
}

static void test_names(void **state)
{
    static const char *const bad[] = {"", "../x", ".x", "a/b", "A", "a b", "s-a\n"};
    bench *b = *state;
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(stk_ssh_job_folder(bad[i], folder, &b->err), STK_E_PROTOCOL);
    }
}

static void test_store_paths(void **state)
{
    static const char *const cases[][2] = {{"/shared/x", "/shared/x"},
                                           {"ssh://gpu1/data/x", "/data/x"},
                                           {"ssh://ann@gpu1:22/~/x", "~/x"},
                                           {"s3://b/p", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = stk_ssh_store_path(cases[i][0]);
        assert_true(stk_text_same(path, cases[i][1]));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_life, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stopped_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_gate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keeper_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_store_paths, set_up, tear_down),
    };
    if (argc == 4 && strcmp(argv[1], "keep") == 0) {
        return stk_ssh_keep(argv[2], (int)strtol(argv[3], NULL, 10));
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that we see what keepers leave */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
