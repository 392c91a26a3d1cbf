/* Live metrics and logs: every few seconds what the program and its ranks have measured and printed
 * since goes to the share. end.json brings all of it once more, so nothing here is waited for. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "away/remote/remote_live.h"
#include "store/metrics/metrics.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { FILES = 4096, OFTEN = 40, SELDOM = 3 }; /* looks; later, logs go with each third one */

typedef struct sending {
    agent *a;
    stk_arena *arena;
    stk_live_file *files;
    uint32_t n, cap, n_looks;
} sending;

static void send_one(sending *s, const char *name, int64_t most)
{
    uint32_t i = 0;
    while (i < s->n && strcmp(s->files[i].name, name) != 0) {
        i++;
    }
    if (i == s->n) {
        stk_live_file *files = stk_arena_grow(s->arena, s->files, s->n, sizeof *files, &s->cap);
        const char *copy = stk_arena_dup(s->arena, name);
        if (files == NULL || copy == NULL || s->n >= FILES) {
            return;
        }
        s->files = files;
        files[s->n++] = (stk_live_file){.name = copy, .most = most};
    }
    agent *a = s->a;
    if (stk_live_send(a->live.share, a->key, a->order.dir, &s->files[i])) {
        a->live.has_sent = true;
    }
}

static int send_events(void *arg, const stk_dir_seen *seen, stk_err *err)
{
    STK_TEXT_AUTO name = stk_file_join(STK_METRICS_EVENTS, seen->below);
    (void)err;
    if (S_ISREG(seen->st->st_mode) && strstr(seen->name, ".tfevents.") != NULL && name != NULL) {
        send_one(arg, name, STK_LIVE_BYTES);
    }
    return 0;
}

/* The attempt's own files are node 0's. */
static void send_all(sending *s)
{
    STK_DIR_AUTO dir = {0};
    char name[512];
    if (s->a->node == 0) {
        STK_TEXT_AUTO events = stk_file_join(s->a->order.dir, STK_METRICS_EVENTS);
        send_one(s, STK_METRICS_FILE, STK_LIVE_BYTES);
        if (events != NULL && stk_file_exists(events)) {
            (void)!stk_dir_walk(events, send_events, s, NULL); /* else the next look may do */
        }
    }
    if (s->a->node == 0 && (s->n_looks++ < OFTEN || s->n_looks % SELDOM == 0)) {
        send_one(s, "stdout.log", STK_LIVE_LOG_BYTES);
        send_one(s, "stderr.log", STK_LIVE_LOG_BYTES);
    }
    if (stk_dir_read(s->a->order.dir, &dir, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        (void)snprintf(name, sizeof name, "%s/%s", dir.items[i].name, STK_METRICS_FILE);
        STK_TEXT_AUTO path = stk_file_join(s->a->order.dir, name);
        if (strncmp(name, "rank-", 5) == 0 && path != NULL && stk_file_exists(path)) {
            send_one(s, name, STK_LIVE_BYTES);
        }
    }
}

static void *send_live(void *arg)
{
    agent *a = arg;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    sending s = {.a = a, .arena = arena};
    struct pollfd over = {.fd = a->live.over_fd, .events = POLLIN};
    while (arena != NULL && poll(&over, 1, STK_LIVE_MS) != 1) {
        send_all(&s);
    }
    return NULL;
}

/* An exported job has no engine that would look. */
void stk_agent_live_begin(agent *a)
{
    agent_live *l = &a->live;
    if (stk_agent_has_refs() || stk_share_open(a->url, &l->share, NULL) < 0) {
        return;
    }
    stk_share_hurry(l->share);
    l->over_fd = eventfd(0, EFD_CLOEXEC);
    l->is_running = l->over_fd >= 0 && pthread_create(&l->thread, NULL, send_live, a) == 0;
    if (!l->is_running) {
        stk_file_close(&l->over_fd);
        stk_share_close(l->share);
    }
}

void stk_agent_live_end(agent *a)
{
    agent_live *l = &a->live;
    if (l->is_running) {
        (void)!write(l->over_fd, &(uint64_t){1}, sizeof(uint64_t));
        stk_share_cancel(l->share);
        (void)pthread_join(l->thread, NULL);
        stk_file_close(&l->over_fd);
        stk_share_close(l->share);
        l->is_running = false;
    }
}
