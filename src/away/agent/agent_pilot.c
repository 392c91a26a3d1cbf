/* The pilot's own thread: orders, room, programs and news. */
#include "away/agent/agent_pilot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/remote/remote_lines.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/turn.h"
#include "sys/clock.h"
#include "sys/file.h"
/* last */
#include "sys/faults.h"

enum {
    LOOK_MS = 50,   /* between two looks for orders */
    TERM_MS = 1000, /* from a program's end by SIGTERM to the pilot's own, if that is the cause */
    IDLE_MS = 5000, /* it ends after so long without work */
    NEWS_BYTES = 16 << 20,
    AHEAD = 16 /* attempts that are set up before there is room for them */
};

static int64_t mono_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

static int64_t env_number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL || *text == '\0' ? otherwise : strtoll(text, NULL, 10);
}

static const char *file_of(const pilot *p, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s", p->folder, name);
    return ret;
}

static void put_news(pilot *p, const char *what, const piece *one)
{
    stk_buf *b = &p->news;
    stk_json_open(b, NULL, '{');
    stk_json_put_text(b, what, one->a.key);
    if (strcmp(what, "ended") == 0) {
        stk_json_put_int(b, "status", one->rc == STK_E_BUSY ? STK_AGENT_CLAIMED : 0);
        stk_json_put_int(b, "ms", one->began_ms > 0 ? mono_ms() - one->began_ms : 0);
    }
    stk_json_close(b, '}');
    stk_buf_char(b, '\n');
}

static void put_number_news(pilot *p, const char *what, int64_t number)
{
    stk_json_open(&p->news, NULL, '{');
    stk_json_put_int(&p->news, what, number);
    stk_json_close(&p->news, '}');
    stk_buf_char(&p->news, '\n');
}

/* The engine waits for them, so a failing share is tried again. */
static void write_news(pilot *p)
{
    char path[PATH_MAX];
    stk_err err = {0};
    if (p->news.len > 0 && stk_remote_lines_add(file_of(p, "news", path), &p->news, &err) == 0) {
        stk_buf_done(&p->news);
        p->news = (stk_buf)STK_BUF_INIT(NEWS_BYTES);
    }
}

/* --- orders --- */

static piece *find_piece(pilot *p, const char *key)
{
    for (piece *one = p->first; one != NULL; one = one->next) {
        if (strcmp(one->a.key, key) == 0) {
            return one;
        }
    }
    return NULL;
}

static void free_piece(piece *one)
{
    stk_lease_drop(&one->a.lease);
    stk_mask_free(one->a.mask);
    stk_arena_free(one->a.arena);
    free(one);
}

static int add_piece(pilot *p, const stk_json *order, const char *key, stk_err *err)
{
    piece *one = calloc(1, sizeof *one);
    stk_arena *arena = stk_arena_new(0);
    if (one == NULL || arena == NULL) {
        free(one);
        stk_arena_free(arena);
        return stk_err_nomem(err);
    }
    one->pilot = p;
    one->id = p->next_id++;
    one->cpu_milli = MIN(stk_json_get_whole(order, "cpu_milli", 0), p->cpu_milli);
    one->memory_bytes = stk_json_get_whole(order, "memory", 0);
    one->a = (agent){.key = stk_arena_dup(arena, key),
                     .host_milli = p->a->host_milli,
                     .host_bytes = p->a->host_bytes,
                     .url = p->a->url,
                     .arena = arena,
                     .share = p->a->share,
                     .accel = p->accel,
                     .signal_fd = -1,
                     .told_fd = p->a->told_fd,
                     .stop_fd = p->a->stop_fd,
                     .is_of_pilot = true,
                     .started_ms = -1,
                     .ended_ms = -1,
                     .n_oom = -1,
                     .checkpoints = {.done_fd = -1},
                     .outcome = STK_OUTCOME_UNKNOWN};
    int rc = stk_err_if_null(one->a.key, err);
    if (rc == 0) {
        rc = stk_pilot_read_devices(p, one, order, err);
    }
    if (rc < 0) {
        free_piece(one);
        return rc;
    }
    *p->end = one;
    p->end = &one->next;
    p->n_pieces++;
    return 0;
}

