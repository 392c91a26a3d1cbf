/* The driver: what the backend calls, and the turns. */
#include "away/ssh/ssh_driver.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { POLL_MS = 2000, HOSTS_MAX = 64 };

int64_t stk_ssh_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

void stk_ssh_say(ssh_driver *d, const ssh_task *t, stk_remote_state state, const char *text)
{
    stk_remote_report r = {.state = state, .id = t->id, .attempt = t->attempt, .exit_status = -1};
    (void)snprintf(r.text, sizeof r.text, "%s", text);
    d->base.say(d->base.say_arg, &r);
}

void stk_ssh_fail(ssh_driver *d, ssh_task *t, stk_failure failure, bool is_hopeless,
                  const char *text)
{
    stk_remote_report r = {.state = STK_REMOTE_FAILED,
                           .id = t->id,
                           .attempt = t->attempt,
                           .exit_status = -1,
                           .is_hopeless = is_hopeless,
                           .failure = failure};
    (void)snprintf(r.text, sizeof r.text, "%s", text);
    t->phase = SSH_OVER;
    d->base.say(d->base.say_arg, &r);
}

void stk_ssh_waits(ssh_driver *d, ssh_task *t, const char *text)
{
    if (strncmp(text, t->told, sizeof t->told - 1) != 0) {
        (void)snprintf(t->told, sizeof t->told, "%s", text);
        stk_ssh_say(d, t, STK_REMOTE_QUEUED, text);
    }
}

bool stk_ssh_is_mirror(const ssh_driver *d, uint32_t host)
{
    const char *url = stk_text_or(d->config.share_url, "");
    return strncmp(url, "ssh://", 6) == 0 && d->store_host != (int)host;
}

/* Machines may share a home, so each node of a gang has a name of its own. */
const char *stk_ssh_part_name(const ssh_task *t, uint32_t part, stk_arena *arena)
{
    return t->n_parts == 1 ? t->name : stk_arena_printf(arena, "%s.%u", t->name, part);
}

ssh_task *stk_ssh_task(ssh_driver *d, uint32_t id, uint32_t attempt)
{
    for (uint32_t i = d->n_tasks; i-- > 0;) {
        if (d->tasks[i]->id == id && d->tasks[i]->attempt == attempt) {
            return d->tasks[i];
        }
    }
    return NULL;
}

static ssh_task *task_of_id(ssh_driver *d, uint32_t id)
{
    for (uint32_t i = d->n_tasks; i-- > 0;) {
        if (d->tasks[i]->id == id) {
            return d->tasks[i];
        }
    }
    return NULL;
}

static void free_task(ssh_task *t)
{
    if (t != NULL) {
        stk_arena_free(t->arena);
        free(t);
    }
}

/* --- what the backend calls --- */

static int read_task(ssh_driver *d, const stk_remote_job *spec, ssh_task *t, stk_err *err)
{
    const char *order = NULL;
    STK_TRY(stk_err_if_null(t->arena, err));
    stk_alternative wants[STK_LIMIT_ASKS];
    STK_TRY(stk_ssh_order(&d->config, spec, t->arena, &order, err));
    const stk_json *read = stk_json_read(t->arena, order);
    STK_TRY(stk_err_if_null(read, err));
    t->order = *read;
    STK_TRY(stk_ssh_options_read(d->config.stack, spec->step, spec->options, d->config.options,
                                 t->arena, &t->options, err));
    STK_TRY(stk_ssh_resources(spec->resources, t->arena, &t->resources, err));
    const char *pinned = stk_remote_option_text(&t->options, "host");
    t->pinned = -1;
    if (pinned != NULL) {
        t->pinned = stk_ssh_find_host(&d->options, pinned, strlen(pinned));
    }
    t->name = stk_arena_dup(t->arena, spec->name);
    t->key = stk_arena_dup(t->arena, spec->key);
    t->n_parts = MAX(spec->nodes, 1);
    t->parts = stk_arena_array(t->arena, t->n_parts, sizeof *t->parts);
    uint32_t n = stk_spec_alternatives(spec->resources, wants);
    if (n > 0 && wants[0].gpu_memory_bytes <= 0) {
        t->n_devices = (uint32_t)wants[0].gpu_count;
    }
    t->cpu_milli = 1000; /* as at home, if it doesn't say */
    if (spec->resources->cpu_milli > 0) {
        t->cpu_milli = spec->resources->cpu_milli;
    }
    t->memory_bytes = MAX(spec->resources->memory_bytes, 0);
    if (t->parts == NULL || t->key == NULL) {
        return stk_err_nomem(err);
    }
    return stk_err_if_null(t->name, err);
}

