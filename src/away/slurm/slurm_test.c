/* What Slurm says, in our words. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/testing.h"

static void test_lines(void **state)
{
    stk_slurm_seen s = {0};
    char good[] = "12|N/A|PENDING|Resources|2026-11-24T10:00:00||s-1-a-0-1";
    char child[] = "12|3|RUNNING|None|2026-11-24T10:00:00|n1|s-1-a-array-0";
    char short_one[] = "12|PENDING|Resources";
    char words[] = "slurm_load_jobs error: Unable|to|contact|slurm|controller|now";
    char text[256];
    (void)state;
    assert_true(stk_slurm_seen_read(good, &s));
    assert_string_equal(s.id, "12");
    assert_string_equal(s.nodes, "");
    assert_string_equal(s.name, "s-1-a-0-1");
    stk_slurm_reason(&s, text, sizeof text);
    assert_non_null(strstr(text, "(Resources)"));
    assert_non_null(strstr(text, "2026-11-24T10:00:00"));
    assert_true(stk_slurm_seen_read(child, &s));
    assert_string_equal(s.id, "12_3");
    assert_string_equal(s.state, "RUNNING");
    assert_string_equal(s.nodes, "n1");
    assert_false(stk_slurm_seen_read(short_one, &s));
    assert_false(stk_slurm_seen_read(words, &s));
}

static void test_array_max(void **state)
{
    static const char config[] = "MailProg                = /bin/mail\n"
                                 "MaxArraySize            = 2001\n"
                                 "SchedulerParameters     = bf_interval=1,max_array_tasks=50\n";
    (void)state;
    assert_int_equal(stk_slurm_array_max(config), 50);
    assert_int_equal(stk_slurm_array_max("MaxArraySize            = 2001\n"), 2001);
    assert_int_equal(stk_slurm_array_max("MaxArraySize            = 0\n"), 0);
    assert_int_equal(stk_slurm_array_max(""), 1001);
}

static void test_most_gpus(void **state)
{
    static const char lines[] = "main*|(null)\n"
                                "main*|gpu:a100:4(S:0-1),shm:1\n"
                                "main*|gpu:a100:2(IDX:0,1),gpu:l4:3\n"
                                "big|gpu:a100:8\n"
                                "any*|gpu:6\n";
    (void)state;
    assert_int_equal(stk_slurm_most_gpus(lines, "a100", true), 4);
    assert_int_equal(stk_slurm_most_gpus(lines, "A100", false), 8);
    assert_int_equal(stk_slurm_most_gpus(lines, "l4", true), 3);
    assert_int_equal(stk_slurm_most_gpus(lines, "a10", false), 0);
    assert_int_equal(stk_slurm_most_gpus(lines, NULL, true), 6);
    assert_int_equal(stk_slurm_most_gpus("main*|shm:9,gpumem:7\n", NULL, true), 0);
    assert_int_equal(stk_slurm_most_gpus("", NULL, false), 0);
}

/* What a pilot of 8 CPUs asks for. */
static void test_flight(void **state)
{
    static const struct row {
        int64_t cpu_milli, gpu_count, gpu_bytes;
        uint32_t wanted, most;
        uint32_t gpus;
        int64_t times_memory;
    } rows[] = {
        {1000, -1, -1, 0, 0, 0, 8},    /* no devices */
        {2000, 1, -1, 100, 8, 4, 4},   /* as its CPUs hold */
        {1000, 1, -1, 100, 4, 4, 4},   /* as a node has */
        {1000, 1, -1, 3, 4, 3, 3},     /* as there are tasks */
        {1000, 2, -1, 100, 3, 2, 1},   /* the third is of no use */
        {1000, 2, -1, 100, 1, 2, 1},   /* as one task needs, at least */
        {1000, 1, 1 << 30, 0, 4, 1, 8} /* shares */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_slurm_options options;
        stk_resources asked = STK_RESOURCES_UNSET;
        asked.cpu_milli = r->cpu_milli;
        asked.memory_bytes = 1000;
        asked.base.gpu_count = r->gpu_count;
        asked.base.gpu_memory_bytes = r->gpu_bytes;
        const stk_remote_job job = {.step = "a", .resources = &asked, .nodes = 1};
        assert_int_equal(stk_slurm_options_read("a", "{\"pilot\": 8}", "{}", arena, &options, NULL),
                         0);
        const stk_slurm_flight f = stk_slurm_flight_of(&job, &options, r->wanted, r->most);
        assert_int_equal(f.cpu_milli, 8000);
        assert_int_equal(f.gpus, r->gpus);
        assert_int_equal(f.memory_bytes, r->times_memory * 1000);
    }
}

