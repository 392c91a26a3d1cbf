/* Pure functions: turn the facts about a task's end into one sentence. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/wait.h>

#include "base/text.h"
#include "base/units.h"
#include "host/runner/runner.h"

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

enum { LINE_BYTES = 240, SIGBUS_STATUS = 128 + SIGBUS /* the exit status of a shell */ };

/* --- symptoms --- */

static const struct {
    stk_failure failure;
    const char *phrase;
} symptoms[] = {
#define X(name, phrase) {STK_FAIL_##name, phrase},
#include "tbl/symptoms.def"
#undef X
};

const char *stk_runner_way_out(stk_failure failure)
{
    switch (failure) {
    case STK_FAIL_HOST_OOM:
        return "; ask for more memory, or set on_oom to try again with more";
    case STK_FAIL_DEVICE_OOM:
        return "; make the batch smaller, ask for a larger device or gpu_memory, or set on_oom";
    case STK_FAIL_GPU_SHARE:
        return "; raise gpu_memory, or set on_oom to try again with more";
    case STK_FAIL_OTHER_DEVICE:
        return "; use the devices that the step's variables name, or ask for more (gpu_count)";
    case STK_FAIL_SHM_FULL:
        return "; make it larger (mount -o remount,size=8G /dev/shm; in a container shm_size: 8g) "
               "or use fewer DataLoader workers";
    case STK_FAIL_DISK_FULL:
        return "; free space there, or write elsewhere (`stoker store gc` removes what no run "
               "refers to)";
    case STK_FAIL_ECC:
        return "; reset or repair the device (stoker doctor)";
    case STK_FAIL_DEVICE_LOST:
        return "; for its state see stoker gpus and the kernel's log";
    case STK_FAIL_DRIVER_GONE:
        return "; was the driver updated? Load the new one or restart the host (stoker doctor)";
    default:
        return "";
    }
}

/* The beginning of the line that contains `at`, and its length. */
static const char *line_of(const char *text, const char *at, size_t *ret_len)
{
    const char *begin = at;
    while (begin > text && begin[-1] != '\n' && begin[-1] != '\r') {
        begin--;
    }
    begin += strspn(begin, " \t");
    size_t n = strcspn(begin, "\r\n");
    while (n > 0 && strchr(" \t.;", begin[n - 1]) != NULL) { /* our sentence continues after it */
        n--;
    }
    *ret_len = n;
    return begin;
}

stk_failure stk_runner_symptom(const char *text, bool with_devices, const char **ret_line,
                               size_t *ret_len)
{
    const char *last = NULL;
    stk_failure found = STK_FAIL_NONE;
    for (size_t i = 0; text != NULL && i < sizeof symptoms / sizeof symptoms[0]; i++) {
        bool is_hosts =
            symptoms[i].failure == STK_FAIL_SHM_FULL || symptoms[i].failure == STK_FAIL_DISK_FULL;
        if (!is_hosts && !with_devices) {
            continue;
        }
        for (const char *at = strcasestr(text, symptoms[i].phrase); at != NULL;
             at = strcasestr(at + 1, symptoms[i].phrase)) {
            if (last == NULL || at > last) {
                last = at;
                found = symptoms[i].failure;
            }
        }
    }
    if (last != NULL && ret_line != NULL) {
        *ret_line = line_of(text, last, ret_len);
    }
    return found;
}

/* --- sentences --- */

