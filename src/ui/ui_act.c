/* Changes: this program itself makes them, with the words that a user would type, and the page
 * shows what it said. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "show/show_text.h"
#include "sys/file.h"
#include "ui/ui_private.h"

enum { JOBS = 16, SAID = 1500, SLOW_MS = 5000 };

/* A change that is being made, or was. */
typedef struct job {
    pid_t pid;         /* 0: it has ended */
    int fd;            /* what it says */
    ui_request *asker; /* waits for it; NULL: no more */
    char back[200];    /* the page to return to */
    char said[SAID];
    uint32_t number;
    bool has_failed, is_seen;
    struct event *slow;
    struct ui_jobs *of;
} job;

struct ui_jobs {
    stk_ui *ui;
    struct event *ends; /* of children */
    job items[JOBS];
    uint32_t n;
};

static const struct {
    const char *name, *title;
    const char *words[3]; /* before the run */
    const char *option;   /* before the form's text; NULL: it has none */
    bool goes_on;         /* the program lives as long as the run */
} acts[] = {{"cancel", "Cancel", {"cancel"}, NULL, false},
            {"resume", "Resume", {"resume", "--quiet"}, NULL, true},
            {"tag", "Add tag", {"tag"}, "--add", false},
            {"untag", "Remove tag", {"tag"}, "--remove", false},
            {"delete", "Delete", {"rm"}, NULL, false}};
enum { N_ACTS = sizeof acts / sizeof *acts };

/* --- buttons --- */

static void put_button(ui_request *r, size_t i, const char *run)
{
    stk_html_put(&r->out,
                 "<form method=\"post\" action=\"act\"><input type=\"hidden\" name=\"form\" "
                 "value=\"%s\"/><input type=\"hidden\" name=\"run\" value=\"%s\"/><input "
                 "type=\"hidden\" name=\"act\" value=\"%s\"/>",
                 r->ui->form, run, acts[i].name);
    if (acts[i].option != NULL) {
        stk_html_put(&r->out, "<input name=\"text\" required=\"\" maxlength=\"200\" "
                              "aria-label=\"tag\" placeholder=\"tag\"/>");
    }
    stk_html_put(&r->out, "<button class=\"act-%s\">%s</button></form>", acts[i].name,
                 acts[i].title);
}

void stk_ui_put_actions(ui_request *r, const stk_view_run *run)
{
    bool is_live = strcmp(run->status, "running") == 0;
    bool has_succeeded = strcmp(run->status, "succeeded") == 0;
    if (!r->at->is_own) {
        return;
    }
    stk_buf_text(&r->out, "<div class=\"actions\">");
    for (size_t i = 0; i < N_ACTS; i++) {
        bool fits = true;
        if (strcmp(acts[i].name, "cancel") == 0) {
            fits = is_live;
        } else if (strcmp(acts[i].name, "resume") == 0) {
            fits = !is_live && !has_succeeded;
        } else if (strcmp(acts[i].name, "delete") == 0) {
            fits = !is_live;
        }
        if (fits) {
            put_button(r, i, run->id);
        }
    }
    stk_buf_text(&r->out, "</div>\n");
}

void stk_ui_put_said(ui_request *r)
{
    int64_t number = stk_ui_get_whole(r, "said", -1, UINT32_MAX);
    for (size_t i = 0; i < JOBS; i++) {
        const job *j = &r->ui->jobs->items[i];
        if (number >= 0 && j->number == (uint32_t)number && j->said[0] != '\0') {
            stk_html_put(&r->out, "<div class=\"%s\" role=\"status\">%s</div>\n",
                         j->has_failed ? "note" : "said", j->said);
        }
    }
}

/* --- doing it --- */

static void read_said(job *j)
{
    ssize_t n = pread(j->fd, j->said, sizeof j->said - 1, 0);
    j->said[n > 0 ? n : 0] = '\0';
    if (j->said[0] == '\0') {
        (void)snprintf(j->said, sizeof j->said, "%s",
                       j->has_failed ? "this was not possible" : "done");
    }
}

static void forget_asker(job *j)
{
    struct evhttp_connection *from = evhttp_request_get_connection(j->asker->http);
    evhttp_connection_set_closecb(from, NULL, NULL);
    j->asker = NULL;
}

/* The asker went away; libevent frees its own request. */
static void on_asker_gone(struct evhttp_connection *from, void *arg)
{
    (void)from;
    job *j = arg;
    if (j->asker != NULL) {
        stk_ui_request_free(j->asker);
        j->asker = NULL;
    }
}

/* Shows the asker the page that it came from. */
static void send_back(job *j)
{
    ui_request *r = j->asker;
    char where[300];
    if (r != NULL) {
        forget_asker(j);
        (void)snprintf(where, sizeof where, "./%ssaid=%u", j->back, j->number);
        stk_ui_redirect(r, where);
    }
}

static void end_job(job *j, int status)
{
    j->has_failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    j->pid = 0;
    read_said(j);
    stk_file_close(&j->fd);
    (void)evtimer_del(j->slow);
    send_back(j);
}

static void on_child(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    struct ui_jobs *jobs = arg;
    for (size_t i = 0; i < JOBS; i++) {
        int status = 0;
        job *j = &jobs->items[i];
        if (j->pid > 0 && waitpid(j->pid, &status, WNOHANG) == j->pid) {
            end_job(j, status);
        }
    }
}

/* A change that takes longer goes on, and the page is shown without its end. */
static void on_slow(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    job *j = arg;
    read_said(j);
    if (strcmp(j->said, "done") == 0) {
        (void)snprintf(j->said, sizeof j->said, "it has begun, and goes on");
    }
    send_back(j);
}

