/* Pure: what was seen of a task's end → one true sentence. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/units.h"
#include "runner/runner.h"

const char *stk_runner_signal_name(int signal)
{
    /* sigabbrev_np needs glibc 2.32; the numbers differ between architectures, the names don't. */
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
        {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
        {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
        {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGSYS, "SIGSYS"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == signal) {
            return names[i].name;
        }
    }
    return "a real-time or unnamed signal";
}

static void say_oom(const stk_ending *e, stk_outcome *ret)
{
    char used[32];
    char limit[32];
    (void)stk_units_format_memory(e->memory_bytes, limit, sizeof limit);
    ret->failure = STK_FAIL_HOST_OOM;
    if (e->used_bytes >= 0) {
        (void)snprintf(ret->text, sizeof ret->text, "host OOM: used %s of its %s",
                       stk_units_format_memory(e->used_bytes, used, sizeof used), limit);
    } else {
        (void)snprintf(ret->text, sizeof ret->text, "host OOM: used all of its %s", limit);
    }
}

static void say_signal(const stk_ending *e, stk_outcome *ret)
{
    const char *name = stk_runner_signal_name(ret->signal);
    if (ret->signal == SIGKILL && e->lost_server) {
        ret->failure = STK_FAIL_LOST;
        (void)snprintf(ret->text, sizeof ret->text,
                       "its fork server ended and took it along (killed by signal %d (%s))",
                       ret->signal, name);
        return;
    }
    ret->failure = STK_FAIL_SIGNAL;
    (void)snprintf(ret->text, sizeof ret->text, "killed by signal %d (%s)%s", ret->signal, name,
                   ret->signal == SIGKILL
                       ? ", not by Stoker: another program or the kernel's OOM killer"
                       : "");
}

void stk_runner_classify(const stk_ending *ending, stk_outcome *ret_outcome)
{
    const stk_ending *e = ending;
    stk_outcome *ret = ret_outcome;
    bool known = e->wait_status != -1;
    ret->ok = false;
    ret->failure = STK_FAIL_NONE;
    ret->text[0] = '\0';
    ret->exit_status = known && WIFEXITED(e->wait_status) ? WEXITSTATUS(e->wait_status) : -1;
    ret->signal = known && WIFSIGNALED(e->wait_status) ? WTERMSIG(e->wait_status) : 0;
    if (e->stopped_for == STK_FAIL_HOST_OOM) {
        say_oom(e, ret);
    } else if (e->stopped_for == STK_FAIL_TIMEOUT) {
        char after[32];
        ret->failure = STK_FAIL_TIMEOUT;
        (void)stk_units_format_duration(e->timeout_ms, after, sizeof after);
        char *round = strstr(after, " 0 s"); /* "10 m", not "10 m 0 s" */
        if (round != NULL) {
            *round = '\0';
        }
        (void)snprintf(ret->text, sizeof ret->text, "timeout: still running after %s", after);
    } else if (e->stopped_for != STK_FAIL_NONE) {
        ret->failure = e->stopped_for;
        (void)snprintf(ret->text, sizeof ret->text, "%s",
                       e->stopped_for == STK_FAIL_CANCELLED ? "cancelled"
                                                            : stk_failure_word(e->stopped_for));
    } else if (!known) {
        ret->failure = STK_FAIL_LOST;
        (void)snprintf(ret->text, sizeof ret->text,
                       e->lost_server ? "gone without a trace, with its fork server"
                                      : "gone without a trace: nobody saw how it ended");
    } else if (ret->exit_status == 0) {
        ret->ok = true; /* a helper of it that the kernel killed did not matter to it */
    } else if (e->cgroup_oom) {
        say_oom(e, ret);
    } else if (ret->signal != 0) {
        say_signal(e, ret);
    } else {
        ret->failure = STK_FAIL_EXIT;
        (void)snprintf(ret->text, sizeof ret->text, "exit status %d", ret->exit_status);
    }
}
