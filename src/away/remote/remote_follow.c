#include "away/remote/remote_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/remote/remote_order.h"
#include "away/remote/remote_private.h"

/* Of a step that prints all the time this much still counts as quiet: a log's past comes faster. */
enum { TRICKLE = 4096 };

typedef struct followed {
    struct followed *next;
    stk_remote_job job;
    stk_resources resources;
    char name[STK_REMOTE_NAME + 1];
    const char *path;
    bool *mid_line;
    bool is_heard; /* its driver has reported something of it */
} followed;

struct stk_remote_follow {
    stk_arena *arena;
    stk_driver *driver;
    followed *first;
    uint32_t n;
    char *note;
    size_t n_trickled; /* bytes of logs since then */
    int64_t heard_ms;  /* when more than a trickle was reported last (monotonic) */
};

static void take_report(void *arg, const stk_remote_report *report)
{
    stk_remote_follow *f = arg;
    followed *one = f->first;
    while (one != NULL && one->job.id != report->id) {
        one = one->next;
    }
    if (one == NULL) {
        return;
    }
    if (report->state == STK_REMOTE_LOG) {
        f->n_trickled += report->n;
    }
    if (!one->is_heard || report->state != STK_REMOTE_LOG || f->n_trickled >= TRICKLE) {
        f->heard_ms = stk_remote_now_ms();
        f->n_trickled = 0;
    }
    one->is_heard = true;
    if (report->state == STK_REMOTE_NOTE) {
        free(f->note);
        if (asprintf(&f->note, "step '%s': %s", one->job.step, report->text) < 0) {
            f->note = NULL;
        }
    }
    if (report->state == STK_REMOTE_LOG && report->node < one->job.nodes) {
        stk_remote_add_log(one->path, one->job.nodes, one->mid_line, report);
    }
}

int stk_remote_follow_open(const stk_driver_kind *kind, const stk_driver_config *config,
                           stk_remote_follow **ret, stk_err *err)
{
    stk_arena *arena = stk_arena_new(0);
    stk_remote_follow *f = arena == NULL ? NULL : stk_arena_alloc(arena, sizeof *f);
    if (f == NULL) {
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    *f = (stk_remote_follow){.arena = arena, .heard_ms = stk_remote_now_ms()};
    int rc = kind->open(config, &f->driver, err);
    if (rc < 0) {
        stk_arena_free(arena);
        return rc;
    }
    f->driver->say = take_report;
    f->driver->say_arg = f;
    *ret = f;
    return 0;
}

int stk_remote_follow_add(stk_remote_follow *f, const stk_remote_followed *from, stk_err *err)
{
    static const char *const argv[] = {"-", NULL}, *const none[] = {NULL};
    followed *one = stk_arena_alloc(f->arena, sizeof *one);
    uint32_t nodes = from->nodes == 0 ? 1 : from->nodes;
    STK_TRY(stk_err_if_null(one, err));
    *one = (followed){.resources = STK_RESOURCES_UNSET,
                      .path = stk_arena_dup(f->arena, from->path),
                      .mid_line = stk_arena_array(f->arena, nodes, sizeof *one->mid_line)};
    stk_remote_name(from->run, from->step, from->task, from->attempt, one->name);
    one->job = (stk_remote_job){
        .id = f->n++,
        .run = stk_arena_dup(f->arena, from->run),
        .pipeline = stk_arena_dup(f->arena, from->pipeline),
        .step = stk_arena_dup(f->arena, from->step),
        .task = from->task,
        .attempt = from->attempt,
        .name = one->name,
        .image = "-",
        .resources = &one->resources,
        .options = stk_arena_dup(f->arena, from->options == NULL ? "{}" : from->options),
        .argv = argv,
        .env = none,
        .folders = none,
        .carry = "image",
        .carry_at = "/stoker",
        .key = stk_arena_printf(f->arena, "runs/%s/%s/%u/%u", from->run, from->step, from->task,
                                from->attempt),
        .nodes = nodes,
        .attach = true,
        .reads = true};
    if (one->path == NULL || one->mid_line == NULL || one->job.options == NULL ||
        one->job.key == NULL) {
        return stk_err_nomem(err);
    }
    memset(one->mid_line, 0, nodes * sizeof *one->mid_line);
    f->heard_ms = stk_remote_now_ms();
    STK_TRY(f->driver->ops->submit(f->driver, &one->job, err));
    one->next = f->first;
    f->first = one;
    return 0;
}

int stk_remote_follow_turn(stk_remote_follow *f, int64_t ms, stk_err *err)
{
    return f->driver->ops->turn(f->driver, -1, ms, err);
}

char *stk_remote_follow_note(stk_remote_follow *f)
{
    char *note = f->note;
    f->note = NULL;
    return note;
}

bool stk_remote_follow_is_quiet(const stk_remote_follow *f, int64_t ms)
{
    for (const followed *one = f->first; one != NULL; one = one->next) {
        if (!one->is_heard) {
            return false;
        }
    }
    return stk_remote_now_ms() - f->heard_ms >= ms;
}

void stk_remote_follow_close(stk_remote_follow *f)
{
    if (f != NULL) {
        f->driver->ops->close(f->driver);
        free(f->note);
        stk_arena_free(f->arena);
    }
}
