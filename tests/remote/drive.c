/* The remote backend without an engine: reads a document with jobs from standard input, starts
 * them, prints what is reported as lines of JSON, and ends when all jobs have. For tests/remote. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/remote/remote.h"
#include "base/json.h"
#include "sys/clock.h"
#include "sys/file.h"

typedef struct drive {
    stk_arena *arena;
    stk_store *store;
    stk_backend *backend;
    const char *run;
    uint32_t n_left;
} drive;

static void die(const stk_err *err)
{
    fprintf(stderr, "drive: %s\n", err->text);
    exit(2);
}

static const char *text(const stk_json *map, const char *key)
{
    return stk_json_text(stk_json_get(map, key));
}

static int64_t number(const stk_json *map, const char *key, int64_t otherwise)
{
    int64_t n = otherwise;
    return stk_json_int(stk_json_get(map, key), &n) ? n : otherwise;
}

static const char *const *texts(drive *d, const stk_json *list)
{
    uint32_t n = list == NULL ? 0 : list->n;
    const char **all = stk_arena_array(d->arena, n + 1, sizeof *all);
    for (uint32_t i = 0; i < n; i++) {
        all[i] = stk_json_text(&list->items[i]);
    }
    return all;
}

static void start(drive *d, const stk_json *job)
{
    stk_err err = {0};
    uint32_t task = (uint32_t)number(job, "task", 0), attempt = (uint32_t)number(job, "attempt", 1);
    const char *dir = stk_arena_printf(d->arena, "%s/runs/%s/%s/%u/%u", stk_store_path(d->store),
                                       d->run, text(job, "step"), task, attempt);
    const char *path = stk_arena_printf(d->arena, "%s/task.json", dir);
    const char *doc = stk_json_dump_in(stk_json_get(job, "task_json"), d->arena);
    const stk_json *attach = stk_json_get(job, "attach");
    if (stk_file_mkdirs(dir, 0755, &err) < 0 ||
        stk_file_write(path, doc, strlen(doc), 0644, &err) < 0) {
        die(&err);
    }
    stk_resources resources = {.cpu_milli = -1,
                               .memory_bytes = -1,
                               .base = {.gpu_count = number(job, "gpu_count", -1),
                                        .gpu_memory_bytes = -1,
                                        .gpu_class = text(job, "gpu_class"),
                                        .gpu_vendor = text(job, "gpu_vendor")}};
    stk_job_elsewhere elsewhere = {.image = "image",
                                   .resources = &resources,
                                   .options = "{}",
                                   .secrets = texts(d, stk_json_get(job, "secrets")),
                                   .attach = attach != NULL && attach->truth};
    stk_job j = {.id = (uint32_t)number(job, "id", task),
                 .attempt = attempt,
                 .step = text(job, "step"),
                 .nodes = (uint32_t)number(job, "nodes", 1),
                 .dir = dir,
                 .argv = texts(d, stk_json_get(job, "argv")),
                 .cwd = text(job, "cwd"),
                 .env = texts(d, stk_json_get(job, "env")),
                 .timeout_ms = number(job, "timeout_ms", 0),
                 .notice_ms = number(job, "notice_ms", 0),
                 .grace_ms = number(job, "grace_ms", 5000),
                 .checkpoints = text(job, "checkpoints"),
                 .elsewhere = &elsewhere};
    if (d->backend->ops->start(d->backend, &j, &err) < 0) {
        printf("{\"kind\":\"refused\",\"id\":%u,\"text\":\"%s\"}\n", j.id, err.text);
    } else {
        d->n_left++;
    }
}

static void show(drive *d, const stk_report *r)
{
    static const char *const kinds[] = {"started", "ended", "note"};
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_buf_char(&buf, '{');
    stk_json_put_text(&buf, "kind", r->waits_no_more ? "waits no more" : kinds[r->kind]);
    stk_json_put_int(&buf, "id", r->id);
    stk_json_put_int(&buf, "attempt", r->attempt);
    if (r->kind == STK_REPORT_ENDED) {
        stk_json_put_bool(&buf, "ok", r->outcome.ok);
        stk_json_put_text(&buf, "failure", stk_failure_word(r->outcome.failure));
        stk_json_put_int(&buf, "exit_status", r->outcome.exit_status);
        stk_json_put_int(&buf, "signal", r->outcome.signal);
        stk_json_put_int(&buf, "cpu_us", r->outcome.cpu_us);
        stk_json_put_int(&buf, "n_devices", r->outcome.n_devices);
        d->n_left--;
    }
    stk_json_put_text(&buf, "text", r->kind == STK_REPORT_ENDED ? r->outcome.text : r->text);
    stk_buf_text(&buf, "}\n");
    (void)fwrite(buf.data, 1, buf.len, stdout);
    (void)fflush(stdout);
}

/* "stop": [{"id", "after_ms" or "when": the file that is there, "grace_ms"}]; "leave_ms": to let go
 * of all then. */
