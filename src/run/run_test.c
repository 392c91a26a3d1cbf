/* Whole runs through run.h without a command line, as an embedding program does them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "run/run.h"
#include "run/run_containers.h"
#include "sys/file.h"

typedef struct seen {
    stk_run *run;
    uint32_t n_opened, n_succeeded, n_started, n_stores;
    char first[64]; /* the task that ended first */
    char id[64];
} seen;

static void on_store(void *arg, const char *path, const char *beyond)
{
    seen *s = arg;
    assert_string_equal(path, getenv("STOKER_STORE"));
    assert_null(beyond);
    s->n_stores++;
}

static int on_open(void *arg, stk_run *run, stk_err *err)
{
    seen *s = arg;
    s->run = run;
    s->n_opened++;
    assert_non_null(stk_run_store(run));
    return strcmp(stk_view_get_run(stk_run_view(run))->pipeline, "refused") == 0
               ? stk_err_set(err, STK_E_USAGE, "not today")
               : 0;
}

static void on_begin(void *arg, stk_run *run)
{
    seen *s = arg;
    (void)snprintf(s->id, sizeof s->id, "%s", stk_run_id(run));
}

static void on_event(void *arg, const stk_event_row *row)
{
    seen *s = arg;
    if (row->kind == STK_EV_TASK_SUCCEEDED) {
        const stk_view_task *task = stk_view_get_task(stk_run_view(s->run), (uint32_t)row->task);
        assert_int_equal(task->state, STK_TASK_SUCCEEDED); /* the view is already up to date */
        if (s->n_succeeded++ == 0) {
            (void)snprintf(s->first, sizeof s->first, "%s", task->name);
        }
    }
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    seen *s = arg;
    (void)task;
    assert_true(pid > 1);
    s->n_started++;
}

static int drive(const char *text, const stk_run_options *options, seen *s, stk_run_status *status,
                 stk_err *err)
{
    stk_spec *spec = NULL;
    stk_run *run = NULL;
    *s = (seen){0};
    assert_int_equal(stk_run_parse_document(text, strlen(text), NULL, &spec, err), 0);
    assert_int_equal(stk_spec_check_params(spec, err), 0);
    const stk_run_config config = {.spec = spec,
                                   .options = options,
                                   .calls = {.on_store = on_store,
                                             .on_open = on_open,
                                             .on_begin = on_begin,
                                             .on_event = on_event,
                                             .on_started = on_started,
                                             .arg = s},
                                   .signal_fd = -1,
                                   .hangup_fd = -1};
    int rc = stk_run_open(&config, &run, err);
    assert_non_null(run);
    if (rc == 0) {
        rc = stk_run_loop(run, status, err);
    }
    if (rc == 0) {
        rc = stk_run_sync(run, err);
    }
    if (rc == 0) {
        assert_int_equal(stk_run_view_check(run, err), 0);
        assert_true(stk_run_now_ms(run) >= stk_view_get_run(stk_run_view(run))->started_ms);
    }
    stk_run_close(run);
    stk_spec_free(spec);
    return rc;
}

static stk_run_options plain(void)
{
    return (stk_run_options){
        .policy = STK_POLICY_FIT, .mode = -1, .use_cache = true, .server_fd = -1, .code_fd = -1};
}

#define TWO                                                                                        \
    "stoker: 1\nname: two\nsteps:\n"                                                               \
    "  first: {run: 'echo 1 > $STOKER_OUTPUT/n', outputs: [n]}\n"                                  \
    "  second: {run: 'grep -q 1 $STOKER_INPUT_n && %s', inputs: {n: {from: first.n}}}\n"

