/* From the engine's first answer until the program runs in its container, or the reason why it
 * never ran. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "image/contain/contain_task.h"

enum { REACH_MS = 30000, LOGS_MAX = 400 };

__attribute__((format(printf, 3, 4))) static void never(contain_task *t, int status,
                                                        const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(t->end->text, sizeof t->end->text, fmt, ap);
    va_end(ap);
    t->end->exit_status = status;
    t->end->signal = 0;
}

/* True if a runtime's error names a ulimit. Runtimes print its number only; the limit may be one of
 * the engine's defaults, not of the task. */
static bool is_ulimit(contain_task *t, const char *text)
{
    static const char *const names[] = {
        "cpu",     "fsize", "data",  "stack",      "core",     "rss",  "nproc",  "nofile",
        "memlock", "as",    "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"};
    const char *at = strstr(text, "rlimit type ");
    if (at == NULL) {
        return false;
    }
    int number = atoi(at + strlen("rlimit type "));
    if (number < 0 || number >= (int)(sizeof names / sizeof *names)) {
        return false;
    }
    never(t, CONTAIN_NEVER_RAN,
          "%s can't set the container's ulimit %s, because it is above the engine's own; set a "
          "lower one (backend: {docker: {ulimits: {%s: …}}})",
          t->engine.name, names[number], names[number]);
    return true;
}

void stk_contain_never_for(contain_task *t, const stk_err *err)
{
    if (is_ulimit(t, err->text)) {
        return;
    }
    if (strcasestr(err->text, "no space left") != NULL ||
        strcasestr(err->text, "quota exceeded") != NULL) {
        never(t, CONTAIN_NEVER_RAN,
              "%s; free space in the storage of %s by `%s system prune`, or in a store by `stoker "
              "store gc`",
              err->text, stk_text_or(t->engine.name, "the container engine"),
              stk_engine_program(&t->engine));
        return;
    }
    never(t, CONTAIN_NEVER_RAN, "%s%s%s", err->text, stk_text_when(err->hint[0] != '\0', "; "),
          err->hint);
}

static const stk_json *image_of(contain_task *t, const stk_engine *engine, stk_json *root)
{
    const char *name = stk_engine_escape(t->spec.image, t->arena);
    if (name == NULL) {
        return NULL;
    }
    const char *path = stk_arena_printf(t->arena, "/images/%s/json", name);
    if (path == NULL || stk_engine_get(engine, path, t->arena, root, NULL) < 0) {
        return NULL;
    }
    return root;
}

static void find_entrypoint(contain_task *t, const stk_engine *engine)
{
    stk_json root = {0};
    const stk_json *config = stk_json_get(image_of(t, engine, &root), "Config");
    const stk_json *list = stk_json_get(config, "Entrypoint");
    uint32_t n = stk_json_n_items(list);
    const char **words = stk_arena_array(t->arena, (size_t)n + 1, sizeof *words);
    for (uint32_t i = 0; words != NULL && i < n; i++) {
        words[i] = stk_json_text(&list->items[i]);
    }
    t->entrypoint = words;
}

/* Makes all calls to the engine that come before the program runs. */
static int create_and_start(contain_task *t, stk_err *err)
{
    char path[256];
    const char *id = NULL;
    stk_engine engine = {0};
    int rc = stk_engine_open(t->spec.socket, t->stop_fd, t->arena, &engine, err);
    (void)pthread_mutex_lock(&t->lock);
    t->engine = engine;
    t->engine.cancel_fd = 0;
    (void)pthread_mutex_unlock(&t->lock);
    if (rc == 0 && t->spec.keep_entrypoint) {
        find_entrypoint(t, &engine);
    }
    int64_t begin_ms = contain_now_ms();
    if (rc == 0) {
        rc = stk_contain_create(&t->spec, &engine, &t->files, t->arena, &id, err);
    }
    (void)pthread_mutex_lock(&t->lock);
    t->id = rc < 0 ? NULL : id;
    t->begin_ms = begin_ms;
    t->create_ms = contain_now_ms() - begin_ms;
    t->asked = engine.socket != NULL && engine.api != NULL;
    (void)pthread_mutex_unlock(&t->lock);
    STK_TRY(rc);
    (void)snprintf(path, sizeof path, "/containers/%s/start", id);
    return stk_engine_call(&engine, "POST", path, NULL, NULL, NULL, err);
}

void *stk_contain_start(void *arg)
{
    contain_task *t = arg;
    uint64_t one = 1;
    t->start_rc = create_and_start(t, &t->start_err);
    (void)!write(t->started_fd, &one, sizeof one);
    return NULL;
}

