/* The end of a task's container: how the program ended, who ended it, and what it used. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include "base/text.h"
#include "image/contain/contain_task.h"
#include "sys/file.h"

void stk_contain_write_state(const contain_task *t, bool at_end)
{
    char path[4200];
    STK_BUF_AUTO out = STK_BUF_INIT(64 << 10);
    const stk_contain_end *e = t->end;
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "id", t->id);
    stk_json_put_text(&out, "name", t->spec.name);
    stk_json_put_text(&out, "image", t->spec.shown);
    stk_json_put_text(&out, "engine", t->engine.name);
    stk_json_put_text(&out, "socket", t->engine.socket);
    stk_json_put_int(&out, "pid", t->pid > 0 ? t->pid : -1);
    stk_json_put_text(&out, "cgroup", stk_text_if_any(t->cgroup));
    stk_json_put_int(&out, "created",
                     stk_clock_wall_ms(&stk_clock_real) - contain_now_ms() + t->begin_ms);
    stk_json_open(&out, "start_ms", '{');
    stk_json_put_int(&out, "create", t->create_ms);
    stk_json_put_int(&out, "start", t->started_ms);
    stk_json_put_int(&out, "runner", t->runner_ms);
    stk_json_close(&out, '}');
    if (at_end) {
        stk_json_put_bool(&out, "oom", e->oom);
        stk_json_put_int(&out, "peak_bytes", e->peak_bytes);
        stk_json_put_int(&out, "shm_bytes", e->shm_bytes);
        stk_json_put_int(&out, "shm_free_bytes", e->shm_free_bytes);
        stk_json_put_int(&out, "exit", e->exit_status);
        stk_json_put_int(&out, "signal", e->signal);
        stk_json_put_int(&out, "cpu_us", e->cpu_us);
        stk_json_put_text(&out, "ended_by", stk_text_if_any(e->by));
        stk_json_put_text(&out, "failed", stk_text_if_any(e->text));
    }
    stk_buf_text(&out, "}\n");
    (void)snprintf(path, sizeof path, "%s/container.json", t->spec.dir);
    if (!out.failed) { /* readers can do without the file */
        (void)stk_file_write_atomic(path, out.data, out.len, 0644, NULL);
    }
}

void stk_contain_look_at_group(contain_task *t)
{
    if (t->cgroup[0] != '\0') {
        t->end->oom = stk_contain_oom(t->cgroup, &t->knows_oom);
        t->end->peak_bytes = stk_contain_peak(t->cgroup);
    }
}

/* The container's processes aren't visible from here, so the engine's measurements count. */
static void look_by_engine(contain_task *t)
{
    contain_stats stats;
    if (t->pid <= 0) {
        stk_contain_stats(&t->engine, t->id, t->arena, &stats);
        t->end->cpu_us = stats.cpu_us;
        t->end->peak_bytes = stats.peak_bytes;
    }
}

/* We send our signals to the runner itself, so the engine's events show only other clients'
 * signals. */
void stk_contain_find_killer(contain_task *t, int told)
{
    contain_ending ending = {0};
    const char *name = t->spec.name;
    int64_t since_ms = stk_clock_wall_ms(&stk_clock_real) - contain_now_ms() + t->begin_ms;
    bool heard = stk_contain_ending(&t->engine, t->id, since_ms, &ending);
    t->end->oom |= !t->knows_oom && ending.oom;
    if (ending.how[0] != '\0') {
        (void)snprintf(t->end->by, sizeof t->end->by,
                       "container %s was stopped by another client of %s (%s)", name,
                       t->engine.name, ending.how);
    } else if (heard && !t->ended && !t->engine.is_podman && !t->end->oom) { /* Podman: `rm -f` */
        (void)snprintf(
            t->end->by, sizeof t->end->by,
            "the first process of container %s was killed on this host, not by a client of %s",
            name, t->engine.name);
    } else if (told > 0) {
        (void)snprintf(t->end->by, sizeof t->end->by,
                       "container %s was sent signal %d from outside", name, told);
    } else if (!t->ended) {
        (void)snprintf(t->end->by, sizeof t->end->by, "container %s was stopped from outside",
                       name);
    }
}

/* The mounts still exist here, because the runner waits for our answer. */
static void look_at_shm(contain_task *t)
{
    char path[64];
    struct statvfs fs;
    (void)snprintf(path, sizeof path, "/proc/%d/root/dev/shm", (int)t->pid);
    if (t->pid > 0 && statvfs(path, &fs) == 0) {
        t->end->shm_bytes = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
        t->end->shm_free_bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    }
}

void stk_contain_on_line(contain_task *t, const char *line, size_t n)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    int64_t number = 0;
    int64_t told =
        0; /* a signal that another client sent through the engine; ours use the socket */
    if (arena == NULL ||
        stk_json_parse(line, n, "stk-runner", &stk_engine_limits, arena, &root, NULL) < 0) {
        return;
    }
    const char *failed = stk_json_get_text(&root, "failed");
    if (failed != NULL) {
        (void)stk_json_int(stk_json_get(&root, "errno"), &number);
        stk_contain_explain_start(t, failed, (int)number);
        t->ended = true;
    } else if (stk_json_int(stk_json_get(&root, "ended"), &number)) {
        int64_t signal_number = 0;
        int64_t rss_kb = -1;
        (void)stk_json_int(stk_json_get(&root, "signal"), &signal_number);
        (void)stk_json_int(stk_json_get(&root, "rss_kb"), &rss_kb);
        (void)stk_json_int(stk_json_get(&root, "told"), &told);
        t->end->exit_status = (int)number;
        t->end->signal = (int)signal_number;
        t->ended = true;
        stk_contain_look_at_group(t);
        look_at_shm(t);
        look_by_engine(t);
        if (t->end->peak_bytes < 0 && rss_kb > 0) {
            t->end->peak_bytes = rss_kb * 1024;
        }
    }
    if (t->ended) {
        (void)send(t->conn, "a", 1, MSG_NOSIGNAL);
        (void)shutdown(t->conn, SHUT_WR);
    }
    if (told > 0 || (!t->knows_oom && t->end->signal == SIGKILL && t->spec.memory_bytes > 0)) {
        stk_contain_find_killer(t, (int)told);
    }
}

/* clean_up() removes the container afterwards. */
void stk_contain_lose_monitor(contain_task *t)
{
    t->is_lost = true;
    t->end->signal = SIGKILL;
    stk_contain_look_at_group(t);
    (void)snprintf(t->end->by, sizeof t->end->by,
                   "container %s was stopped, because the process of %s that monitors it (%s, pid "
                   "%d) was killed",
                   t->spec.name, t->engine.name, t->monitor_name, (int)t->monitor);
    (void)snprintf(t->end->text, sizeof t->end->text, "%s", t->end->by);
}