static int spawn_job(const ui_request *r, job *j, char *const *argv, stk_err *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    STK_TRY(stk_err_if_null(r->at->path, err));
    char *store = stk_arena_printf(r->arena, "STOKER_STORE=%s", r->at->path);
    size_t n = 0, k = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **env = stk_arena_array(r->arena, n + 2, sizeof *env);
    if (store == NULL || env == NULL) {
        return stk_err_nomem(err);
    }
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "STOKER_STORE=", 13) != 0 &&
            strncmp(environ[i], "STOKER_UI_TOKEN=", 16) != 0) {
            env[k++] = environ[i];
        }
    }
    env[k] = store;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, j->fd, 1);
    (void)posix_spawn_file_actions_adddup2(&files, j->fd, 2);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setsigmask(&how, &none);
    (void)posix_spawnattr_setsigdefault(&how, &all);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETSID);
    int rc = posix_spawn(&j->pid, r->ui->options->program, &files, &how, argv, env);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    if (rc != 0) {
        j->pid = 0;
        return stk_err_sys(err, STK_E_SYS, rc, "starting %s", argv[0]);
    }
    return 0;
}

/* A free place for a job; the oldest that has ended. NULL: all are busy. */
static job *free_job(struct ui_jobs *jobs)
{
    job *best = NULL;
    for (size_t i = 0; i < JOBS; i++) {
        job *j = &jobs->items[i];
        if (j->pid == 0 && (best == NULL || j->number < best->number)) {
            best = j;
        }
    }
    return best;
}

static int start_job(ui_request *r, size_t act, const char *run, const char *text, stk_err *err)
{
    struct ui_jobs *jobs = r->ui->jobs;
    job *j = free_job(jobs);
    const char *argv[10] = {r->ui->options->program};
    size_t n = 1;
    if (j == NULL) {
        return stk_err_set(err, STK_E_BUSY, "%d changes are being made; try again later", JOBS);
    }
    for (size_t i = 0; i < 3 && acts[act].words[i] != NULL; i++) {
        argv[n++] = acts[act].words[i];
    }
    if (acts[act].option != NULL) {
        argv[n++] = stk_arena_printf(r->arena, "%s=%s", acts[act].option, text);
    }
    argv[n++] = run;
    j->number = ++jobs->n;
    j->said[0] = '\0';
    j->fd = memfd_create("said", MFD_CLOEXEC);
    if (j->fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making a file for an answer");
    }
    (void)snprintf(j->back, sizeof j->back, "run?run=%s&", run);
    if (strcmp(acts[act].name, "delete") == 0) {
        (void)snprintf(j->back, sizeof j->back, "runs?");
    }
    int rc = spawn_job(r, j, (char *const *)(uintptr_t)argv, err);
    if (rc < 0) {
        stk_file_close(&j->fd);
        return rc;
    }
    struct timeval after = {.tv_sec = acts[act].goes_on ? 1 : SLOW_MS / 1000};
    (void)evtimer_add(j->slow, &after);
    j->asker = r;
    r->is_deferred = true;
    evhttp_connection_set_closecb(evhttp_request_get_connection(r->http), on_asker_gone, j);
    return 0;
}

int stk_ui_page_act(ui_request *r, stk_err *err)
{
    const char *name = evhttp_find_header(&r->body, "act");
    const char *run = evhttp_find_header(&r->body, "run");
    const char *text = evhttp_find_header(&r->body, "text");
    char id[40];
    size_t act = 0;
    if (!stk_ui_guard_form(r)) {
        return stk_err_set(err, STK_E_UNTRUSTED,
                           "changes are made only from a page of this server: load it again");
    }
    while (act < N_ACTS && strcmp(acts[act].name, stk_text_or(name, "")) != 0) {
        act++;
    }
    if (act == N_ACTS || run == NULL ||
        (acts[act].option != NULL && stk_text_if_any(text) == NULL)) {
        return stk_err_set(err, STK_E_USAGE, "this form is incomplete");
    }
    if (!r->at->is_own) {
        return stk_err_set(err, STK_E_UNTRUSTED,
                           "store %s isn't yours, or 'stoker ui' was started with --read-only",
                           r->at->path);
    }
    STK_TRY(stk_store_resolve_run(r->at->store, run, id, err));
    run = stk_arena_dup(r->arena, id);
    STK_TRY(stk_err_if_null(run, err));
    return start_job(r, act, run, text, err);
}

int stk_ui_jobs_open(stk_ui *ui, stk_err *err)
{
    struct ui_jobs *jobs = ui->jobs = calloc(1, sizeof *jobs);
    STK_TRY(stk_err_if_null(jobs, err));
    jobs->ui = ui;
    for (size_t i = 0; i < JOBS; i++) {
        jobs->items[i] = (job){.fd = -1, .of = jobs};
        jobs->items[i].slow = evtimer_new(ui->base, on_slow, &jobs->items[i]);
        STK_TRY(stk_err_if_null(jobs->items[i].slow, err));
    }
    jobs->ends = evsignal_new(ui->base, SIGCHLD, on_child, jobs);
    STK_TRY(stk_err_if_null(jobs->ends, err));
    return event_add(jobs->ends, NULL);
}

void stk_ui_jobs_close(stk_ui *ui)
{
    struct ui_jobs *jobs = ui->jobs;
    if (jobs == NULL) {
        return;
    }
    for (size_t i = 0; i < JOBS; i++) {
        stk_file_close(&jobs->items[i].fd);
        ui_request *asker = jobs->items[i].asker;
        if (asker != NULL) {
            forget_asker(&jobs->items[i]);
            stk_ui_request_free(asker);
        }
        if (jobs->items[i].slow != NULL) {
            event_free(jobs->items[i].slow);
        }
    }
    if (jobs->ends != NULL) {
        event_free(jobs->ends);
    }
    free(jobs);
    ui->jobs = NULL;
}