/* Each known word, and those that begin as one, has a sentence of its own. */
static void test_reasons(void **state)
{
    static const char *const words[] = {
        "Priority",    "QOSMaxGRESPerUser",   "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
        "QOSMaxOther", "AssocGrpGRESMinutes", "Licenses"};
    char text[256], other[256];
    stk_slurm_seen s = {.state = "PENDING", .start = "N/A", .reason = "NobodyKnows"};
    (void)state;
    stk_slurm_reason(&s, other, sizeof other);
    assert_null(strstr(other, "N/A"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        s.reason = words[i];
        stk_slurm_reason(&s, text, sizeof text);
        assert_non_null(strstr(text, words[i]));
        assert_int_not_equal(strncmp(text, other, 12), 0);
    }
    s.state = "CONFIGURING";
    s.reason = "None";
    stk_slurm_reason(&s, text, sizeof text);
    assert_non_null(strstr(text, "powered"));
}

static void test_other_waits(void **state)
{
    char told[256], later[256], other[256], bare[256];
    stk_slurm_seen s = {.state = "PENDING", .start = "2026-11-24T10:00:00", .reason = "Priority"};
    (void)state;
    stk_slurm_reason(&s, told, sizeof told);
    s.start = "2026-11-24T10:00:30";
    stk_slurm_reason(&s, later, sizeof later);
    s.start = "N/A";
    stk_slurm_reason(&s, bare, sizeof bare);
    s.reason = "Resources";
    stk_slurm_reason(&s, other, sizeof other);
    assert_true(stk_slurm_is_other_wait("", told));
    assert_false(stk_slurm_is_other_wait(told, told));
    assert_false(stk_slurm_is_other_wait(told, later));
    assert_false(stk_slurm_is_other_wait(told, bare));
    assert_true(stk_slurm_is_other_wait(bare, told));
    assert_true(stk_slurm_is_other_wait(told, other));
}

static void test_phases(void **state)
{
    (void)state;
    assert_int_equal(stk_slurm_phase_of("PENDING"), SLURM_WAITS);
    assert_int_equal(stk_slurm_phase_of("REQUEUE_HOLD"), SLURM_WAITS);
    assert_int_equal(stk_slurm_phase_of("SUSPENDED"), SLURM_RUNS);
    assert_int_equal(stk_slurm_phase_of("COMPLETING"), SLURM_ENDS);
    assert_int_equal(stk_slurm_phase_of("TIMEOUT"), SLURM_OVER);
}

static void test_ends(void **state)
{
    static const struct {
        const char *state, *code;
        stk_remote_state end;
        stk_failure failure;
        int status, signal;
        bool oom;
    } rows[] = {
        {"COMPLETED", NULL, STK_REMOTE_ENDED, STK_FAIL_NONE, 0, 0, false},
        {"FAILED", "3:0", STK_REMOTE_ENDED, STK_FAIL_NONE, 3, 0, false},
        {"FAILED", "0:9", STK_REMOTE_ENDED, STK_FAIL_NONE, 0, 9, false},
        {"FAILED", NULL, STK_REMOTE_ENDED, STK_FAIL_NONE, -1, 0, false},
        {"TIMEOUT", "0:15", STK_REMOTE_FAILED, STK_FAIL_TIMEOUT, -1, 0, false},
        {"OUT_OF_MEMORY", "0:125", STK_REMOTE_FAILED, STK_FAIL_HOST_OOM, -1, 0, true},
        {"PREEMPTED", "0:15", STK_REMOTE_FAILED, STK_FAIL_PREEMPTED, -1, 0, false},
        {"NODE_FAIL", "1:0", STK_REMOTE_FAILED, STK_FAIL_LOST, -1, 0, false},
        {"CANCELLED by 1000", "0:15", STK_REMOTE_FAILED, STK_FAIL_CANCELLED, -1, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stk_remote_report r = {0};
        stk_slurm_end("7", rows[i].state, rows[i].code, &r);
        assert_int_equal(r.state, rows[i].end);
        assert_int_equal(r.failure, rows[i].failure);
        assert_int_equal(r.exit_status, rows[i].status);
        assert_int_equal(r.signal, rows[i].signal);
        assert_int_equal(r.oom, rows[i].oom);
    }
}

static void test_fields(void **state)
{
    char text[20];
    static const char job[] =
        "JobId=5 JobName=a DerivedExitCode=1:0 ExitCode=3:0 RunTime=00:00:01\n";
    (void)state;
    assert_true(stk_slurm_field(job, "ExitCode", text, sizeof text));
    assert_string_equal(text, "3:0");
    assert_true(stk_slurm_field(job, "JobId", text, sizeof text));
    assert_string_equal(text, "5");
    assert_true(stk_slurm_field(job, "RunTime", text, sizeof text));
    assert_string_equal(text, "00:00:01");
    assert_false(stk_slurm_field(job, "State", text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),     cmocka_unit_test(test_array_max),
        cmocka_unit_test(test_most_gpus), cmocka_unit_test(test_flight),
        cmocka_unit_test(test_reasons),   cmocka_unit_test(test_other_waits),
        cmocka_unit_test(test_phases),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
