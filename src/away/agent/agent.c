#include "away/agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/failpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

const char *stk_agent_object(agent *a, const char *name)
{
    return stk_arena_printf(a->arena, "%s/%s", a->key, name);
}

void stk_agent_fail(agent *a, stk_failure failure, const char *text)
{
    a->outcome.ok = false;
    a->outcome.failure = failure;
    (void)snprintf(a->outcome.text, sizeof a->outcome.text, "%s", text);
}

static void complain(const stk_err *err)
{
    char text[1400];
    fprintf(stderr, "stoker agent: %s\n", stk_err_format(err, text, (int)sizeof text));
}

static sigset_t held_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

void stk_agent_hold_signals(void)
{
    sigset_t set = held_signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* As PID 1 we have no default actions, and every orphan of the container is ours. */
static int catch_signals(agent *a, stk_err *err)
{
    sigset_t set = held_signals();
    stk_agent_hold_signals();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    a->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->signal_fd < 0 || a->told_fd < 0 || a->stop_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "listening for signals");
    }
    return 0;
}

/* Which of the nodes: whoever started us says it in its own words. */
static uint32_t find_node(void)
{
    static const char *const names[] = {"STOKER_GANG_NODE", "JOB_COMPLETION_INDEX",
                                        "AWS_BATCH_JOB_NODE_INDEX", "SLURM_NODEID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && *text != '\0') {
            return (uint32_t)strtoul(text, NULL, 10);
        }
    }
    return 0;
}

/* Of an array's child; NULL: unknown. */
static const char *find_index(void)
{
    const char *of_batch = getenv("AWS_BATCH_JOB_ARRAY_INDEX");
    return of_batch != NULL ? of_batch : getenv("SLURM_ARRAY_TASK_ID");
}

/* A child of an array is told of the list that says whose attempt each of them is. */
static int find_key(agent *a, stk_err *err)
{
    const char *index = find_index(), *dot = strrchr(a->key, '.');
    const char **keys = NULL;
    uint32_t n = 0;
    STK_BUF_AUTO list = STK_BUF_INIT(AGENT_LIST_BYTES);
    if (dot == NULL || strcmp(dot, ".json") != 0 || strstr(a->key, "/arrays/") == NULL) {
        return 0;
    }
    if (index == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "%s is the list of an array job, but no variable of its engine says "
                           "which of its children this is (AWS_BATCH_JOB_ARRAY_INDEX, "
                           "SLURM_ARRAY_TASK_ID)",
                           a->key);
    }
    STK_TRY(stk_share_get(a->share, a->key, &list, err));
    STK_TRY(stk_remote_list_read(list.data, list.len, a->arena, &keys, &n, err));
    uint32_t i = (uint32_t)strtoul(index, NULL, 10);
    if (i >= n) {
        return stk_err_set(err, STK_E_PROTOCOL, "this is child %u of an array of %u", i, n);
    }
    a->key = keys[i];
    return 0;
}

static int read_order(agent *a, stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    const char *key = stk_agent_object(a, "job.json");
    STK_TRY(stk_share_get(a->share, key, &text, err));
    STK_TRY(stk_remote_order_read(text.data, text.len, a->arena, &a->order, err));
    if (strcmp(stk_remote_key(a->order.store, a->order.dir), a->key) != 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s belongs to another attempt: %s", key,
                           a->order.dir);
    }
    STK_TRY(stk_json_parse(a->order.task_json, strlen(a->order.task_json), "task.json", &limits,
                           a->arena, &a->task, err));
    if (stk_agent_has_refs()) {
        STK_TRY(stk_agent_refs(a, err));
    }
    if (a->order.nodes > 1) {
        a->node = find_node();
        stk_agent_meet();
    }
    if (a->node >= a->order.nodes) {
        return stk_err_set(err, STK_E_PROTOCOL, "this is node %u of a job of %u nodes", a->node,
                           a->order.nodes);
    }
    return 0;
}

/* Of several pods for one attempt (one was thought lost, and wasn't) the first one runs it. A put
 * whose answer was lost finds its own words. */
static int claim(agent *a, stk_err *err)
{
    char text[512], host[256] = "", name[32] = "claim";
    const char *pod = getenv("HOSTNAME");
    STK_BUF_AUTO there = STK_BUF_INIT(64 << 10);
    (void)gethostname(host, sizeof host - 1);
    if (a->node > 0) {
        (void)snprintf(name, sizeof name, "claim-%u", a->node);
    }
    int n = snprintf(text, sizeof text, "pod %s, %lld.%d", stk_text_or(pod, host),
                     (long long)stk_clock_wall_ms(&stk_clock_real), (int)getpid());
    const char *key = stk_agent_object(a, name);
    int rc = stk_share_put(a->share, key, text, (size_t)n, true, err);
    if (rc != STK_E_BUSY) {
        return rc;
    }
    STK_TRY(stk_share_get(a->share, key, &there, err));
    const char *owner = stk_text_or(there.data, ""); /* an object of somebody else's may be empty */
    if (strcmp(owner, text) == 0) {
        return 0;
    }
    return stk_err_set(err, STK_E_BUSY,
                       "%s: this attempt already runs elsewhere (%.*s), so this pod or job ends",
                       key, (int)strcspn(owner, ","), owner);
}