static int submit_task(stk_driver *self, const stk_remote_job *spec, stk_err *err)
{
    ssh_driver *d = (ssh_driver *)self;
    STK_TRY(
        stk_array_reserve(&d->tasks, &d->cap_tasks, (uint64_t)d->n_tasks + 1, sizeof *d->tasks));
    ssh_task *t = calloc(1, sizeof *t);
    STK_TRY(stk_err_if_null(t, err));
    *t = (ssh_task){.spec = spec,
                    .arena = stk_arena_new(0),
                    .id = spec->id,
                    .attempt = spec->attempt,
                    .phase = SSH_WAITS,
                    .since_ms = stk_ssh_now_ms()};
    if (spec->look || spec->attach || spec->reads) {
        t->phase = SSH_FIND;
    }
    int rc = read_task(d, spec, t, err);
    if (rc < 0) {
        free_task(t);
        return rc;
    }
    d->tasks[d->n_tasks++] = t;
    return 0;
}

static void stop_task(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    ssh_driver *d = (ssh_driver *)self;
    ssh_task *t = task_of_id(d, id);
    if (t == NULL || t->phase == SSH_OVER) {
        return;
    }
    bool is_sooner = t->is_stopped && grace_ms < t->grace_ms;
    if (!t->is_stopped || is_sooner) {
        t->grace_ms = grace_ms;
        t->is_stop_sent = false;
        t->again_ms = 0;
    }
    t->is_stopped = true;
    t->why = why;
    if (t->phase == SSH_WAITS) {
        stk_ssh_fail(d, t, why, false, "stopped before its submission");
    }
}

static void forget_task(stk_driver *self, uint32_t id)
{
    ssh_driver *d = (ssh_driver *)self;
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        ssh_task *t = d->tasks[i];
        if (t->id != id) {
            continue;
        }
        for (uint32_t p = 0; p < t->n_parts && t->may_be_there; p++) {
            stk_ssh_forget(d, t, p);
        }
        free_task(t);
        d->tasks[i] = d->tasks[--d->n_tasks];
        return;
    }
}

static int take_turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    ssh_driver *d = (ssh_driver *)self;
    struct pollfd fds[2] = {{.fd = wake_fd, .events = POLLIN},
                            {.fd = d->done_fd, .events = POLLIN}};
    (void)err;
    stk_ssh_work_finished(d);
    int64_t now = stk_ssh_now_ms(), due = now + timeout_ms;
    due = MIN(due, stk_ssh_see_to_live(d, now));
    due = MIN(due, stk_ssh_place_some(d, now));
    due = MIN(due, stk_ssh_look_at_hosts(d, now));
    due = MIN(due, stk_ssh_mirror_live(d, now));
    now = stk_ssh_now_ms();
    (void)poll(fds, 2, due > now ? (int)(due - now) : 0);
    return 0;
}

static void close_driver(stk_driver *self)
{
    ssh_driver *d = (ssh_driver *)self;
    stk_ssh_work_close(d);
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        free_task(d->tasks[i]);
    }
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        stk_link_close(d->hosts[i].link);
        stk_share_close(d->hosts[i].mirror);
        stk_arena_free(d->hosts[i].arena);
    }
    stk_share_close(d->share);
    stk_file_close(&d->done_fd);
    stk_file_close(&d->cancel_fd);
    (void)pthread_mutex_destroy(&d->lock);
    (void)pthread_cond_destroy(&d->wake);
    free(d->tasks);
    stk_arena_free(d->arena);
    free(d);
}

/* --- opening --- */

static const char *address_option(const ssh_driver *d, const char *host)
{
    const stk_json *list = NULL;
    uint32_t n = stk_remote_option_texts(&d->options, "address", &list);
    size_t len = strlen(host);
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(list[i].text, host, len) == 0 && list[i].text[len] == '=') {
            return list[i].text + len + 1;
        }
    }
    return NULL;
}

