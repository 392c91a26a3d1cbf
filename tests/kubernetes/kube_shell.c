/* The Kubernetes driver alone, without an engine: commands come as lines of JSON on standard input,
 * reports go out as lines of JSON. `kube_shell run OPTIONS RUN PENDING_MS`, `kube_shell manifest
 * CONFIG JOB` (or -: on standard input), `kube_shell check OPTIONS`. */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/kubernetes/kubernetes.h"
#include "base/json.h"
#include "base/text.h"

static const char *const failures[] = {
#define X(name, word, own) word,
#include "tbl/failures.def"
#undef X
};
static const char *const states[] = {"queued", "running", "ended", "failed", "log", "note"};

/* Begins a line; put_end ends and prints it. */
static stk_buf new_line(void)
{
    stk_buf line = STK_BUF_INIT(64 << 20);
    stk_json_open(&line, NULL, '{');
    return line;
}

static void put_end(stk_buf *line)
{
    stk_json_close(line, '}');
    assert(!line->failed);
    (void)puts(line->data);
    (void)fflush(stdout);
    stk_buf_done(line);
}

static void say(void *arg, const stk_remote_report *r)
{
    (void)arg;
    stk_buf line = new_line();
    stk_json_put_text(&line, "state", states[r->state]);
    stk_json_put_whole(&line, "id", r->id);
    stk_json_put_whole(&line, "attempt", r->attempt);
    stk_json_put_whole(&line, "node", r->node);
    stk_json_put_whole(&line, "exit_status", r->exit_status);
    stk_json_put_whole(&line, "signal", r->signal);
    stk_json_put_bool(&line, "oom", r->oom);
    stk_json_put_bool(&line, "is_hopeless", r->is_hopeless);
    stk_json_put_text(&line, "failure", failures[r->failure]);
    stk_json_put_text(&line, "text", r->text);
    if (r->data != NULL) {
        const stk_json data = {.text = r->data, .n = (uint32_t)r->n, .kind = STK_JSON_TEXT};
        stk_json_put(&line, "data", &data);
    }
    put_end(&line);
}

static void fail(const stk_err *err, int id)
{
    char text[1200];
    stk_buf line = new_line();
    stk_json_put_text(&line, "state", "error");
    stk_json_put_whole(&line, "id", id);
    stk_json_put_text(&line, "text", stk_err_format(err, text, sizeof text));
    put_end(&line);
}

static const char *const *texts_of(const stk_json *map, const char *key, stk_arena *arena)
{
    const stk_json *list = stk_json_get(map, key);
    const char **all = stk_arena_array(arena, (size_t)stk_json_n_items(list) + 1, sizeof *all);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        all[i] = stk_json_text(&list->items[i]);
    }
    return stk_json_is_list(list) ? all : NULL;
}

static stk_alternative read_alternative(const stk_json *from)
{
    return (stk_alternative){.gpu_count = stk_json_get_whole(from, "gpu_count", -1),
                             .gpu_memory_bytes = stk_json_get_whole(from, "gpu_memory_bytes", -1),
                             .gpu_class = stk_json_get_text(from, "gpu_class"),
                             .gpu_vendor = stk_json_get_text(from, "gpu_vendor")};
}

static void read_job(const stk_json *from, stk_arena *arena, stk_remote_job *job, stk_resources *r,
                     stk_alternative any_of[8])
{
    const stk_json *asked = stk_json_get(from, "resources");
    const stk_json *list = stk_json_get(asked, "any_of");
    const char *options = stk_json_dump_in(stk_json_get(from, "options"), arena);
    *r = (stk_resources){.cpu_milli = stk_json_get_whole(asked, "cpu_milli", -1),
                         .memory_bytes = stk_json_get_whole(asked, "memory_bytes", -1),
                         .base = read_alternative(asked),
                         .any_of = any_of};
    for (uint32_t i = 0; i < stk_json_n_items(list) && i < 8; i++) {
        any_of[r->n_any_of++] = read_alternative(&list->items[i]);
    }
    *job = (stk_remote_job){.id = (uint32_t)stk_json_get_whole(from, "id", 1),
                            .run = stk_text_or(stk_json_get_text(from, "run"), "r1"),
                            .pipeline = stk_text_or(stk_json_get_text(from, "pipeline"), "p"),
                            .step = stk_text_or(stk_json_get_text(from, "step"), "train"),
                            .task = (uint32_t)stk_json_get_whole(from, "id", 1),
                            .attempt = (uint32_t)stk_json_get_whole(from, "attempt", 1),
                            .name = stk_text_or(stk_json_get_text(from, "name"), "s-1"),
                            .image = stk_json_get_text(from, "image"),
                            .resources = r,
                            .options = stk_text_or(options, "{}"),
                            .argv = texts_of(from, "argv", arena),
                            .env = texts_of(from, "env", arena),
                            .secret = texts_of(from, "secret", arena),
                            .folders = texts_of(from, "folders", arena),
                            .carry = stk_json_get_text(from, "carry"),
                            .carry_at = stk_json_get_text(from, "carry_at"),
                            .nodes = (uint32_t)stk_json_get_whole(from, "nodes", 1),
                            .port = (int32_t)stk_json_get_whole(from, "port", 0),
                            .timeout_ms = stk_json_get_whole(from, "timeout_ms", 0),
                            .grace_ms = stk_json_get_whole(from, "grace_ms", 1000),
                            .attach = stk_json_is_true(stk_json_get(from, "attach")),
                            .look = stk_json_is_true(stk_json_get(from, "look"))};
}