/* The outcome in a few words where Kubernetes looks for them. */
static void tell_container(const agent *a)
{
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    stk_json_open(&text, NULL, '{');
    stk_json_put_int(&text, "stoker", 1);
    stk_json_put_text(&text, "failure", stk_failure_word(a->outcome.failure));
    stk_json_put_int(&text, "exit_status", a->outcome.exit_status);
    stk_json_put_text(&text, "text", a->outcome.text);
    stk_json_close(&text, '}');
    STK_FD_AUTO fd = stk_file_open_regular("/dev/termination-log", O_WRONLY | O_TRUNC, 0);
    if (fd >= 0 && !text.failed) {
        (void)stk_file_write_all(fd, text.data, text.len);
    }
}

bool stk_agent_try_again(agent *a, int64_t *since_ms, const stk_err *why)
{
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    int64_t most = stk_share_patience_ms() / 3 * 2;
    bool is_told = stk_agent_was_told(a);
    struct pollfd fd = {.fd = is_told ? a->stop_fd : a->told_fd, .events = POLLIN};
    char time[32];
    if (!stk_share_may_pass(why) || atomic_load(&a->is_stopped)) {
        return false;
    }
    if (*since_ms == 0) {
        *since_ms = now;
        fprintf(stderr, "stoker agent: %s; retrying for %s\n", why->text,
                stk_units_format_duration(most, time, sizeof time));
    }
    (void)poll(&fd, 1, is_told ? AGENT_AGAIN_MS / 4 : AGENT_AGAIN_MS);
    now = stk_clock_mono_ms(&stk_clock_real);
    if (stk_agent_was_told(a)) {
        if (a->told_ms == 0) {
            a->told_ms = now;
        }
        return now - a->told_ms < AGENT_TOLD_MS && now - *since_ms < most;
    }
    return now - *since_ms < most;
}

/* Others read the share. */
static int hide_in_files(agent *a, stk_err *err)
{
    STK_DIR_AUTO list = {0};
    STK_TRY(stk_mask_in_cards(a->mask, a->order.dir, a->arena, err));
    STK_TRY(stk_dir_read_if(a->order.dir, &list, err));
    for (uint32_t i = 0; i < list.n; i++) {
        const char *name = list.items[i].name;
        const char *result = NULL;
        if (strcmp(name, "result.json") == 0) {
            result = stk_arena_printf(a->arena, "%s/%s", a->order.dir, name);
        } else if (strncmp(name, "rank-", 5) == 0) {
            result = stk_arena_printf(a->arena, "%s/%s/result.json", a->order.dir, name);
        }
        if (result != NULL) {
            stk_mask_in_errors(a->mask, result);
        }
    }
    return 0;
}

static void hide_secrets(agent *a)
{
    stk_err err = {0};
    if (a->mask != NULL && hide_in_files(a, &err) < 0) { /* nothing of it goes to the share */
        a->order.dir = "/nowhere";
        complain(&err);
        stk_agent_fail(a, STK_FAIL_OUTPUT, err.text);
    }
    const char *text = stk_mask_text(a->mask, a->outcome.text, a->arena);
    if (text != a->outcome.text) {
        (void)snprintf(a->outcome.text, sizeof a->outcome.text, "%s", stk_text_or(text, ""));
    }
}

int stk_agent_save_end(agent *a, stk_err *err)
{
    int64_t since_ms = 0;
    hide_secrets(a);
    for (;;) {
        STK_FAILPOINT("agent.save.before");
        int rc = stk_agent_save(a, err);
        if (rc == 0 || !stk_agent_try_again(a, &since_ms, err)) {
            return rc;
        }
    }
}

/* A Python step exits with 0 whether or not its function raised: here people, and the engine's own
 * policies, look at the container's status. */
static bool has_failed_result(const agent *a)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char path[PATH_MAX];
    size_t len = 0;
    stk_json doc;
    (void)snprintf(path, sizeof path, "%s/result.json", a->order.dir);
    return stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) == 0 &&
           stk_json_parse(text, len, path, &limits, arena, &doc, NULL) == 0 &&
           stk_json_is(stk_json_get(&doc, "status"), "failed");
}

static int exit_status(const agent *a)
{
    const stk_outcome *o = &a->outcome;
    if (o->ok) {
        return has_failed_result(a);
    }
    if (o->failure == STK_FAIL_PREEMPTED) {
        return STK_AGENT_PREEMPTED;
    }
    if (o->signal != 0) {
        return 128 + o->signal;
    }
    return MAX(o->exit_status, 1);
}

stk_failure stk_agent_class_of(int code)
{
    if (code == STK_E_RESOURCES) {
        return STK_FAIL_RESOURCES;
    }
    return stk_share_is_at_fault(code) ? STK_FAIL_STORE : STK_FAIL_START; /* may be there later */
}

int stk_agent_claim(agent *a, stk_err *err)
{
    STK_TRY(read_order(a, err));
    STK_TRY(stk_agent_share_host(a, err));
    return claim(a, err);
}