static void add_words(stk_outcome *ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_words(stk_outcome *ret, const char *fmt, ...)
{
    size_t len = strlen(ret->text);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(ret->text + len, sizeof ret->text - len, fmt, args);
    va_end(args);
}

static void say_oom(const stk_ending *e, stk_outcome *ret)
{
    char used[32], limit[32];
    (void)stk_units_format_memory(e->memory_bytes, limit, sizeof limit);
    ret->failure = STK_FAIL_HOST_OOM;
    if (e->used_bytes >= 0) {
        add_words(ret, "host OOM: used %s of its %s",
                  stk_units_format_memory(e->used_bytes, used, sizeof used), limit);
    } else {
        add_words(ret, "host OOM: used all of its %s", limit);
    }
    add_words(ret, "%s", stk_runner_way_out(STK_FAIL_HOST_OOM));
}

static void say_share(const stk_ending *e, stk_outcome *ret)
{
    char used[32], share[32];
    add_words(ret, "used %s of its %s of %s memory (%s)%s",
              stk_units_format_memory(e->device_bytes, used, sizeof used),
              stk_units_format_memory(e->share_bytes, share, sizeof share),
              stk_text_or(e->noun, "GPU"), stk_text_or(e->device, "unnamed"),
              stk_runner_way_out(STK_FAIL_GPU_SHARE));
}

static const char *round_duration(int64_t ms, char *text, int size)
{
    (void)stk_units_format_duration(ms, text, (size_t)size);
    char *round = strstr(text, " 0 s"); /* "10 m", not "10 m 0 s" */
    if (round != NULL) {
        *round = '\0';
    }
    return text;
}

/* The innermost call by the first of faulthandler's stacks, or by the last one, which is the main
 * thread's; NULL: there is none. */
static const char *find_call(const stk_ending *e, bool of_main, size_t *ret_len)
{
    static const char head[] = "(most recent call first):\n  File ";
    const char *call = NULL;
    for (const char *at = e->stderr_tail; at != NULL && (at = strstr(at, head)) != NULL; at++) {
        if (call != NULL && !of_main) {
            break;
        }
        call = line_of(e->stderr_tail, at + sizeof head - 1, ret_len);
    }
    return call;
}

static void say_timeout(const stk_ending *e, stk_outcome *ret)
{
    char after[32], before[32];
    add_words(ret, "timeout: still running after %s", round_duration(e->timeout_ms, after, 32));
    if (e->notice_ms > 0) {
        add_words(ret, ", warned %s before", round_duration(e->notice_ms, before, 32));
    }
    size_t len = 0;
    const char *call = find_call(e, true, &len);
    if (call != NULL) {
        add_words(ret, ", at %.*s", (int)MIN(len, LINE_BYTES), call);
    }
}

/* The task was warned that its time was nearly up, and did not succeed. */
static void say_noticed(const stk_ending *e, stk_outcome *ret)
{
    char limit[32], before[32];
    ret->failure = STK_FAIL_TIMEOUT;
    add_words(ret, "timeout: warned %s before its %s were over, it ended (",
              round_duration(e->notice_ms, before, 32), round_duration(e->timeout_ms, limit, 32));
    if (ret->signal != 0) {
        add_words(ret, "%s)", stk_runner_signal_name(ret->signal));
    } else {
        add_words(ret, "exit status %d)", ret->exit_status);
    }
}

static void say_stopped(const stk_ending *e, stk_outcome *ret)
{
    ret->failure = e->stopped_for;
    switch (e->stopped_for) {
    case STK_FAIL_HOST_OOM:
        say_oom(e, ret);
        break;
    case STK_FAIL_TIMEOUT:
        say_timeout(e, ret);
        break;
    case STK_FAIL_GPU_SHARE:
        say_share(e, ret);
        break;
    case STK_FAIL_OTHER_DEVICE:
        add_words(ret, "used %s, which it was not granted (policy strict)%s",
                  stk_text_or(e->device, "a device"), stk_runner_way_out(e->stopped_for));
        break;
    default:
        add_words(ret, "%s", stk_failure_word(e->stopped_for));
    }
}

static void say_signal(const stk_ending *e, stk_outcome *ret)
{
    const char *name = stk_runner_signal_name(ret->signal);
    if (ret->signal == SIGKILL && e->lost_server) {
        ret->failure = STK_FAIL_LOST;
        add_words(ret, "its fork server ended, and the task with it (killed by signal %d (%s))",
                  ret->signal, name);
        return;
    }
    ret->failure = STK_FAIL_SIGNAL;
    add_words(ret, "killed by signal %d (%s)", ret->signal, name);
    if (e->ended_by != NULL) {
        add_words(ret, ": %s", e->ended_by);
    } else if (ret->signal == SIGKILL) {
        add_words(ret, ", not by Stoker: another program or the kernel's OOM killer");
    }
}

/* --- causes behind an exit status or a signal --- */

static stk_failure xid_class(int32_t xid)
{
    static const int32_t memory[] = {48, 64, 94, 95, 140}; /* uncorrectable or unrepairable */
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        if (memory[i] == xid) {
            return STK_FAIL_ECC;
        }
    }
    return xid == 79 ? STK_FAIL_DEVICE_LOST : STK_FAIL_XID;
}

void stk_runner_blame_xid(int32_t xid, const char *text, const char *device, stk_outcome *outcome)
{
    bool ours = outcome->failure == STK_FAIL_TIMEOUT || outcome->failure == STK_FAIL_CANCELLED ||
                outcome->failure == STK_FAIL_HOST_OOM || outcome->failure == STK_FAIL_GPU_SHARE ||
                outcome->failure == STK_FAIL_OTHER_DEVICE;
    if (xid == 0 || outcome->ok || ours) {
        return;
    }
    char before[sizeof outcome->text];
    (void)snprintf(before, sizeof before, "%s", outcome->text);
    outcome->failure = xid_class(xid);
    outcome->text[0] = '\0';
    if (text == NULL) {
        add_words(outcome, "Xid %d", xid);
    } else if (strncmp(text, "Xid", 3) == 0) {
        add_words(outcome, "%s", text);
    } else {
        add_words(outcome, "Xid %d: %s", xid, text);
    }
    add_words(outcome, " on %s", stk_text_or(device, "its device"));
    if (before[0] != '\0') {
        add_words(outcome, "; %s", before);
    }
    add_words(outcome, "%s", stk_runner_way_out(outcome->failure));
}

