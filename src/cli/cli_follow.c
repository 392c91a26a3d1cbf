/* The live output of a run that another machine's engine has: its record is brought again and
 * again, and each attempt that runs is attached to, into a file of a folder of this process. */
#include "cli/cli_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>

#include "away/mirror/mirror.h"
#include "away/remote/remote_follow.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "cli/cli_shared.h"
#include "run/run_elsewhere.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { TURN_MS = 200, FETCH_MS = 3000, QUIET_MS = 1500, SO_FAR_MS = 20000, STACKS = 16 };

/* The jobs of one stack. */
typedef struct place {
    stk_stack stack;
    stk_driver_config config;
    stk_remote_follow *follow; /* NULL: it can't be followed */
} place;

struct stk_cli_follow {
    stk_arena *arena;
    const stk_cli_read *read;
    const stk_logs *logs;
    stk_mirror *mirror;
    const char *run;
    bool has_stack; /* else the share's own live logs are shown */
    char folder[32];
    place places[STACKS];
    uint32_t n_places;
    uint32_t *attempts; /* by task: the attempt that is followed; 0: none */
    uint32_t n_tasks;
    int64_t fetch_ms;
    bool has_told;
};

static void say_unfollowed(stk_cli_follow *f, const stk_err *why)
{
    char text[1400];
    if (!f->has_told) {
        f->has_told = true;
        (void)fprintf(stderr, "stoker: what runs can't be followed from here: %s\n",
                      stk_err_format(why, text, (int)sizeof text));
    }
}

/* The stack's jobs; NULL: they can't be followed. */
static place *get_place(stk_cli_follow *f, const char *name)
{
    stk_err err = {0};
    for (uint32_t i = 0; i < f->n_places; i++) {
        if (strcmp(f->places[i].stack.name, name) == 0) {
            return &f->places[i];
        }
    }
    if (f->n_places == STACKS) {
        return NULL;
    }
    place *p = &f->places[f->n_places];
    if (stk_stack_find(".", name, f->arena, &p->stack, &err) < 0) {
        say_unfollowed(f, &err);
        return NULL;
    }
    f->n_places++;
    const stk_driver_kind *kind = stk_cli_driver(stk_place_word(p->stack.kind));
    stk_run_driver_config(&p->stack, f->run, &p->config);
    p->config.pending_ms = 0;
    if (kind != NULL && stk_remote_follow_open(kind, &p->config, &p->follow, &err) < 0) {
        say_unfollowed(f, &err);
    }
    return p;
}

/* The folder of a followed attempt, or NULL. */
static const char *live_folder(void *arg, uint32_t task)
{
    const stk_cli_follow *f = arg;
    const stk_view_task *t = stk_view_get_task(f->read->view, task);
    if (task >= f->n_tasks || f->attempts[task] == 0 || f->attempts[task] != t->attempt ||
        t->state != STK_TASK_RUNNING) {
        return NULL;
    }
    return stk_arena_printf(f->arena, "%s/%u-%u", f->folder, task, t->attempt);
}

static int follow_task(stk_cli_follow *f, uint32_t i_task)
{
    const stk_view_task *t = stk_view_get_task(f->read->view, i_task);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *granted = stk_json_get(stk_json_read(scratch, t->start_data), "granted");
    const char *stack = stk_json_get_text(granted, "stack");
    stk_err err = {0};
    stk_place at;
    f->attempts[i_task] = t->attempt;
    place *p = get_place(f, stk_text_or(stack, ""));
    if (p == NULL || p->follow == NULL) {
        return 0;
    }
    const char *options = p->stack.options;
    if (stk_stack_place(&p->stack, t->name, t->step->settings, f->arena, &at, NULL) == 0 &&
        at.options != NULL) {
        options = at.options;
    }
    const char *folder = live_folder(f, i_task);
    const char *path = folder == NULL ? NULL : stk_arena_printf(f->arena, "%s/stdout.log", folder);
    STK_TRY(stk_err_if_null(path, &err));
    const stk_remote_followed one = {.run = f->run,
                                     .pipeline = stk_view_get_run(f->read->view)->pipeline,
                                     .step = t->name,
                                     .task = t->id,
                                     .attempt = t->attempt,
                                     .nodes = (uint32_t)MAX(t->step->settings->gang.nodes, 1),
                                     .options = options,
                                     .path = path};
    if (stk_file_mkdirs(folder, 0700, &err) < 0 ||
        stk_remote_follow_add(p->follow, &one, &err) < 0) {
        say_unfollowed(f, &err);
        f->attempts[i_task] = 0;
    }
    return 0;
}