static void stop_piece(pilot *p, piece *one, int64_t grace_ms, stk_failure why)
{
    one->is_stopped = true;
    one->why = why;
    one->grace_ms = grace_ms;
    if (one->phase == PIECE_RUNS) {
        p->backend->ops->stop(p->backend, one->id, grace_ms, why);
    } else if (one->phase == PIECE_QUEUED) { /* nobody has claimed it */
        put_news(p, "stopped", one);
        one->phase = PIECE_OVER;
    }
}

static int take_order(void *arg, const stk_json *order, int64_t end, stk_err *err)
{
    pilot *p = arg;
    const char *run = stk_json_get_text(order, "run"), *stop = stk_json_get_text(order, "stop");
    (void)end;
    if (run != NULL) {
        return add_piece(p, order, run, err);
    }
    piece *one = stop == NULL ? NULL : find_piece(p, stop);
    int why = stk_failure_of(stk_text_or(stk_json_get_text(order, "why"), ""));
    if (one != NULL) {
        stop_piece(p, one, stk_json_get_whole(order, "grace_ms", 0),
                   why < 0 ? STK_FAIL_CANCELLED : (stk_failure)why);
    }
    p->is_ending = p->is_ending || stk_json_get(order, "end") != NULL;
    if (stk_json_get(order, "stay_ms") != NULL) {
        p->stays_ms = mono_ms() + stk_json_get_whole(order, "stay_ms", 0);
    }
    return 0;
}

static void read_orders(pilot *p)
{
    char path[PATH_MAX];
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (mono_ms() < p->next_look_ms) {
        return;
    }
    if (!stk_agent_was_told(p->a)) {
        (void)stk_remote_lines_read(file_of(p, "orders", path), &p->orders_at, arena, take_order, p,
                                    &err);
    }
    p->next_look_ms = mono_ms() + LOOK_MS;
}

/* --- pieces --- */

/* Short programs would wait for their setups, so a few are set up before there is room. */
static void set_up_ahead(pilot *p)
{
    for (piece *one = p->first; one != NULL && p->n_ahead < AHEAD && !stk_agent_was_told(p->a);
         one = one->next) {
        if (one->phase == PIECE_QUEUED) {
            one->phase = PIECE_SETUP;
            p->n_ahead++;
            stk_pilot_give(p, one);
        }
    }
}

static void save_piece(pilot *p, piece *one)
{
    one->phase = PIECE_SAVES;
    stk_pilot_give(p, one);
}

static void start_program(pilot *p, piece *one)
{
    stk_err err = {0};
    p->n_ahead--;
    one->job.id = one->id;
    one->job.memory_bytes = one->memory_bytes;
    one->a.started_ms = stk_clock_wall_ms(&stk_clock_real);
    STK_FAILPOINT("agent.task.before");
    if (p->backend->ops->start(p->backend, &one->job, &err) < 0) {
        stk_agent_fail(&one->a, STK_FAIL_START, err.text);
        save_piece(p, one);
        return;
    }
    p->used_cpu += one->cpu_milli;
    p->used_memory += one->memory_bytes;
    one->began_ms = mono_ms();
    one->phase = PIECE_RUNS;
    put_news(p, "began", one);
}

static bool has_room(const pilot *p, const piece *one)
{
    return p->used_cpu == 0 ||
           (p->used_cpu + one->cpu_milli <= p->cpu_milli &&
            (p->memory_bytes == 0 || p->used_memory + one->memory_bytes <= p->memory_bytes));
}

/* False: its devices aren't free. */
static bool start_with_devices(pilot *p, piece *one)
{
    stk_err err = {0};
    int rc = stk_pilot_lease(p, one, &err);
    if (rc == STK_E_BUSY) {
        return false;
    }
    if (rc < 0) {
        char text[1400];
        p->n_ahead--;
        stk_agent_fail(&one->a, stk_agent_class_of(rc),
                       stk_err_format(&err, text, (int)sizeof text));
        save_piece(p, one);
        return true;
    }
    start_program(p, one);
    return true;
}