static void say_shm(const stk_ending *e, stk_outcome *ret)
{
    char left[32], all[32];
    ret->failure = STK_FAIL_SHM_FULL;
    if (e->shm_bytes > 0) {
        add_words(ret, ": /dev/shm was full (%s left of %s)",
                  stk_units_format_memory(e->shm_free_bytes, left, sizeof left),
                  stk_units_format_memory(e->shm_bytes, all, sizeof all));
    }
}

/* A write to a full /dev/shm raises SIGBUS. The space may be free again when we look, so the lowest
 * free space during the run counts. */
static bool is_shm_full(const stk_ending *e, const stk_outcome *ret)
{
    bool bus = ret->signal == SIGBUS || ret->exit_status == SIGBUS_STATUS;
    return bus && e->shm_bytes > 0 && e->shm_free_bytes >= 0 &&
           e->shm_free_bytes <= e->shm_bytes / 20;
}

/* Adds where compiled code of a Python process crashed. */
static void say_crash(const stk_ending *e, stk_outcome *ret)
{
    size_t len = 0;
    const char *line = find_call(e, false, &len);
    if (ret->signal == 0 || ret->signal == SIGKILL || line == NULL) {
        return;
    }
    add_words(ret,
              " in compiled code, called at %.*s; its stderr has the whole stack: update the "
              "library that crashed, or avoid this call",
              (int)MIN(len, LINE_BYTES), line);
}

static void find_cause(const stk_ending *e, stk_outcome *ret)
{
    const char *tail = stk_text_or(e->stderr_tail, ""), *line = NULL;
    size_t len = 0;
    stk_failure symptom = stk_runner_symptom(tail, e->n_devices > 0, &line, &len);
    const char *full = strcasestr(tail, "out of memory");
    const char *readonly = strcasestr(tail, "read-only file system");
    if (symptom == STK_FAIL_NONE && e->device_full && full != NULL) {
        symptom = STK_FAIL_DEVICE_OOM;
        line = line_of(tail, full, &len);
    }
    if (is_shm_full(e, ret)) {
        say_shm(e, ret);
    } else if (e->device_trouble != NULL) {
        bool driver = strcasestr(e->device_trouble, "driver") != NULL &&
                      strcasestr(e->device_trouble, "lost") == NULL;
        ret->failure = driver ? STK_FAIL_DRIVER_GONE : STK_FAIL_DEVICE_LOST;
        add_words(ret, ": %s", e->device_trouble);
    } else if (symptom == STK_FAIL_NONE && e->full != NULL) { /* it couldn't even report that */
        ret->failure = STK_FAIL_DISK_FULL;
        add_words(ret, ": there is no room left in %s (%s)", e->full, strerror(e->full_errno));
    } else if (symptom != STK_FAIL_NONE) {
        ret->failure = symptom;
        add_words(ret, ": %.*s", (int)MIN(len, LINE_BYTES), line);
    } else if (e->contained && readonly != NULL) {
        line = line_of(tail, readonly, &len);
        add_words(
            ret, ": %.*s; in a container the project is read-only: write to $STOKER_OUTPUT or /tmp",
            (int)MIN(len, LINE_BYTES), line);
        return;
    } else {
        say_crash(e, ret);
        return;
    }
    add_words(ret, "%s", stk_runner_way_out(ret->failure));
}

void stk_runner_classify(const stk_ending *ending, stk_outcome *ret_outcome)
{
    const stk_ending *e = ending;
    stk_outcome *ret = ret_outcome;
    bool known = e->wait_status != -1;
    ret->ok = false;
    ret->failure = STK_FAIL_NONE;
    ret->text[0] = '\0';
    ret->exit_status = -1;
    ret->signal = 0;
    if (known && WIFEXITED(e->wait_status)) {
        ret->exit_status = WEXITSTATUS(e->wait_status);
    } else if (known && WIFSIGNALED(e->wait_status)) {
        ret->signal = WTERMSIG(e->wait_status);
    }
    if (e->stopped_for != STK_FAIL_NONE) {
        say_stopped(e, ret);
    } else if (!known) {
        ret->failure = STK_FAIL_LOST;
        add_words(ret, e->lost_server
                           ? "lost together with its fork server: how it ended is unknown"
                           : "lost: how it ended is unknown");
    } else if (ret->exit_status == 0) {
        ret->ok = true; /* the kernel killed only a helper process */
    } else if (e->cgroup_oom) {
        say_oom(e, ret);
    } else if (e->notice_ms > 0) {
        say_noticed(e, ret);
    } else if (ret->signal != 0) {
        say_signal(e, ret);
        if (ret->failure == STK_FAIL_SIGNAL) {
            find_cause(e, ret);
        }
    } else {
        ret->failure = STK_FAIL_EXIT;
        add_words(ret, "exit status %d", ret->exit_status);
        if (e->ended_by != NULL) {
            add_words(ret, "; %s", e->ended_by);
        }
        find_cause(e, ret);
    }
    stk_runner_blame_xid(e->xid, e->xid_text, e->device, ret);
}