/* Attaches to what has begun to run. */
static int follow_new(stk_cli_follow *f, stk_err *err)
{
    uint32_t n = stk_view_n_tasks(f->read->view);
    if (n > f->n_tasks) {
        uint32_t *attempts = realloc(f->attempts, n * sizeof *attempts);
        STK_TRY(stk_err_if_null(attempts, err));
        memset(attempts + f->n_tasks, 0, (n - f->n_tasks) * sizeof *attempts);
        f->attempts = attempts;
        f->n_tasks = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *t = stk_view_get_task(f->read->view, i);
        bool is_wanted = f->logs->has_task ? i == f->logs->task
                                           : !f->logs->has_step || t->i_step == f->logs->i_step;
        if (f->has_stack && is_wanted && t->state == STK_TASK_RUNNING &&
            f->attempts[i] != t->attempt) {
            STK_TRY(follow_task(f, i));
        }
    }
    return 0;
}

/* Hears all stacks; one that fails is left, and the files come when its attempts have ended. */
static void hear_all(stk_cli_follow *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->n_places; i++) {
        place *p = &f->places[i];
        stk_err err = {0};
        if (p->follow != NULL && stk_remote_follow_turn(p->follow, TURN_MS, &err) < 0) {
            say_unfollowed(f, &err);
            stk_remote_follow_close(p->follow);
            p->follow = NULL;
        }
        STK_TEXT_AUTO note = p->follow == NULL ? NULL : stk_remote_follow_note(p->follow);
        if (note != NULL) {
            (void)fprintf(stderr, "stoker: %s\n", note);
        }
        any = any || p->follow != NULL;
    }
    if (!any) {
        (void)nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000l}, NULL);
    }
}

static int wait_for_more(void *arg, stk_err *err)
{
    stk_cli_follow *f = arg;
    char run[40];
    hear_all(f);
    if (stk_clock_boot_ms() < f->fetch_ms) {
        return 0;
    }
    f->fetch_ms = stk_clock_boot_ms() + FETCH_MS;
    STK_TRY(stk_view_refresh(f->read->view, f->read->store, NULL, err));
    STK_TRY(stk_mirror_bring(f->mirror, f->run, STK_MIRROR_FILES, run, err)); /* of all it tells */
    return follow_new(f, err);
}

/* A log has no mark where it ends so far: what comes within a moment belongs to it. */
static void hear_so_far(stk_cli_follow *f, int64_t ms)
{
    int64_t until = stk_clock_boot_ms() + ms;
    for (bool quiet = false; !quiet && stk_clock_boot_ms() < until;) {
        hear_all(f);
        quiet = true;
        for (uint32_t i = 0; i < f->n_places; i++) {
            const stk_remote_follow *one = f->places[i].follow;
            quiet = quiet && (one == NULL || stk_remote_follow_is_quiet(one, QUIET_MS));
        }
    }
}

int stk_cli_follow_open(const stk_cli *cli, const stk_cli_read *read, stk_logs *logs,
                        stk_cli_follow **ret, stk_err *err)
{
    const char *url = NULL;
    stk_cli_follow *f = calloc(1, sizeof *f);
    STK_TRY(stk_err_if_null(f, err));
    *ret = f;
    f->has_stack = stk_cli_value(cli, "stack") != NULL;
    f->arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(f->arena, err));
    STK_TRY(stk_cli_shared_url(cli, f->arena, &url, err));
    STK_TRY(url == NULL ? 0 : stk_mirror_open(url, &f->mirror, err));
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/stoker-logs-XXXXXX");
    if (url == NULL || mkdtemp(f->folder) == NULL) { /* NULL: its engine is here */
        f->folder[0] = '\0';
        return url == NULL ? 0 : stk_err_set(err, STK_E_ENV, "can't make a folder in /tmp");
    }
    f->read = read;
    f->logs = logs;
    f->run = stk_view_get_run(read->view)->id;
    f->fetch_ms = stk_clock_boot_ms() + FETCH_MS;
    STK_TRY(follow_new(f, err));
    hear_so_far(f, stk_cli_flag(cli, "follow") ? 0 : SO_FAR_MS);
    logs->wait = wait_for_more;
    logs->live = live_folder;
    logs->arg = f;
    return 0;
}

void stk_cli_follow_close(stk_cli_follow *f)
{
    if (f == NULL) {
        return;
    }
    for (uint32_t i = 0; i < f->n_places; i++) {
        stk_remote_follow_close(f->places[i].follow);
    }
    if (f->folder[0] != '\0') {
        (void)stk_file_remove_tree(f->folder, NULL);
    }
    stk_mirror_close(f->mirror);
    free(f->attempts);
    stk_arena_free(f->arena);
    free(f);
}