/* In their order, so that a large one isn't passed by for ever. */
static void start_ready(pilot *p)
{
    bool is_full = false, is_told = stk_agent_was_told(p->a);
    for (piece *one = p->first; one != NULL; one = one->next) {
        if (one->phase != PIECE_READY) {
            continue;
        }
        if (one->is_stopped || is_told) {
            p->n_ahead--;
            stk_agent_fail(&one->a, one->is_stopped ? one->why : STK_FAIL_PREEMPTED,
                           "stopped before its program started");
            save_piece(p, one);
        } else {
            is_full = is_full || !has_room(p, one) || !start_with_devices(p, one);
        }
    }
}

static void take_done(pilot *p)
{
    for (piece *one = stk_pilot_take_done(p), *next; one != NULL; one = next) {
        next = one->next_work;
        if (one->phase == PIECE_SAVES) {
            put_news(p, "ended", one);
            one->phase = PIECE_OVER;
            continue;
        }
        if (one->rc == 0) {
            one->phase = PIECE_READY;
            continue;
        }
        p->n_ahead--;
        if (one->rc == STK_E_CANCELLED) { /* its outcome says why */
            save_piece(p, one);
            continue;
        }
        fprintf(stderr, "stoker agent: %s: %s\n", one->a.key, one->err.text);
        put_news(p, "ended", one);
        one->phase = PIECE_OVER;
    }
}

static piece *find_id(pilot *p, uint32_t id)
{
    piece *one = p->first;
    while (one != NULL && one->id != id) {
        one = one->next;
    }
    return one;
}

/* Its time is over: what runs is told, what waits is left to others. */
static void hear_signals(pilot *p)
{
    bool was_told = stk_agent_was_told(p->a);
    if (!stk_agent_hear(p->a)) {
        return;
    }
    for (piece *one = p->first; one != NULL; one = one->next) {
        if (!was_told) {
            (void)atomic_fetch_add(&one->a.n_told, 1);
        }
        if (!was_told && one->phase == PIECE_RUNS) {
            p->backend->ops->stop(p->backend, one->id, one->a.order.grace_ms, STK_FAIL_PREEMPTED);
        } else if (one->phase == PIECE_QUEUED) {
            one->phase = PIECE_OVER;
        }
    }
}

/* Did SIGTERM that nobody here sent end it? Slurm's reaches the programs as well as the pilot,
 * perhaps first: then it is the pilot's end that ended them. */
static bool is_ended_by_term(const stk_outcome *o)
{
    bool is_by_term = o->signal == SIGTERM || o->exit_status == 128 + SIGTERM;
    return !o->ok && is_by_term && o->failure != STK_FAIL_TIMEOUT &&
           o->failure != STK_FAIL_CANCELLED;
}

/* Saves it when it is known whether the pilot is told to end, too. */
static void settle(pilot *p, piece *one)
{
    bool is_told = stk_agent_was_told(p->a);
    if (is_ended_by_term(&one->a.outcome)) {
        if (!is_told && mono_ms() < one->ended_ms + TERM_MS) {
            one->phase = PIECE_ENDED;
            return;
        }
        if (is_told) {
            one->a.outcome.failure = STK_FAIL_PREEMPTED;
            (void)snprintf(one->a.outcome.text, sizeof one->a.outcome.text,
                           "its pilot was told to end");
        }
    }
    save_piece(p, one);
}

static void settle_ended(pilot *p)
{
    for (piece *one = p->first; one != NULL; one = one->next) {
        if (one->phase == PIECE_ENDED) {
            settle(p, one);
        }
    }
}

static void take_reports(pilot *p)
{
    stk_report r;
    while (p->backend->ops->next(p->backend, &r)) {
        piece *one = find_id(p, r.id);
        if (one == NULL) {
            continue;
        }
        if (r.kind == STK_REPORT_STARTED) {
            one->pid = (pid_t)r.pid;
        } else if (r.kind == STK_REPORT_ENDED) {
            one->a.outcome = r.outcome;
            one->ended_ms = mono_ms();
            one->a.ended_ms = one->a.started_ms + one->ended_ms - one->began_ms;
            p->used_cpu -= one->cpu_milli;
            p->used_memory -= one->memory_bytes;
            p->next_lease_ms = 0;
            settle(p, one);
        }
    }
}

