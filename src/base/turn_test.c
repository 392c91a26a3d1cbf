/* Counts the bytes that the first thread reads or writes in one turn; other threads don't count. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "base/turn.h"

static void *count_much(void *arg)
{
    (void)arg;
    STK_TURN(2 * STK_TURN_BYTES);
    return NULL;
}

static void by_another_thread(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, count_much, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void before_the_first_look(void)
{
    STK_TURN(2 * STK_TURN_BYTES);
}

static void just_so_much(void)
{
    for (int i = 0; i < 3; i++) {
        stk_turn_begin();
        STK_TURN(STK_TURN_BYTES);
    }
}

static void more(void)
{
    stk_turn_begin();
    STK_TURN(STK_TURN_BYTES);
    STK_TURN(1);
}

static int status_of(void (*what)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("STOKER_FAILPOINTS", "turn.long:1:exit", 1);
        stk_failpoint_reload();
        what();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void begin_and_count(void)
{
    stk_turn_begin();
    by_another_thread();
}

static void test_turns(void **state)
{
    (void)state;
    assert_int_equal(status_of(before_the_first_look), 0);
    assert_int_equal(status_of(just_so_much), 0);
    assert_int_equal(status_of(begin_and_count), 0);
    assert_int_equal(status_of(more), 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