static void test_a_run(void **state)
{
    char text[400];
    (void)state;
    (void)snprintf(text, sizeof text, TWO, "true");
    stk_run_options options = plain();
    stk_run_status status = STK_RUN_FAILED;
    stk_err err = {0};
    seen s;
    assert_int_equal(drive(text, &options, &s, &status, &err), 0);
    assert_int_equal(status, STK_RUN_SUCCEEDED);
    assert_int_equal(s.n_stores + s.n_opened, 2);
    assert_int_equal(s.n_succeeded, 2);
    assert_int_equal(s.n_started, 2);
    assert_string_equal(s.first, "first");
    assert_int_equal(drive(text, &options, &s, &status, &err), 0); /* again, from the cache */
    assert_int_equal(status, STK_RUN_SUCCEEDED);
    assert_int_equal(s.n_started, 0);
}

static void test_taken_up(void **state)
{
    char text[400], id[64];
    (void)state;
    (void)snprintf(text, sizeof text, TWO, "test -e ready");
    stk_run_options options = plain();
    stk_run_status status = STK_RUN_SUCCEEDED;
    stk_err err = {0};
    seen s;
    options.use_cache = false;
    assert_int_equal(drive(text, &options, &s, &status, &err), 0);
    assert_int_equal(status, STK_RUN_FAILED);
    assert_int_equal(s.n_succeeded, 1);
    (void)snprintf(id, sizeof id, "%s", s.id);
    options.resume = id;
    assert_int_equal(stk_file_write("ready", "", 0, 0644, &err), 0);
    assert_int_equal(drive(text, &options, &s, &status, &err), 0);
    assert_int_equal(status, STK_RUN_SUCCEEDED);
    assert_string_equal(s.id, id);
    assert_string_equal(s.first, "second"); /* the finished step doesn't run again */
}

/* A run that the caller refuses never begins and leaves no record. */
static void test_refused(void **state)
{
    static const char text[] = "stoker: 1\nname: refused\nsteps:\n  only: {run: 'true'}\n";
    (void)state;
    stk_run_options options = plain();
    stk_run_status status = STK_RUN_SUCCEEDED;
    stk_err err = {0};
    seen s;
    assert_int_equal(drive(text, &options, &s, &status, &err), STK_E_USAGE);
    assert_string_equal(err.text, "not today");
    assert_string_equal(s.id, "");
    assert_string_equal(err.hint, "");
    assert_int_equal(s.n_started, 0);
}

static void test_no_such_stack(void **state)
{
    static const char text[] = "stoker: 1\nname: nowhere\nsteps:\n  only: {run: 'true'}\n";
    (void)state;
    stk_run_options options = plain();
    stk_run_status status = STK_RUN_SUCCEEDED;
    stk_err err = {0};
    seen s;
    options.with = "nowhere";
    assert_true(drive(text, &options, &s, &status, &err) < 0);
    assert_non_null(strstr(err.text, "nowhere"));
    assert_int_equal(s.n_stores + s.n_opened, 0); /* no store was opened */
}

/* The option `user` sets a container's user; an environment variable of that name doesn't. */
static void test_users(void **state)
{
    (void)state;
    const struct {
        const char *docker, *options;
        bool has;
    } cases[] = {{NULL, NULL, false},
                 {"{\"user\":\"u\"}", NULL, true},
                 {"{\"user\":null}", "{\"run_args\":{\"user\":\"u\"}}", true},
                 {"{\"user\":null}", "{\"user\":null}", false},
                 {"{\"environment\":{\"user\":\"u\"}}", "{}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const stk_place place = {
            .kind = STK_PLACE_DOCKER, .docker = cases[i].docker, .options = cases[i].options};
        assert_int_equal(stk_run_has_user(&place), cases[i].has);
    }
}

static char folder[] = "/tmp/stk-run-XXXXXX";

static int begin(void **state)
{
    char store[64];
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) < 0) {
        return -1;
    }
    (void)snprintf(store, sizeof store, "%s/.stoker", folder);
    return setenv("STOKER_STORE", store, 1);
}

static int end(void **state)
{
    (void)state;
    return chdir("/") < 0 ? -1 : stk_file_remove_tree(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run),   cmocka_unit_test(test_taken_up),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_no_such_stack),
        cmocka_unit_test(test_users),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