static void sweep(pilot *p)
{
    piece **at = &p->first;
    while (*at != NULL) {
        piece *one = *at;
        if (one->phase == PIECE_OVER) {
            *at = one->next;
            free_piece(one);
            p->n_pieces--;
            p->idle_since_ms = mono_ms();
        } else {
            at = &one->next;
        }
    }
    p->end = at;
}

/* --- the whole --- */

static bool is_pilot_over(const pilot *p)
{
    int64_t idle = env_number("STOKER_PILOT_IDLE_MS", IDLE_MS);
    return p->n_pieces == 0 && (p->is_ending || stk_agent_was_told(p->a) ||
                                mono_ms() >= MAX(p->idle_since_ms + idle, p->stays_ms));
}

static void take_turn(pilot *p)
{
    hear_signals(p);
    read_orders(p);
    take_reports(p);
    settle_ended(p);
    take_done(p);
    start_ready(p);
    set_up_ahead(p);
    stk_pilot_follow(p);
    stk_pilot_reap(p);
    sweep(p);
    write_news(p);
    int64_t wait = p->backend->ops->wait_ms(p->backend);
    int64_t most = MAX(p->next_look_ms - mono_ms(), 0);
    struct pollfd fds[3] = {{.fd = p->backend->ops->fd(p->backend), .events = POLLIN},
                            {.fd = p->a->signal_fd, .events = POLLIN},
                            {.fd = p->done_fd, .events = POLLIN}};
    stk_turn_begin();
    (void)poll(fds, 3, (int)(wait < 0 ? most : MIN(wait, most)));
}

static int open_pilot(pilot *p, stk_err *err)
{
    stk_local_config config = {.server_fd = -1};
    char host[256] = "";
    const char *folder = stk_share_folder(p->a->share);
    if (folder == NULL) {
        return stk_err_set(err, STK_E_USAGE, "a pilot needs a store that is a folder, not %s",
                           p->a->url);
    }
    p->folder = stk_arena_printf(p->a->arena, "%s/%s", folder, p->a->key);
    config.run = stk_arena_printf(p->a->arena, "pilot-%d", (int)getpid());
    STK_TRY(stk_err_if_null(config.run, err));
    STK_TRY(stk_err_if_null(p->folder, err));
    STK_TRY(stk_pilot_devices_open(p, err));
    config.accel = p->accel;
    STK_TRY(stk_backend_local_open(&config, &p->backend, err));
    stk_agent_read_host(p->a);
    p->cpu_milli = env_number("STOKER_PILOT_CPUS", 1) * 1000;
    p->memory_bytes = env_number("STOKER_PILOT_MEMORY", 0);
    (void)gethostname(host, sizeof host - 1);
    stk_json_open(&p->news, NULL, '{');
    stk_json_put_text(&p->news, "at", stk_text_or(getenv("SLURMD_NODENAME"), host));
    stk_json_put_int(&p->news, "gpu_memory", stk_pilot_device_bytes(p));
    stk_json_close(&p->news, '}');
    stk_buf_char(&p->news, '\n');
    return stk_pilot_workers_begin(p, err);
}

/* From `closed` on it takes nothing, and what its orders name without a claim is anybody's. */
int stk_agent_pilot(agent *a, stk_err *err)
{
    pilot p = {.a = a, .done_fd = -1, .news = STK_BUF_INIT(NEWS_BYTES)};
    p.end = &p.first;
    p.idle_since_ms = mono_ms();
    int rc = open_pilot(&p, err);
    while (rc == 0 && !is_pilot_over(&p)) {
        take_turn(&p);
    }
    if (rc == 0) {
        STK_FAILPOINT("agent.pilot.closed");
        put_number_news(&p, "closed", p.orders_at);
        write_news(&p);
        stk_pilot_workers_end(&p);
    }
    if (p.backend != NULL) {
        p.backend->ops->close(p.backend);
    }
    stk_pilot_devices_close(&p);
    stk_buf_done(&p.news);
    return rc;
}
