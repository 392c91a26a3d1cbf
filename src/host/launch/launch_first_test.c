/* Which of a gang's ranks is named as the one that failed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/launch/launch.h"
#include "sys/file.h"

/* A Python step's ranks, played by a shell: "fell" is what line.py writes, result.json what
 * ranks.py writes. $1 is the attempt's folder. */
#define FELL(rank) "printf '\\00" rank "\\000\\377\\000' >/proc/self/fd/${STOKER_RANK_LINE%%,*};"
#define RESULT(error)                                                                              \
    "echo "                                                                                        \
    "'{\"stoker\":1,\"status\":\"failed\",\"error\":{\"class\":\"exception\",\"type\":\"" error    \
    "\",\"message\":\"told to\"}}' >\"$STOKER_RANK_DIR/result.json\";"
#define TRACEBACK                                                                                  \
    "printf 'Traceback (most recent call last):\\n  File \"a.py\", line 1\\nConnectionError: it "  \
    "was "                                                                                         \
    "this\\n' >&2;"
#define TELL ": >\"$1/told\";"
#define LISTEN "while [ ! -e \"$1/told\" ]; do sleep 0.01; done;"
#define RANKS(zero, one) "if [ $RANK = 0 ]; then " zero " else " one " fi"

typedef struct case_of {
    const char *script;
    const char *text;   /* pattern */
    const char *result; /* it has this word */
    const char *summary;
} case_of;

static const case_of cases[] = {
    /* rank 0 tells first, but is ended before it has written why */
    {RANKS(FELL("0") TELL "exec sleep 600;", LISTEN FELL("1") RESULT("ValueError") "exit 1;"),
     "rank 1 failed: exit status 1…; 1 other rank was ended because of it", "ValueError",
     "\"first\":1,"},
    /* the same, but rank 1 dies without a word to the launcher */
    {RANKS(FELL("0") TELL "exec sleep 600;", LISTEN RESULT("KeyError") "exit 1;"),
     "rank 1 failed: exit status 1…", "KeyError", "\"first\":1,"},
    /* rank 0 tells first and ends last, but has written why */
    {RANKS("trap '' TERM;" FELL("0") RESULT("OSError") TELL "while [ ! -e \"$1/rank-0/ended\" ]; "
                                                            "do sleep 0.01; done; exit 1;",
           LISTEN FELL("1") RESULT("ValueError") "exit 1;"),
     "rank 0 failed: exit status 1…", "OSError", "\"first\":0,"},
    /* rank 0 tells first, and is ended before it has written more than its traceback */
    {RANKS(FELL("0") TRACEBACK TELL "exec sleep 600;",
           LISTEN FELL("1") RESULT("KeyError") "exit 1;"),
     "rank 0 failed: killed by signal 15 (SIGTERM) (ConnectionError: it was this); rank 1 failed "
     "too…",
     "ConnectionError", "\"first\":0,"},
};

static void run_case(const case_of *one)
{
    char dir[] = "/tmp/stoker-first-XXXXXX";
    assert_non_null(mkdtemp(dir));
    const char *argv[] = {"/bin/sh", "-c", one->script, "sh", dir, NULL};
    STK_FD_AUTO null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    stk_launch_config config = {.argv = argv,
                                .ranks = 2,
                                .grace_ms = 600000,
                                .dir = dir,
                                .run_id = "first",
                                .is_task = true,
                                .is_python = true,
                                .server_fd = -1,
                                .out_fd = null,
                                .err_fd = null};
    STK_BUF_AUTO summary = STK_BUF_INIT(1 << 20);
    stk_launch_end end;
    stk_err err = {0};
    assert_int_equal(stk_launch_run(&config, &summary, &end, &err), 0);
    assert_names(end.text, one->text);
    assert_int_equal(end.failure, STK_FAIL_EXIT);
    assert_non_null(strstr(summary.data, one->summary));
    STK_TEXT_AUTO path = stk_file_join(dir, "result.json");
    STK_TEXT_AUTO result = NULL;
    size_t len = 0;
    assert_int_equal(stk_file_read(path, 1 << 20, &result, &len, &err), 0);
    assert_non_null(strstr(result, one->result));
    assert_int_equal(stk_file_remove_tree(dir, &err), 0);
}

static void test_the_cause_is_a_rank_that_failed_by_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_case(&cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cause_is_a_rank_that_failed_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
