/* A driver of remote jobs by hand: lines of JSON in, lines of JSON out.
 *
 *     batch_drive CONFIG.json
 *     {"do": "submit", "id": 1, "attempt": 1, "name": "s-r-a-1-1", "step": "a", "image": "x",
 * "options": {…}, "argv": […], "env": [], "secret": [], "nodes": 1, "attach": false, "timeout_ms":
 * 0, "key": "runs/r/a/1/1", "resources": {"cpu_milli", "memory_bytes", "gpu_count"}}
 *     {"do": "stop", "id": 1, "why": "cancelled"}   {"do": "forget", "id": 1}   {"do": "check"}
 * {"do": "manifest", …as submit} End of input closes it. Reports: {"state", "id", "attempt",
 * "node", "exit_status", "oom", "failure", "text", "data"};
 * {"turn_error": …} and {"refused": …, "id"}, {"check": …, "good"}, {"manifest": …}.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/batch/batch.h"

static const char *const states[] = {"queued", "running", "ended", "failed", "log", "note"};
static const char *const failures[] = {
#define X(name, word, own) word,
#include "tbl/failures.def"
#undef X
};
enum { N_FAILURES = sizeof failures / sizeof *failures };

static stk_arena *arena;
static const stk_json_limits limits = {.bytes = 1 << 20, .nodes = 10000, .depth = 20};

static const char *text_of(const stk_json *map, const char *key, const char *unless)
{
    const char *text = stk_json_text(stk_json_get(map, key));
    return text != NULL ? text : unless;
}

static int64_t int_of(const stk_json *map, const char *key, int64_t unless)
{
    int64_t number = unless;
    return stk_json_int(stk_json_get(map, key), &number) ? number : unless;
}

static const char *const *texts_of(const stk_json *map, const char *key)
{
    const stk_json *list = stk_json_get(map, key);
    uint32_t n = list != NULL && list->kind == STK_JSON_LIST ? list->n : 0;
    const char **texts = stk_arena_array(arena, n + 1, sizeof *texts);
    for (uint32_t i = 0; i < n; i++) {
        texts[i] = stk_json_text(&list->items[i]);
    }
    return texts;
}

static void print(stk_buf *out)
{
    (void)stk_buf_text(out, "}\n");
    (void)fwrite(out->data, 1, out->len, stdout);
    (void)fflush(stdout);
}

static void say(void *arg, const stk_remote_report *r)
{
    STK_BUF_AUTO out = STK_BUF_INIT(64 << 20);
    (void)arg;
    (void)stk_buf_char(&out, '{');
    stk_json_put_text(&out, "state", states[r->state]);
    stk_json_put_int(&out, "id", r->id);
    stk_json_put_int(&out, "attempt", r->attempt);
    stk_json_put_int(&out, "node", r->node);
    stk_json_put_int(&out, "exit_status", r->exit_status);
    stk_json_put_bool(&out, "oom", r->oom);
    stk_json_put_text(&out, "failure", failures[r->failure]);
    stk_json_put_text(&out, "text", r->text);
    if (r->data != NULL) {
        char *data = strndup(r->data, r->n);
        stk_json_put_text(&out, "data", data);
        free(data);
    }
    print(&out);
}

static void say_check(void *arg, bool is_good, const char *text)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    (void)arg;
    (void)stk_buf_char(&out, '{');
    stk_json_put_text(&out, "check", text);
    stk_json_put_bool(&out, "good", is_good);
    print(&out);
}

static void say_error(const char *key, int64_t id, const char *text)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    (void)stk_buf_char(&out, '{');
    stk_json_put_text(&out, key, text);
    stk_json_put_int(&out, "id", id);
    print(&out);
}

static stk_remote_job *read_job(const stk_json *line, const stk_driver_config *config)
{
    stk_remote_job *job = stk_arena_alloc(arena, sizeof *job);
    stk_resources *r = stk_arena_alloc(arena, sizeof *r);
    const stk_json *asked = stk_json_get(line, "resources");
    const stk_json *options = stk_json_get(line, "options");
    *r = (stk_resources){
        .cpu_milli = int_of(asked, "cpu_milli", -1),
        .memory_bytes = int_of(asked, "memory_bytes", -1),
        .base = {.gpu_count = int_of(asked, "gpu_count", -1), .gpu_memory_bytes = -1}};
    *job = (stk_remote_job){.id = (uint32_t)int_of(line, "id", 1),
                            .run = config->run,
                            .pipeline = "p",
                            .step = text_of(line, "step", "a"),
                            .task = (uint32_t)int_of(line, "id", 1),
                            .attempt = (uint32_t)int_of(line, "attempt", 1),
                            .name = text_of(line, "name", "s-r-a-1-1"),
                            .image = text_of(line, "image", "busybox"),
                            .resources = r,
                            .options = options != NULL ? stk_json_dump_in(options, arena) : "{}",
                            .argv = texts_of(line, "argv"),
                            .env = texts_of(line, "env"),
                            .secret = texts_of(line, "secret"),
                            .folders = texts_of(line, "folders"),
                            .carry = config->carry,
                            .carry_at = text_of(line, "carry_at", "/stoker"),
                            .nodes = (uint32_t)int_of(line, "nodes", 1),
                            .timeout_ms = int_of(line, "timeout_ms", 0),
                            .grace_ms = 5000,
                            .key = text_of(line, "key", NULL),
                            .is_many = int_of(line, "is_many", 0) != 0,
                            .attach = int_of(line, "attach", 0) != 0,
                            .look = int_of(line, "look", 0) != 0};
    job->secret = job->secret[0] != NULL ? job->secret : NULL;
    return job;
}

static void show_manifest(const stk_driver_config *config, const stk_remote_job *job)
{
    const char **documents;
    uint32_t n = 0;
    stk_err err = {0};
    if (stk_driver_batch.manifest(config, job, arena, &documents, &n, &err) < 0) {
        say_error("refused", job->id, err.text);
    }
    for (uint32_t i = 0; i < n; i++) {
        say_error("manifest", job->id, documents[i]);
    }
}

static void act(stk_driver *driver, const stk_driver_config *config, const char *text, size_t len)
{
    stk_json line;
    stk_err err = {0};
    if (stk_json_parse(text, len, "stdin", &limits, arena, &line, &err) < 0) {
        say_error("refused", -1, err.text);
        return;
    }
    uint32_t id = (uint32_t)int_of(&line, "id", 1);
    const char *what = text_of(&line, "do", "");
    if (strcmp(what, "submit") == 0) {
        if (driver->ops->submit(driver, read_job(&line, config), &err) < 0) {
            say_error("refused", id, err.text);
        }
    } else if (strcmp(what, "manifest") == 0) {
        show_manifest(config, read_job(&line, config));
    } else if (strcmp(what, "check") == 0) {
        int rc = stk_driver_batch.check(config, say_check, NULL, &err);
        say_error("checked", rc < 0, rc < 0 ? err.text : "");
    } else if (strcmp(what, "forget") == 0) {
        driver->ops->forget(driver, id);
    } else if (strcmp(what, "stop") == 0) {
        int why = 0;
        while (why < N_FAILURES - 1 &&
               strcmp(failures[why], text_of(&line, "why", "cancelled")) != 0) {
            why++;
        }
        driver->ops->stop(driver, id, 5000, (stk_failure)why);
    }
}

/* Reads what there is on stdin, and does each whole line. False: it has ended. */
static bool read_lines(stk_driver *driver, const stk_driver_config *config, stk_buf *in)
{
    static char more[1 << 16];
    ssize_t n = read(0, more, sizeof more);
    if (n <= 0) {
        return false;
    }
    (void)stk_buf_add(in, more, (size_t)n);
    char *from = in->data, *end;
    while ((end = strchr(from, '\n')) != NULL) {
        act(driver, config, from, (size_t)(end - from));
        from = end + 1;
    }
    STK_BUF_AUTO rest = STK_BUF_INIT(16 << 20);
    (void)stk_buf_text(&rest, from);
    stk_buf_clear(in);
    (void)stk_buf_text(in, rest.data);
    return true;
}