static void loop(drive *d, const stk_json *doc)
{
    int64_t begin = stk_clock_mono_ms(&stk_clock_real);
    int64_t leave = number(doc, "leave_ms", -1);
    const stk_json *stops = stk_json_get(doc, "stop");
    uint64_t stopped = 0;
    stk_report r;
    while (d->n_left > 0) {
        int64_t now = stk_clock_mono_ms(&stk_clock_real) - begin;
        for (uint32_t i = 0; stops != NULL && i < stops->n; i++) {
            const stk_json *s = &stops->items[i];
            const char *when = text(s, "when");
            bool is_due = when != NULL ? access(when, F_OK) == 0 : now >= number(s, "after_ms", 0);
            if ((stopped >> i & 1) == 0 && is_due) {
                stopped |= 1ull << i;
                d->backend->ops->stop(d->backend, (uint32_t)number(s, "id", 0),
                                      number(s, "grace_ms", 5000), STK_FAIL_CANCELLED);
            }
        }
        if (leave >= 0 && now >= leave) {
            return;
        }
        struct pollfd fd = {.fd = d->backend->ops->fd(d->backend), .events = POLLIN};
        (void)poll(&fd, 1, 20);
        while (d->backend->ops->next(d->backend, &r)) {
            show(d, &r);
        }
        d->backend->ops->recorded(d->backend);
    }
}

int main(void)
{
    static const stk_json_limits limits = {64 << 20, 4 << 20, 32};
    stk_err err = {0};
    STK_TEXT_AUTO input = NULL;
    size_t len = 0;
    stk_json doc;
    drive d = {.arena = stk_arena_new(0)};
    if (stk_file_read_fd(0, "jobs", 64 << 20, &input, &len, &err) < 0 ||
        stk_json_parse(input, len, "jobs", &limits, d.arena, &doc, &err) < 0 ||
        stk_store_open(text(&doc, "store"), STK_STORE_CREATE, &d.store, &err) < 0) {
        die(&err);
    }
    d.run = text(&doc, "run");
    stk_remote_config config = {.kind = &stk_driver_fake,
                                .driver = {.stack = "fake", .run = d.run, .carry = "image"},
                                .store_path = stk_store_path(d.store),
                                .share_url = text(&doc, "share"),
                                .run = d.run,
                                .pipeline = "p",
                                .code_digest = text(&doc, "code_digest"),
                                .code_root = text(&doc, "code_root")};
    if (stk_remote_open(&config, &d.backend, &err) < 0) {
        die(&err);
    }
    const stk_json *jobs = stk_json_get(&doc, "jobs");
    for (uint32_t i = 0; i < jobs->n; i++) {
        start(&d, &jobs->items[i]);
    }
    loop(&d, &doc);
    d.backend->ops->close(d.backend);
    stk_store_close(d.store);
    stk_arena_free(d.arena);
    return 0;
}
