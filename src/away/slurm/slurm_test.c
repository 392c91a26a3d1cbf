/* What Slurm says, in our words. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_private.h"
#include "base/testing.h"

static void test_lines(void **state)
{
    stk_slurm_seen s = {0};
    char good[] = "12|PENDING|Resources|2026-11-24T10:00:00||s-1-a-0-1";
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
    assert_false(stk_slurm_seen_read(short_one, &s));
    assert_false(stk_slurm_seen_read(words, &s));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_reasons),
                                       cmocka_unit_test(test_phases), cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_fields)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