/* "ann@gpu1:22" of "ssh://ann@gpu1:22/…", or of a host's own name. */
static const char *bare_host(const char *text, size_t *ret_len)
{
    if (strncmp(text, "ssh://", 6) == 0) {
        text += 6;
    }
    *ret_len = strcspn(text, "/");
    return text;
}

/* The same path on each host that hasn't the store. */
static int open_mirrors(ssh_driver *d, stk_err *err)
{
    const char *path = stk_ssh_store_path(d->config.share_url);
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        size_t n = 0;
        const char *name = bare_host(d->hosts[i].name, &n);
        if (!stk_ssh_is_mirror(d, i)) {
            continue;
        }
        const char *url = stk_arena_printf(d->arena, "ssh://%.*s%s%s", (int)n, name,
                                           stk_text_when(path[0] != '/', "/"), path);
        STK_TRY(stk_err_if_null(url, err));
        STK_TRY(stk_share_open(url, &d->hosts[i].mirror, err));
    }
    return 0;
}

static int open_hosts(ssh_driver *d, stk_err *err)
{
    const stk_json *names = NULL;
    const char *url = stk_text_or(d->config.share_url, "");
    size_t n_store = 0, n_name = 0;
    const char *store = bare_host(url, &n_store);
    d->n_hosts = stk_remote_option_texts(&d->options, "hosts", &names);
    d->store_host = -1;
    if (d->n_hosts > HOSTS_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "a stack has at most %d hosts", HOSTS_MAX);
    }
    d->hosts = stk_arena_array(d->arena, d->n_hosts, sizeof *d->hosts);
    d->n_at_work = stk_arena_array(d->arena, (size_t)d->n_hosts + 1, sizeof *d->n_at_work);
    if (d->hosts == NULL || d->n_at_work == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        const char *name = bare_host(names[i].text, &n_name);
        d->hosts[i].name = names[i].text;
        d->hosts[i].address = address_option(d, names[i].text);
        STK_TRY(stk_link_open(names[i].text, &d->hosts[i].link, err));
        if (strncmp(url, "ssh://", 6) == 0 && n_name == n_store &&
            strncmp(name, store, n_store) == 0) {
            d->store_host = (int)i;
        }
    }
    return open_mirrors(d, err);
}

static int fill_driver(ssh_driver *d, stk_err *err)
{
    STK_TRY(stk_err_if_null(d->arena, err));
    if (d->done_fd < 0 || d->cancel_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "an event's descriptor");
    }
    STK_TRY(stk_ssh_options_read(d->config.stack, NULL, d->config.options, NULL, d->arena,
                                 &d->options, err));
    d->poll_ms = (int64_t)(stk_remote_option_number(&d->options, "poll", POLL_MS / 1000.0) * 1000);
    d->poll_ms = MAX(d->poll_ms, 50);
    d->slots = (uint32_t)stk_remote_option_number(&d->options, "slots", 0);
    if (d->config.share_url != NULL) {
        STK_TRY(stk_share_open(d->config.share_url, &d->share, err));
    }
    return open_hosts(d, err);
}

int stk_ssh_open(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    static const stk_driver_ops ops = {.name = "ssh",
                                       .submit = submit_task,
                                       .stop = stop_task,
                                       .forget = forget_task,
                                       .turn = take_turn,
                                       .close = close_driver};
    ssh_driver *d = calloc(1, sizeof *d);
    STK_TRY(stk_err_if_null(d, err));
    d->base.ops = &ops;
    d->config = *config;
    d->arena = stk_arena_new(0);
    d->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->wake, NULL);
    int rc = fill_driver(d, err);
    if (rc < 0) {
        close_driver(&d->base);
        return rc;
    }
    *ret = &d->base;
    return 0;
}

static int print_order(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                       const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    const char **documents = stk_arena_array(arena, 2, sizeof *documents);
    STK_TRY(stk_err_if_null(documents, err));
    STK_TRY(stk_ssh_order(config, job, arena, &documents[0], err));
    *ret_documents = documents;
    *ret_n = 1;
    return 0;
}

const stk_driver_kind stk_driver_ssh = {.name = "ssh",
                                        .open = stk_ssh_open,
                                        .manifest = print_order,
                                        .check = stk_ssh_check,
                                        .holds = stk_ssh_holds};
