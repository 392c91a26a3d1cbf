/* The Kubernetes driver alone, without an engine: commands come as lines of JSON on standard input,
 * reports go out as lines of JSON. `kube_shell run OPTIONS RUN PENDING_MS`, `kube_shell manifest
 * CONFIG JOB` (or -: on standard input), `kube_shell check OPTIONS`. */
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/kubernetes/kubernetes.h"

static const char *const failures[] = {
#define X(name, word, own) word,
#include "tbl/failures.def"
#undef X
};
static const char *const states[] = {"queued", "running", "ended", "failed", "log", "note"};

static void print_line(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT);
    (void)putchar('\n');
    (void)fflush(stdout);
    json_decref(line);
}

static void say(void *arg, const stk_remote_report *r)
{
    (void)arg;
    json_t *line =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:s, s:s}", "state", states[r->state],
                  "id", (int)r->id, "attempt", (int)r->attempt, "node", (int)r->node, "exit_status",
                  r->exit_status, "signal", r->signal, "oom", r->oom, "is_hopeless", r->is_hopeless,
                  "failure", failures[r->failure], "text", r->text);
    if (r->data != NULL) {
        json_object_set_new(line, "data", json_stringn(r->data, r->n));
    }
    print_line(line);
}

static void fail(const stk_err *err, int id)
{
    char text[1200];
    print_line(json_pack("{s:s, s:i, s:s}", "state", "error", "id", id, "text",
                         stk_err_format(err, text, sizeof text)));
}

static int64_t whole(const json_t *map, const char *key, int64_t otherwise)
{
    const json_t *node = json_object_get(map, key);
    return json_is_integer(node) ? json_integer_value(node) : otherwise;
}

static const char *text_of(const json_t *map, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(map, key));
    return text == NULL ? otherwise : text;
}

static const char *const *texts_of(const json_t *map, const char *key, stk_arena *arena)
{
    const json_t *list = json_object_get(map, key);
    const char **all = stk_arena_array(arena, json_array_size(list) + 1, sizeof *all);
    for (size_t i = 0; i < json_array_size(list); i++) {
        all[i] = stk_arena_dup(arena, json_string_value(json_array_get(list, i)));
    }
    return json_is_array(list) ? all : NULL;
}

static void read_job(const json_t *from, stk_arena *arena, stk_remote_job *job, stk_resources *r,
                     stk_alternative any_of[8])
{
    const json_t *asked = json_object_get(from, "resources");
    const json_t *options = json_object_get(from, "options");
    char *text = options == NULL ? NULL : json_dumps(options, 0);
    *r = (stk_resources){.cpu_milli = whole(asked, "cpu_milli", -1),
                         .memory_bytes = whole(asked, "memory_bytes", -1),
                         .base = {.gpu_count = whole(asked, "gpu_count", -1),
                                  .gpu_memory_bytes = whole(asked, "gpu_memory_bytes", -1),
                                  .gpu_class = text_of(asked, "gpu_class", NULL),
                                  .gpu_vendor = text_of(asked, "gpu_vendor", NULL)}};
    const json_t *list = json_object_get(asked, "any_of");
    for (size_t i = 0; i < json_array_size(list) && i < 8; i++) {
        const json_t *one = json_array_get(list, i);
        any_of[i] = (stk_alternative){.gpu_count = whole(one, "gpu_count", -1),
                                      .gpu_memory_bytes = whole(one, "gpu_memory_bytes", -1),
                                      .gpu_class = text_of(one, "gpu_class", NULL),
                                      .gpu_vendor = text_of(one, "gpu_vendor", NULL)};
        r->n_any_of++;
    }
    r->any_of = any_of;
    *job = (stk_remote_job){.id = (uint32_t)whole(from, "id", 1),
                            .run = text_of(from, "run", "r1"),
                            .pipeline = text_of(from, "pipeline", "p"),
                            .step = text_of(from, "step", "train"),
                            .task = (uint32_t)whole(from, "id", 1),
                            .attempt = (uint32_t)whole(from, "attempt", 1),
                            .name = text_of(from, "name", "s-1"),
                            .image = text_of(from, "image", NULL),
                            .resources = r,
                            .options = text == NULL ? "{}" : stk_arena_dup(arena, text),
                            .argv = texts_of(from, "argv", arena),
                            .env = texts_of(from, "env", arena),
                            .secret = texts_of(from, "secret", arena),
                            .folders = texts_of(from, "folders", arena),
                            .carry = text_of(from, "carry", NULL),
                            .carry_at = text_of(from, "carry_at", NULL),
                            .nodes = (uint32_t)whole(from, "nodes", 1),
                            .port = (int32_t)whole(from, "port", 0),
                            .timeout_ms = whole(from, "timeout_ms", 0),
                            .grace_ms = whole(from, "grace_ms", 1000),
                            .attach = json_is_true(json_object_get(from, "attach")),
                            .look = json_is_true(json_object_get(from, "look"))};
    free(text);
}

static void submit(stk_driver *driver, const json_t *command)
{
    stk_arena *arena = stk_arena_new(0);
    stk_remote_job job;
    stk_resources resources;
    stk_alternative any_of[8];
    stk_err err = {0};
    read_job(command, arena, &job, &resources, any_of);
    if (driver->ops->submit(driver, &job, &err) < 0) {
        fail(&err, (int)job.id);
    }
    stk_arena_free(arena);
}

/* false: enough. */
static bool obey(stk_driver *driver, const char *line)
{
    json_t *command = json_loads(line, 0, NULL);
    const char *what = text_of(command, "do", "close");
    uint32_t id = (uint32_t)whole(command, "id", 1);
    bool goes_on = strcmp(what, "close") != 0;
    if (strcmp(what, "submit") == 0) {
        submit(driver, command);
    } else if (strcmp(what, "stop") == 0) {
        driver->ops->stop(driver, id, whole(command, "grace_ms", 1000), STK_FAIL_CANCELLED);
    } else if (strcmp(what, "forget") == 0) {
        driver->ops->forget(driver, id);
    }
    json_decref(command);
    return goes_on;
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
    json_t *c = json_loads(config_text, 0, NULL);
    json_t *j =
        strcmp(job_text, "-") == 0 ? json_loadf(stdin, 0, NULL) : json_loads(job_text, 0, NULL);
    stk_arena *arena = stk_arena_new(0);
    stk_remote_job job;
    stk_resources resources;
    stk_alternative any_of[8];
    stk_err err = {0};
    const char **documents = NULL;
    uint32_t n = 0;
    stk_driver_config config = {.stack = "test",
                                .options = "{}",
                                .run = "r1",
                                .carry = text_of(c, "carry", NULL),
                                .runner_image = text_of(c, "runner_image", NULL),
                                .carry_volume = text_of(c, "carry_volume", NULL)};
    read_job(j, arena, &job, &resources, any_of);
    int rc = stk_driver_kubernetes.manifest(&config, &job, arena, &documents, &n, &err);
    if (rc < 0) {
        fail(&err, 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        print_line(json_loads(documents[i], 0, NULL));
    }
    stk_arena_free(arena);
    json_decref(c);
    json_decref(j);
    return rc < 0;
}

static void tell(void *arg, bool is_good, const char *text)
{
    (void)arg;
    print_line(json_pack("{s:b, s:s}", "good", is_good, "text", text));
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