static void submit(stk_driver *driver, const stk_json *command, stk_arena *arena)
{
    stk_remote_job job;
    stk_resources resources;
    stk_alternative any_of[8];
    stk_err err = {0};
    read_job(command, arena, &job, &resources, any_of);
    if (driver->ops->submit(driver, &job, &err) < 0) {
        fail(&err, (int)job.id);
    }
}

/* false: enough. */
static bool obey(stk_driver *driver, const char *line)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *command = stk_json_read(arena, line);
    const char *what = stk_text_or(stk_json_get_text(command, "do"), "close");
    uint32_t id = (uint32_t)stk_json_get_whole(command, "id", 1);
    if (strcmp(what, "submit") == 0) {
        submit(driver, command, arena);
    } else if (strcmp(what, "stop") == 0) {
        driver->ops->stop(driver, id, stk_json_get_whole(command, "grace_ms", 1000),
                          STK_FAIL_CANCELLED);
    } else if (strcmp(what, "forget") == 0) {
        driver->ops->forget(driver, id);
    }
    return strcmp(what, "close") != 0;
}

static int run(const char *options, const char *name, int64_t pending_ms)
{
    stk_driver_config config = {
        .stack = "test", .options = options, .run = name, .pending_ms = pending_ms};
    stk_driver *driver = NULL;
    stk_err err = {0};
    if (stk_driver_kubernetes.open(&config, &driver, &err) < 0) {
        fail(&err, 0);
        return 1;
    }
    driver->say = say;
    static char line[8 << 20];
    size_t n = 0;
    bool goes_on = true;
    (void)fcntl(0, F_SETFL, O_NONBLOCK);
    while (goes_on) {
        if (driver->ops->turn(driver, 0, 1000, &err) < 0) {
            fail(&err, 0);
            break;
        }
        ssize_t got = read(0, line + n, sizeof line - 1 - n);
        goes_on = got != 0;
        n += got > 0 ? (size_t)got : 0;
        line[n] = '\0';
        for (char *end; goes_on && (end = strchr(line, '\n')) != NULL;) {
            *end = '\0';
            goes_on = obey(driver, line);
            n -= (size_t)(end + 1 - line);
            memmove(line, end + 1, n + 1);
        }
    }
    driver->ops->close(driver);
    return 0;
}

static int manifest(const char *config_text, const char *job_text)
{
    static char input[8 << 20];
    if (strcmp(job_text, "-") == 0) {
        input[fread(input, 1, sizeof input - 1, stdin)] = '\0';
        job_text = input;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *c = stk_json_read(arena, config_text);
    stk_remote_job job;
    stk_resources resources;
    stk_alternative any_of[8];
    stk_err err = {0};
    const char **documents = NULL;
    uint32_t n = 0;
    stk_driver_config config = {.stack = "test",
                                .options = "{}",
                                .run = "r1",
                                .carry = stk_json_get_text(c, "carry"),
                                .runner_image = stk_json_get_text(c, "runner_image"),
                                .carry_volume = stk_json_get_text(c, "carry_volume")};
    read_job(stk_json_read(arena, job_text), arena, &job, &resources, any_of);
    int rc = stk_driver_kubernetes.manifest(&config, &job, arena, &documents, &n, &err);
    if (rc < 0) {
        fail(&err, 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)puts(stk_json_dump_in(stk_json_read(arena, documents[i]), arena));
    }
    return rc < 0;
}

static void tell(void *arg, bool is_good, const char *text)
{
    (void)arg;
    stk_buf line = new_line();
    stk_json_put_bool(&line, "good", is_good);
    stk_json_put_text(&line, "text", text);
    put_end(&line);
}

int main(int argc, char **argv)
{
    stk_err err = {0};
    if (argc == 5 && strcmp(argv[1], "run") == 0) {
        return run(argv[2], argv[3], strtoll(argv[4], NULL, 10));
    }
    if (argc == 4 && strcmp(argv[1], "manifest") == 0) {
        return manifest(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "check") == 0) {
        stk_driver_config config = {.stack = "test", .options = argv[2], .run = "r1"};
        int rc = stk_driver_kubernetes.check(&config, tell, NULL, &err);
        if (rc < 0) {
            fail(&err, 0);
        }
        return rc < 0;
    }
    return 2;
}