int main(int argc, char **argv)
{
    static char text[1 << 16];
    stk_json root;
    stk_err err = {0};
    stk_driver *driver = NULL;
    arena = stk_arena_new(0);
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file == NULL || stk_json_parse(text, n, argv[1], &limits, arena, &root, &err) < 0) {
        (void)fprintf(stderr, "batch_drive CONFIG.json: %s\n", err.text);
        return 2;
    }
    (void)fclose(file);
    const stk_json *options = stk_json_get(&root, "options");
    const stk_driver_config config = {
        .stack = text_of(&root, "stack", "aws"),
        .options = options != NULL ? stk_json_dump_in(options, arena) : "{}",
        .run = text_of(&root, "run", "r1"),
        .carry = text_of(&root, "carry", "store"),
        .carry_volume = text_of(&root, "carry_volume", NULL),
        .carry_digest = text_of(&root, "carry_digest", NULL),
        .share_url = text_of(&root, "share_url", "s3://bucket/stoker"),
        .pending_ms = int_of(&root, "pending_ms", 0)};
    if (stk_driver_batch.open(&config, &driver, &err) < 0) {
        say_error("open_error", 0, err.text);
        return 1;
    }
    driver->say = say;
    STK_BUF_AUTO in = STK_BUF_INIT(16 << 20);
    (void)stk_buf_text(&in, "");
    for (bool open = true; open;) {
        struct pollfd in_fd = {.fd = 0, .events = POLLIN};
        if (driver->ops->turn(driver, 0, 1000, &err) < 0) {
            say_error("turn_error", 0, err.text);
            break;
        }
        if (poll(&in_fd, 1, 0) > 0) {
            open = read_lines(driver, &config, &in);
        }
    }
    driver->ops->close(driver);
    stk_arena_free(arena);
    return 0;
}