/* Reads what the container printed before its runner connected: frames of Docker's stream. */
static void read_logs(const stk_engine *engine, const char *id, char *ret, size_t size)
{
    char path[256];
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 20);
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    ret[0] = '\0';
    (void)snprintf(path, sizeof path, "/containers/%s/logs?stdout=true&stderr=true", id);
    if (stk_engine_call(engine, "GET", path, NULL, NULL, &body, NULL) < 0) {
        return;
    }
    stk_engine_split_log(&body, &text, &text);
    (void)snprintf(ret, size, "%s", stk_text_or(text.data, ""));
    for (char *c = ret; *c != '\0'; c++) {
        if (*c == '\n') {
            *c = ' ';
        }
    }
}

bool stk_contain_has_given_up(contain_task *t, int64_t since_ms)
{
    char path[256];
    stk_engine engine = t->engine;
    engine.cancel_fd = t->ends;
    char logs[LOGS_MAX];
    stk_json root = {0};
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "/containers/%s/json", t->id);
    int rc = stk_engine_get(&engine, path, t->arena, &root, &err);
    bool gone = rc == STK_E_NOT_FOUND ||
                stk_json_is_false(stk_json_get(stk_json_get(&root, "State"), "Running"));
    read_logs(&engine, t->id, logs, sizeof logs);
    if (!gone && logs[0] == '\0' && contain_now_ms() - since_ms < REACH_MS) {
        return false;
    }
    const char *what = gone ? "ended" : "didn't connect to its task";
    never(t, CONTAIN_NEVER_RAN, "container %s of image '%s' %s before the program began%s%s",
          t->spec.name, t->spec.shown, what, stk_text_when(logs[0] != '\0', ": "), logs);
    return true;
}

static const char *program_of(const contain_task *t)
{
    if (t->entrypoint != NULL && t->entrypoint[0] != NULL) {
        return t->entrypoint[0];
    }
    return stk_text_or(t->spec.argv[0], "");
}

/* Whether the program is the interpreter of a Python step (exec_in_image.c). */
static bool is_interpreter(const contain_task *t)
{
    return t->spec.n_argv > 2 && program_of(t) == t->spec.argv[0] &&
           strcmp(t->spec.argv[1], "-m") == 0 && strcmp(t->spec.argv[2], "stoker._worker") == 0;
}

void stk_contain_explain_start(contain_task *t, const char *what, int sys)
{
    const char *program = program_of(t);
    const char *image = t->spec.shown;
    stk_json root = {0};
    const char *arch = NULL;
    if (strcmp(what, "cwd") == 0) {
        never(t, CONTAIN_CANT_RUN, "folder %s can't be entered in image '%s': %s", t->spec.cwd,
              image, strerror(sys));
    } else if (strcmp(what, "user") == 0 && sys == 0) {
        never(t, CONTAIN_CANT_RUN,
              "image '%s' has no user '%s': name one of its /etc/passwd, or a "
              "number",
              image, t->spec.user);
    } else if (strcmp(what, "user") == 0) {
        never(t, CONTAIN_CANT_RUN,
              "user '%s' of image '%s' can't be used in a container of %s: %s; a rootless engine "
              "has only the users of /etc/subuid and /etc/subgid",
              t->spec.user, image, t->engine.name, strerror(sys));
    } else if (strcmp(what, "env") == 0) {
        never(t, CONTAIN_CANT_RUN,
              "the variables of docker: environment can't be set in image '%s': %s", image,
              strerror(sys));
    } else if (strcmp(what, "exec") == 0 && sys == ENOENT && is_interpreter(t)) {
        never(t, CONTAIN_NO_PROGRAM,
              "image '%s' has no program '%s'%s, which runs Python steps; name its interpreter "
              "(3.7 or newer) by the option `python` (backend: {docker: {python: "
              "/opt/python/bin/python3}}), or use another image",
              image, program, stk_text_when(strchr(program, '/') == NULL, " in its PATH"));
    } else if (strcmp(what, "exec") == 0 && sys == ENOENT && strchr(program, '/') != NULL) {
        never(t, CONTAIN_NO_PROGRAM,
              "image '%s' has no program '%s', or lacks the interpreter or loader that it needs",
              image, program);
    } else if (strcmp(what, "exec") == 0 && sys == ENOENT) {
        never(t, CONTAIN_NO_PROGRAM,
              "image '%s' has no program '%s' in its PATH; write its full path, or use another "
              "program or image",
              image, program);
    } else if (strcmp(what, "exec") == 0 && sys == ENOEXEC) {
        arch = stk_json_get_text(image_of(t, &t->engine, &root), "Architecture");
        never(t, CONTAIN_CANT_RUN,
              "'%s' of image '%s' can't be executed here (exec format error): the image is for %s",
              program, image, stk_text_or(arch, "another architecture"));
    } else {
        never(t, CONTAIN_CANT_RUN, "'%s' of image '%s' can't be started: %s", program, image,
              strerror(sys));
    }
}
