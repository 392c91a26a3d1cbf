/* The fake driver, for tests: its engine is a folder (STOKER_REMOTE_FAKE). A job is a file
 * NAME.json, which the driver makes once. The test's cluster (tests/remote/cluster.py) runs it and
 * writes NAME.state and NAME.log, or NAME.log-K of node K. NAME.stop asks for its end, NAME.forget
 * for its removal. So "pods" survive the engine, as real ones do. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/remote/remote.h"
#include "base/json.h"
#include "base/text.h"
#include "sys/file.h"

enum { LOOK_MS = 20, LOG_AT_ONCE = 64 << 10 };

typedef struct fake_job {
    const stk_remote_job *job;
    char *state;   /* last content of its file, or NULL */
    off_t *log_at; /* of each node */
    bool is_over;
} fake_job;

typedef struct fake {
    stk_driver base;
    const char *folder;
    fake_job *jobs;
    uint32_t n, cap;
} fake;

static void job_path(const fake *f, const char *name, const char *what, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s.%s", f->folder, name, what);
}

static void put_job(const stk_remote_job *job, stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "name", job->name);
    stk_json_put_text(buf, "run", job->run);
    stk_json_put_text(buf, "step", job->step);
    stk_json_put_int(buf, "task", job->task);
    stk_json_put_int(buf, "attempt", job->attempt);
    stk_json_put_text(buf, "image", job->image);
    stk_json_put_text(buf, "carry_at", job->carry_at);
    stk_json_put_int(buf, "nodes", job->nodes);
    stk_json_put_int(buf, "port", job->port);
    stk_json_put_int(buf, "grace_ms", job->grace_ms);
    stk_json_put_int(buf, "memory_bytes", job->resources->memory_bytes);
    stk_json_put_raw(buf, "options", job->options);
    stk_json_put_texts(buf, "argv", job->argv);
    stk_json_put_texts(buf, "env", job->env);
    stk_json_put_texts(buf, "secret", job->secret);
    stk_json_put_texts(buf, "folders", job->folders);
    stk_json_close(buf, '}');
}

/* Makes the file once, even if asked again. */
static int make_job(const fake *f, const stk_remote_job *job, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(4 << 20);
    char path[PATH_MAX], made[PATH_MAX];
    job_path(f, job->name, "json", path);
    (void)snprintf(made, sizeof made, "%s/.%s.%d", f->folder, job->name, (int)getpid());
    put_job(job, &text);
    STK_TRY(stk_buf_check(&text, err));
    int rc = stk_file_write(made, text.data, text.len, 0600, err);
    if (rc == 0 && link(made, path) < 0 && errno != EEXIST) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "making %s", path);
    }
    (void)unlink(made);
    return rc;
}

static int submit(stk_driver *self, const stk_remote_job *job, stk_err *err)
{
    fake *f = (fake *)self;
    char path[PATH_MAX];
    job_path(f, job->name, "json", path);
    if (job->attach && !stk_file_exists(path)) {
        stk_remote_report r = {.state = STK_REMOTE_FAILED,
                               .id = job->id,
                               .attempt = job->attempt,
                               .exit_status = -1,
                               .failure = STK_FAIL_LOST,
                               .text = "its pod disappeared"};
        self->say(self->say_arg, &r);
        return 0;
    }
    if (!job->reads) {
        STK_TRY(make_job(f, job, err));
    }
    STK_TRY(stk_array_reserve(&f->jobs, &f->cap, (uint64_t)f->n + 1, sizeof *f->jobs));
    off_t *log_at = calloc(job->nodes, sizeof *log_at);
    STK_TRY(stk_err_if_null(log_at, err));
    f->jobs[f->n++] = (fake_job){.job = job, .log_at = log_at};
    return 0;
}

static fake_job *find_job(fake *f, uint32_t id)
{
    for (uint32_t i = f->n; i-- > 0;) {
        if (f->jobs[i].job->id == id) {
            return &f->jobs[i];
        }
    }
    return NULL;
}

static void stop(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    fake *f = (fake *)self;
    fake_job *j = find_job(f, id);
    char path[PATH_MAX];
    (void)why;
    if (j != NULL) {
        STK_BUF_AUTO text = STK_BUF_INIT(64);
        stk_json_open(&text, NULL, '{');
        stk_json_put_whole(&text, "grace_ms", grace_ms);
        stk_json_close(&text, '}');
        job_path(f, j->job->name, "stop", path);
        (void)stk_file_write_atomic(path, text.data, text.len, 0644, NULL);
    }
}

static void forget(stk_driver *self, uint32_t id)
{
    fake *f = (fake *)self;
    fake_job *j = find_job(f, id);
    char path[PATH_MAX];
    if (j != NULL) {
        job_path(f, j->job->name, "forget", path);
        (void)stk_file_write_atomic(path, "", 0, 0644, NULL);
        free(j->state);
        free(j->log_at);
        *j = f->jobs[--f->n];
    }
}