static int look_for_work(agent *a, stk_err *err)
{
    STK_TRY(find_key(a, err));
    return stk_agent_claim(a, err);
}

static int save_outputs(agent *a, stk_err *err)
{
    return stk_agent_outputs(a, &a->class_of_outputs, err);
}

/* Its program has ended. */
static void keep_outputs(agent *a, stk_err *err)
{
    char text[1400];
    int rc = stk_agent_aside(a, AGENT_SHORTLY, save_outputs, err);
    if (rc == 0 || !a->outcome.ok) {
        return;
    }
    if (rc == STK_E_CANCELLED) {
        stk_agent_fail(a, STK_FAIL_PREEMPTED, "stopped before its outputs were saved");
    } else {
        stk_agent_fail(a, a->class_of_outputs, stk_err_format(err, text, (int)sizeof text));
    }
}

/* What the program needs. STK_E_CANCELLED: the agent was told to end. */
static int prepare(agent *a, stk_err *err)
{
    if (!stk_agent_hear(a)) {
        STK_TRY(stk_agent_aside(a, AGENT_NOT_AT_ALL, stk_agent_setup, err));
    }
    if (!stk_agent_hear(a)) {
        STK_TRY(stk_agent_devices(a, err));
    }
    return stk_agent_hear(a) ? STK_E_CANCELLED : 0;
}

/* From here on whatever happens is told by end.json. */
static int run_claimed(agent *a, stk_err *err)
{
    char text[1400];
    int rc = prepare(a, err);
    if (rc == 0) {
        stk_agent_checkpoints_begin(a);
        stk_agent_live_begin(a);
        rc = stk_agent_task(a, err);
        stk_agent_live_end(a);
        stk_agent_checkpoints_end(a);
        if (rc == 0) {
            keep_outputs(a, err);
        }
    }
    if (rc == STK_E_CANCELLED) {
        stk_agent_fail(a, STK_FAIL_PREEMPTED, "stopped before its program started");
    } else if (rc < 0) {
        complain(err);
        stk_agent_fail(a, stk_agent_class_of(rc), stk_err_format(err, text, (int)sizeof text));
    }
    rc = stk_agent_aside(a, AGENT_TO_THE_END, stk_agent_save_end, err);
    if (rc == 0 && stk_agent_has_refs() && exit_status(a) == 0) {
        rc = stk_agent_aside(a, AGENT_TO_THE_END, stk_agent_results, err);
    }
    tell_container(a);
    if (rc < 0) {
        complain(err);
        fprintf(stderr, "stoker agent: can't write the task's end to %s\n",
                stk_share_url(a->share));
        return STK_AGENT_NO_SHARE;
    }
    return exit_status(a);
}

static int open_share(agent *a, stk_err *err)
{
    STK_TRY(catch_signals(a, err));
    STK_TRY(stk_err_if_null(a->arena, err));
    if (strncmp(a->url, "ssh://", 6) == 0) { /* it has no keys of the user */
        return stk_err_set(err, STK_E_USAGE, "an agent doesn't reach store '%s' by ssh", a->url);
    }
    return stk_share_open(a->url, &a->share, err);
}

static int claim_work(agent *a, stk_err *err)
{
    STK_TRY(open_share(a, err));
    return stk_agent_aside(a, AGENT_SHORTLY, look_for_work, err);
}

int stk_agent_run(const char *url, const char *key)
{
    stk_err err = {0};
    agent a = {.key = key,
               .url = url,
               .signal_fd = -1,
               .told_fd = -1,
               .stop_fd = -1,
               .checkpoints = {.done_fd = -1},
               .arena = stk_arena_new(0),
               .started_ms = -1,
               .ended_ms = -1,
               .outcome = STK_OUTCOME_UNKNOWN};
    STK_FAILPOINT("agent.begin");
    int rc = stk_agent_nest(url, key, &err);
    bool is_pilot = strstr(key, "/pilots/") != NULL;
    if (rc == 0) {
        rc = is_pilot ? open_share(&a, &err) : claim_work(&a, &err);
    }
    int status = STK_AGENT_NO_SHARE;
    if (rc == 0 && is_pilot) {
        rc = stk_agent_pilot(&a, &err);
        status = rc < 0 ? 1 : 0;
    } else if (rc == 0) {
        status = run_claimed(&a, &err);
    } else if (a.is_busy) {
        status = STK_AGENT_BUSY;
    } else if (rc == STK_E_BUSY) {
        status = STK_AGENT_CLAIMED;
    }
    if (rc < 0) {
        complain(&err);
        stk_agent_fail(&a, STK_FAIL_LOST, err.text);
        tell_container(&a);
    }
    stk_lease_drop(&a.lease);
    stk_accel_close(a.accel);
    stk_store_close(a.store);
    stk_share_close(a.share);
    stk_mask_free(a.mask);
    stk_arena_free(a.arena);
    stk_file_close(&a.signal_fd);
    stk_file_close(&a.told_fd);
    stk_file_close(&a.stop_fd);
    return status;
}
