/* On a host that others use as well: devices are leased before the attempt is claimed, so that an
 * agent that gets none leaves no trace, and the job's limits are ours to enforce. Whoever started
 * us hears of it through two pipes (STOKER_AGENT_GATE, "read:write"):
 *
 *   held\n        to it: the devices are leased
 *   busy TEXT\n   to it: they aren't; TEXT says who holds them
 *   go\n          from it: every node of the gang holds its devices
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/text.h"
#include "host/fit/fit.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"
/* last */
#include "sys/faults.h"

enum { GATE_MS = 120000 }; /* for the other nodes of a gang; then two gangs can't wait in a ring */

/* The step's resources as a document has them; NULL: the machine is the job's alone. */
static const char *shared_resources(void)
{
    return stk_text_if_any(getenv("STOKER_AGENT_SHARED"));
}

static void open_gate(int *ret_in, int *ret_out)
{
    const char *text = stk_text_or(getenv("STOKER_AGENT_GATE"), "");
    *ret_in = *ret_out = -1;
    if (sscanf(text, "%d:%d", ret_in, ret_out) == 2) {
        (void)fcntl(*ret_in, F_SETFD, FD_CLOEXEC);
        (void)fcntl(*ret_out, F_SETFD, FD_CLOEXEC);
        (void)unsetenv("STOKER_AGENT_GATE");
    }
}

static void say_to_gate(int out, const char *word, const char *text)
{
    char line[1000];
    (void)snprintf(line, sizeof line, "%s%.900s", word, text);
    line[strcspn(line, "\n")] = '\0';
    size_t n = strlen(line);
    line[n] = '\n';
    if (out >= 0) {
        (void)stk_file_write_all(out, line, n + 1);
    }
}

/* Until the gate opens. STK_E_CANCELLED: we are told to end. */
static int await_go(agent *a, int in, stk_err *err)
{
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + GATE_MS;
    char word[16];
    for (int64_t now = 0; (now = stk_clock_mono_ms(&stk_clock_real)) < until;) {
        struct pollfd fds[2] = {{.fd = in, .events = POLLIN}, {.fd = a->told_fd, .events = POLLIN}};
        (void)poll(fds, 2, (int)(until - now));
        if (fds[0].revents != 0) {
            return read(in, word, sizeof word) > 0
                       ? 0
                       : stk_err_set(err, STK_E_CANCELLED, "whoever keeps this job is gone");
        }
        if (stk_agent_was_told(a)) {
            return STK_E_CANCELLED;
        }
    }
    return stk_err_set(err, STK_E_BUSY, "the gang's other hosts didn't get their devices");
}

static int lease(agent *a, stk_capacity *ret_capacity, stk_err *err)
{
    const char *label = stk_text_or(getenv("STOKER_AGENT_LABEL"), "a job");
    char host[256] = "this host";
    STK_FIT_AUTO fit = {0};
    (void)gethostname(host, sizeof host - 1);
    STK_TRY(stk_accel_open(getenv("STOKER_ACCEL"), &a->accel, err));
    STK_TRY(stk_fit_capacity(a->accel, host, a->arena, ret_capacity, err));
    STK_TRY(stk_fit_make(ret_capacity, shared_resources(), &fit, err));
    a->limits.memory_bytes = fit.request->memory_bytes;
    if (fit.request->limit_cpu) {
        a->limits.cpu_milli = fit.request->cpu_milli;
    }
    return stk_fit_lease(a->accel, &fit, label, &a->lease, err);
}

/* The CPUs that were chosen for the job: "0,1,5". */
static int read_cpus(agent *a, stk_err *err)
{
    const char *text = stk_text_or(getenv("STOKER_AGENT_CPUS"), "");
    uint32_t *cpus = stk_arena_array(a->arena, strlen(text) + 1, sizeof *cpus);
    STK_TRY(stk_err_if_null(cpus, err));
    for (char *end = NULL; *text != '\0'; text = end + (*end == ',')) {
        cpus[a->limits.n_cpus] = (uint32_t)strtoul(text, &end, 10);
        if (end == text) {
            break;
        }
        a->limits.n_cpus++;
    }
    a->limits.cpus = cpus;
    return 0;
}

/* None of it concerns the step's program. */
static void forget_environment(void)
{
    static const char *const names[] = {"STOKER_AGENT_SHARED", "STOKER_AGENT_LABEL",
                                        "STOKER_AGENT_CPUS", "STOKER_NEST_EMPTY",
                                        "STOKER_NEST_KEEP"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)unsetenv(names[i]);
    }
}

int stk_agent_share_host(agent *a, stk_err *err)
{
    stk_capacity capacity;
    int in = -1, out = -1;
    if (shared_resources() == NULL) {
        return 0;
    }
    a->is_shared = true;
    open_gate(&in, &out);
    STK_TRY(read_cpus(a, err));
    int rc = lease(a, &capacity, err);
    if (rc == 0) {
        say_to_gate(out, "held", "");
        if (a->order.nodes > 1 && in >= 0) {
            rc = await_go(a, in, err);
        }
    }
    if (rc == STK_E_BUSY || rc == STK_E_RESOURCES) {
        say_to_gate(out, "busy ", err->text);
        a->is_busy = true;
    }
    stk_file_close(&in);
    stk_file_close(&out);
    forget_environment();
    return rc;
}