static void follow_log(fake *f, fake_job *j, uint32_t node)
{
    char path[PATH_MAX], data[LOG_AT_ONCE], what[32] = "log";
    if (node > 0) {
        (void)snprintf(what, sizeof what, "log-%u", node);
    }
    job_path(f, j->job->name, what, path);
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = pread(fd, data, sizeof data, j->log_at[node]);
    if (n > 0) {
        j->log_at[node] += n;
        stk_remote_report r = {.state = STK_REMOTE_LOG,
                               .id = j->job->id,
                               .attempt = j->job->attempt,
                               .node = node,
                               .data = data,
                               .n = (size_t)n};
        f->base.say(f->base.say_arg, &r);
    }
}

static void report_state(fake *f, fake_job *j, const stk_json *doc)
{
    static const char *const words[] = {"queued", "running", "ended", "failed"};
    const char *phase = stk_json_get_text(doc, "phase");
    int failure = stk_failure_of(stk_text_or(stk_json_get_text(doc, "failure"), ""));
    stk_remote_report r = {.id = j->job->id,
                           .attempt = j->job->attempt,
                           .failure = (stk_failure)MAX(failure, STK_FAIL_NONE),
                           .exit_status = (int)stk_json_get_whole(doc, "exit_status", -1),
                           .signal = (int)stk_json_get_whole(doc, "signal", 0),
                           .oom = stk_json_is_true(stk_json_get(doc, "oom"))};
    (void)snprintf(r.text, sizeof r.text, "%s", stk_text_or(stk_json_get_text(doc, "text"), ""));
    for (int i = 0; phase != NULL && i < 4; i++) {
        if (strcmp(phase, words[i]) == 0) {
            r.state = (stk_remote_state)i;
            j->is_over = r.state == STK_REMOTE_ENDED || r.state == STK_REMOTE_FAILED;
            f->base.say(f->base.say_arg, &r);
        }
    }
}

static void read_state(fake *f, fake_job *j)
{
    static const stk_json_limits limits = {64 << 10, 1000, 8};
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t len = 0;
    stk_json doc;
    job_path(f, j->job->name, "state", path);
    if (j->is_over || stk_file_read(path, 64 << 10, &text, &len, NULL) < 0) {
        return;
    }
    for (uint32_t k = 0; k < j->job->nodes; k++) {
        follow_log(f, j, k);
    }
    if (strcmp(stk_text_or(j->state, ""), text) != 0 &&
        stk_json_parse(text, len, path, &limits, arena, &doc, NULL) == 0) {
        free(j->state);
        j->state = text;
        text = NULL;
        report_state(f, j, &doc);
    }
}

static int turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    fake *f = (fake *)self;
    char path[PATH_MAX];
    STK_TEXT_AUTO why = NULL;
    size_t len = 0;
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    (void)poll(&fd, 1, f->n > 0 && timeout_ms > LOOK_MS ? LOOK_MS : (int)timeout_ms);
    for (uint32_t i = 0; i < f->n; i++) {
        read_state(f, &f->jobs[i]);
    }
    job_path(f, "engine", "broken", path); /* a test revokes the right */
    if (stk_file_read(path, 4096, &why, &len, NULL) == 0) {
        return stk_err_set(err, STK_E_ENV, "%s", why);
    }
    return 0;
}

static void close_fake(stk_driver *self)
{
    fake *f = (fake *)self;
    for (uint32_t i = 0; i < f->n; i++) {
        free(f->jobs[i].state);
        free(f->jobs[i].log_at);
    }
    free(f->jobs);
    free(f);
}

static int open_fake(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    static const stk_driver_ops ops = {.name = "fake",
                                       .submit = submit,
                                       .stop = stop,
                                       .forget = forget,
                                       .turn = turn,
                                       .close = close_fake};
    fake *f = calloc(1, sizeof *f);
    (void)config;
    STK_TRY(stk_err_if_null(f, err));
    f->base.ops = &ops;
    f->folder = getenv("STOKER_REMOTE_FAKE");
    *ret = &f->base;
    return stk_file_mkdirs(f->folder, 0755, err);
}

static int manifest(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                    const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(4 << 20);
    const char **documents = stk_arena_array(arena, 2, sizeof *documents);
    (void)config;
    put_job(job, &text);
    if (documents == NULL || text.failed ||
        (documents[0] = stk_arena_dup(arena, text.data)) == NULL) {
        return stk_err_nomem(err);
    }
    *ret_documents = documents;
    *ret_n = 1;
    return 0;
}

static int check(const stk_driver_config *config,
                 void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    (void)config;
    (void)err;
    say(arg, true, "the fake answers");
    return 0;
}

const stk_driver_kind stk_driver_fake = {
    .name = "fake", .open = open_fake, .manifest = manifest, .check = check};
