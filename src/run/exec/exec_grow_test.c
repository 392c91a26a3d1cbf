/* Graphs that grow, with the fake backend and simulated time: what is added when, what is durable
 * together, and what a resume picks up. */
#include "run/exec/exec_testing.h"

/* A foreach over three items with a join. The steps are Python steps, so the engine reads their
 * result files. */
static const char three[] =
    "{\"start\":{\"python\":\"m:f\",\"next\":\"work\",\"foreach\":\"todo\",\"outputs\":[\"todo\"]},"
    "\"work\":{\"python\":\"m:f\",\"next\":\"gather\",\"outputs\":[\"part\"]},"
    "\"gather\":{\"python\":\"m:f\",\"join\":true,\"next\":\"end\"},"
    "\"end\":{\"python\":\"m:f\"}}";
enum { N_TASKS = 6 };

static void leave(fixture *f, const stk_job *job, const char *result)
{
    const char *path = stk_arena_printf(f->arena, "%s/result.json", job->dir);
    OK(stk_file_write(path, result, strlen(result), 0644, &f->err));
}

static void three_does(fixture *f, const stk_job *job)
{
    const char *out = strcmp(job->step, "start") == 0  ? "\"todo\":{\"value\":[10,20,30]}"
                      : strcmp(job->step, "work") == 0 ? "\"part\":{\"value\":1}"
                                                       : "";
    leave(f, job,
          stk_arena_printf(f->arena, "{\"stoker\":1,\"status\":\"ok\",\"outputs\":{%s}}", out));
}

static void forget(fixture *f)
{
    stk_exec_close(f->exec);
    stk_plan_free(f->plan);
    stk_spec_free(f->spec);
    f->exec = NULL;
    f->plan = NULL;
    f->spec = NULL;
    stk_file_close(&f->lock_fd);
}

static void test_three(void **state)
{
    fixture *f = *state;
    f->does = three_does;
    assert_int_equal(run(f, three), STK_RUN_SUCCEEDED);
    started(f, "start1 work1 work1 work1 gather1 end1");
    assert_int_equal(committed(f, STK_EV_TASK_ADDED, UINT32_MAX, 0).n, 4); /* one for the three */
    assert_int_equal(committed(f, STK_EV_TASK_ADDED, 1, 0).n, 1);
    assert_int_equal(committed(f, STK_EV_TASK_SUCCEEDED, UINT32_MAX, 0).n, N_TASKS);
    for (int id = 2; id <= 4; id++) {
        const char *folder = stk_store_run_folder(f->store, f->run, f->arena);
        assert_true(
            stk_file_exists(stk_arena_printf(f->arena, "%s/work/%d/1/task.json", folder, id)));
    }
}

/* Whichever commit finds the disk full, the first and the resuming engine together start each task
 * once: a task that ended without being on record has left its result, and its successors are added
 * once. */
static void test_full_disk(void **state)
{
    fixture *f = *state;
    static const char *const points[] = {"store.commit.before", "store.commit.mid"};
    bool broke = true;
    f->does = three_does;
    for (int n = 1; broke; n++) {
        for (int i = 0; i < 2; i++) {
            char rule[64];
            stk_run_status status = STK_RUN_FAILED;
            f->n_starts = 0;
            (void)snprintf(rule, sizeof rule, "%s:%d+:enospc", points[i], n);
            arm(rule);
            int rc = open_exec(f, three, false);
            rc = rc < 0 ? rc : stk_exec_loop(f->exec, &status, &f->err);
            arm("");
            broke = rc < 0;
            if (broke) {
                assert_int_equal(rc, STK_E_FULL);
                stk_exec_close(f->exec);
                f->exec = NULL;
                OK(go_on(f));
                OK(stk_exec_loop(f->exec, &status, &f->err));
            }
            assert_int_equal(status, STK_RUN_SUCCEEDED);
            assert_false(f->finished_early);
            assert_int_equal(f->n_starts, N_TASKS);
            assert_int_equal(committed(f, STK_EV_TASK_ADDED, UINT32_MAX, 0).n, 4);
            assert_int_equal(committed(f, STK_EV_TASK_SUCCEEDED, UINT32_MAX, 0).n, N_TASKS);
            forget(f);
        }
        assert_true(n < 60);
    }
}

/* A scheduler that is built from the log has the tasks and states that the engine had. */
static void test_refold(void **state)
{
    fixture *f = *state;
    f->does = three_does;
    f->mode = STK_MODE_STOP;
    f->n_failures = 1;
    static const char steps[] =
        "{\"start\":{\"python\":\"m:f\",\"next\":[\"work\",\"bad\"]},"
        "\"work\":{\"python\":\"m:f\",\"outputs\":[\"part\"],\"next\":\"gather\"},"
        "\"bad\":{\"run\":\"true\",\"next\":\"gather\"},\"gather\":{\"run\":\"true\",\"join\":true}"
        "}";
    assert_int_equal(run(f, steps), STK_RUN_FAILED);
    stk_sched *sched = NULL;
    OK(stk_exec_refold(f->store, f->run, f->plan, &f->capacity, NULL, &sched, &f->err));
    stk_sched_counts counts;
    stk_sched_count(sched, &counts);
    assert_int_equal(counts.n_tasks, 3);
    assert_int_equal(counts.n[STK_TASK_FAILED], 1);
    assert_int_equal(counts.n[STK_TASK_SUCCEEDED], 2);
    stk_sched_free(sched);
}

/* A result with a next step that the document doesn't have there fails the step before its success
 * is recorded. */
static void wrong_does(fixture *f, const stk_job *job)
{
    leave(f, job,
          "{\"stoker\":1,\"status\":\"ok\",\"outputs\":{\"todo\":{\"value\":[1]}},"
          "\"next\":{\"steps\":[\"end\"],\"n\":1}}");
}

static void test_wrong_next(void **state)
{
    fixture *f = *state;
    f->does = wrong_does;
    assert_int_equal(run(f, three), STK_RUN_FAILED);
    started(f, "start1");
    assert_int_equal(committed(f, STK_EV_TASK_SUCCEEDED, UINT32_MAX, 0).n, 0);
    assert_int_equal(committed(f, STK_EV_TASK_ADDED, UINT32_MAX, 0).n, 1);
    assert_non_null(strstr(stk_exec_error(f->exec), "step 'start' (task 1) failed: "));
    assert_non_null(strstr(stk_exec_error(f->exec), "end"));
}

/* A step may name an output by digest only if a parent has it under the same name. */
static void stranger_does(fixture *f, const stk_job *job)
{
    if (strcmp(job->step, "work") != 0) {
        three_does(f, job);
        return;
    }
    leave(f, job,
          "{\"stoker\":1,\"status\":\"ok\",\"outputs\":{\"part\":{\"value\":1},\"todo\":{"
          "\"artifact\":"
          "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}}}");
}

static void test_artifact_of_nobody(void **state)
{
    fixture *f = *state;
    f->does = stranger_does;
    assert_int_equal(run(f, three), STK_RUN_FAILED);
    assert_non_null(strstr(stk_exec_error(f->exec), "'todo' names artifact 0123456789ab"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_three), TEST(test_full_disk), TEST(test_refold),
                                       TEST(test_wrong_next), TEST(test_artifact_of_nobody)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
