/* Steps in containers: what task.json says of theirs, and who runs it (docs/decisions/0007). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* One `container` while it is written. */
typedef struct writer {
    stk_exec *x;
    const stk_exec_containers *all;
    const stk_step *step;
    exec_inside inside;
    stk_json run_args; /* a NULL node: nothing said */
    const char *dir;
    uint32_t task, attempt, n_mounts, n_env, n_expand;
    stk_buf *buf;
    stk_buf expand; /* names, as a list's content */
    stk_err *err;
} writer;

bool stk_exec_is_contained(const stk_exec *x, uint32_t task)
{
    const stk_exec_containers *all = x->config.containers;
    return all != NULL && all->places[x->tasks[task].i_step].kind == STK_PLACE_DOCKER;
}

/* --- what is mounted --- */

/* The project is mounted read-only, so places in it where something else is mounted must be there
 * before. */
static int make_point(const writer *w, const char *to, bool is_dir)
{
    const char *inner = w->all->code == NULL ? NULL : stk_exec_below(w->all->root, to);
    if (inner == NULL) {
        return 0;
    }
    char *path = stk_arena_printf(w->x->scratch, "%s/%s", w->all->code, inner);
    char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (slash == NULL) {
        return stk_err_nomem(w->err);
    }
    if (stk_file_exists(path)) {
        return 0;
    }
    *slash = is_dir ? '/' : '\0';
    int rc = stk_file_mkdirs(path, 0755, w->err);
    *slash = '/';
    return rc < 0 || is_dir ? rc : stk_file_write(path, "", 0, 0644, w->err);
}

static int put_mount(writer *w, const char *from, const char *to, bool writes, bool is_dir)
{
    if (from == NULL || to == NULL) {
        return stk_err_nomem(w->err);
    }
    stk_buf_text(w->buf, w->n_mounts++ > 0 ? ",{\"from\":" : "{\"from\":");
    stk_buf_json(w->buf, from);
    stk_buf_text(w->buf, ",\"to\":");
    stk_buf_json(w->buf, to);
    stk_buf_text(w->buf, writes ? ",\"write\":true}" : ",\"write\":false}");
    return make_point(w, to, is_dir);
}

static int put_folder(writer *w, const char *folder, bool writes)
{
    return put_mount(w, folder, folder, writes, true);
}

/* Outside, a Python step makes its folder when it first uses it; in here only what is mounted can
 * be. */
static int put_checkpoints(writer *w)
{
    const char *folder = stk_exec_checkpoints(w->x, w->task, w->x->scratch);
    if (folder != NULL && mkdir(folder, 0755) < 0 && errno != EEXIST) {
        return stk_err_sys(w->err, STK_E_SYS, errno, "making folder %s", folder);
    }
    return put_folder(w, folder, true);
}

static int put_file(writer *w, const char *path)
{
    const char *at = path[0] == '/' ? path
                                    : stk_arena_printf(w->x->scratch, "%s/%s",
                                                       stk_spec_folder(w->x->spec), path);
    struct stat st;
    if (at == NULL) {
        return stk_err_nomem(w->err);
    }
    if (stat(at, &st) < 0) {
        return stk_err_sys(w->err, errno == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, errno,
                           "'%s', which goes into the container", at);
    }
    return put_mount(w, at, at, false, S_ISDIR(st.st_mode));
}

/* For ranks, and for a Python worker that sums large files. */
static bool needs_program(const writer *w)
{
    return w->all->bin != NULL &&
           (w->step->python != NULL || stk_exec_gang(w->x, w->task).ranks != 0);
}

static int add_mounts(writer *w)
{
    stk_arena *arena = w->x->scratch;
    const char *artifacts =
        stk_arena_printf(arena, "%s/artifacts", stk_store_path(w->x->config.store));
    int rc = 0;
    stk_buf_text(w->buf, ",\"mounts\":[");
    if (w->all->code != NULL) {
        rc = put_mount(w, w->all->code, w->all->root, false, true);
    }
    rc = rc < 0 ? rc : put_folder(w, artifacts, false);
    rc = rc < 0 ? rc : put_folder(w, w->dir, true);
    rc = rc < 0 ? rc : put_checkpoints(w);
    if (rc == 0 && w->step->python != NULL) {
        rc = put_mount(w, w->all->front, "/stoker/python/stoker", false, true);
    }
    if (rc == 0 && needs_program(w)) {
        rc = put_mount(w, w->all->bin, "/stoker/bin", false, true);
    }
    for (uint32_t i = 0; i < w->step->n_inputs && rc == 0; i++) {
        if (w->step->inputs[i].kind == STK_INPUT_FILE) {
            rc = put_file(w, w->step->inputs[i].text);
        }
    }
    const stk_cache_policy *cache = &w->step->settings->cache;
    for (uint32_t i = 0; i < cache->n_files && rc == 0; i++) {
        rc = put_file(w, cache->files[i]);
    }
    stk_buf_char(w->buf, ']');
    return rc;
}

/* --- the program --- */

static int add_argv(writer *w)
{
    const char *const *argv = stk_exec_inside_argv(w->x, &w->inside);
    if (argv == NULL) {
        return stk_err_nomem(w->err);
    }
    stk_buf_text(w->buf, ",\"argv\":[");
    for (uint32_t i = 0; argv[i] != NULL; i++) {
        stk_buf_text(w->buf, i > 0 ? "," : "");
        stk_buf_json(w->buf, argv[i]);
    }
    stk_buf_text(w->buf, "],\"cwd\":");
    stk_buf_json(w->buf, stk_exec_inside_cwd(w->x, &w->inside));
    return 0;
}

static void put_env(void *arg, const char *key, const char *value, bool expands)
{
    writer *w = arg;
    if (expands) {
        stk_buf_text(&w->expand, w->n_expand++ > 0 ? "," : "");
        stk_buf_json(&w->expand, key);
    }
    stk_buf_text(w->buf, w->n_env++ > 0 ? "," : "");
    stk_buf_json(w->buf, key);
    stk_buf_char(w->buf, ':');
    stk_buf_json(w->buf, value);
}

/* The step's `settings={"orchestrator.docker": {…}}`, or ZenML's `run_args` in it. */
static const stk_json *option(const writer *w, const char *key)
{
    const stk_json *own = stk_json_get(&w->inside.options, key);
    return own != NULL && own->kind != STK_JSON_NULL ? own : stk_json_get(&w->run_args, key);
}

/* Another user than who starts it, or NULL. */
static const char *user_said(const writer *w)
{
    const char *user = stk_json_get_text(&w->inside.docker, "user");
    if (user == NULL) {
        user = stk_json_text(option(w, "user"));
    }
    return user == NULL || *user == '\0' ? NULL : user;
}

static int add_env(writer *w, const char *const *env)
{
    stk_buf_text(w->buf, ",\"env\":{");
    if (strcmp(w->all->owner, "0:0") != 0 && user_said(w) == NULL) {
        put_env(w, "HOME", "/tmp", false); /* a user whom the image doesn't know has none */
    }
    STK_TRY(stk_exec_inside_env(w->x, &w->inside, put_env, w, w->err));
    stk_buf_text(w->buf, "},\"expand\":[");
    stk_buf_text(w->buf, stk_text_or(w->expand.data, ""));
    stk_buf_text(w->buf, "],\"pass\":[");
    for (uint32_t i = 0; env != NULL && env[i] != NULL; i++) {
        const char *name = stk_arena_dupn(w->x->scratch, env[i], strcspn(env[i], "="));
        if (name == NULL) {
            return stk_err_nomem(w->err);
        }
        stk_buf_text(w->buf, i > 0 ? "," : "");
        stk_buf_json(w->buf, name);
    }
    stk_buf_text(w->buf, getenv("STOKER_MAIN_ARGS") != NULL ? ",\"STOKER_MAIN_ARGS\"]" : "]");
    return 0;
}

/* --- what it may use --- */

static void add_limits(writer *w)
{
    const stk_request *r = stk_plan_request(w->x->config.plan, w->x->tasks[w->task].i_step);
    const exec_slot *slot = w->x->tasks[w->task].slot;
    int64_t memory = stk_exec_memory_limit(w->x, w->task);
    int64_t shm = 0;
    struct statvfs fs;
    if (memory > 0) {
        stk_buf_printf(w->buf, ",\"memory_bytes\":%lld", (long long)memory);
    }
    if (r->limit_cpu && r->cpu_milli > 0) {
        stk_buf_printf(w->buf, ",\"cpu_milli\":%lld", (long long)r->cpu_milli);
    }
    for (uint32_t i = 0; i < slot->n_cpus; i++) {
        stk_buf_printf(w->buf, "%s%u", i > 0 ? "," : ",\"cpus\":\"", w->x->cpu_ids[slot->cpus[i]]);
    }
    stk_buf_text(w->buf, slot->n_cpus > 0 ? "\"" : "");
    const stk_json *said = option(w, "shm_size");
    if (!stk_spec_container_bytes(said, &shm) &&
        statvfs("/dev/shm", &fs) == 0) { /* as a step on this machine has */
        shm = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    }
    if (shm > 0) {
        stk_buf_printf(w->buf, ",\"shm_bytes\":%lld", (long long)shm);
    }
    const stk_json *ulimits = option(w, "ulimits");
    if (ulimits != NULL && ulimits->kind == STK_JSON_MAP) {
        stk_buf_text(w->buf, ",\"ulimits\":");
        stk_json_dump(ulimits, w->buf);
    }
}

/* NVIDIA's by uuid, the others' by their nodes. */
static void add_devices(writer *w)
{
    static const stk_lease none = {0};
    const stk_lease *lease = stk_accel_is_simulated(w->x->config.accel)
                                 ? &none /* nothing can run on these */
                                 : &w->x->tasks[w->task].slot->lease;
    bool amd = false;
    uint32_t n = 0;
    stk_buf_text(w->buf, ",\"gpus\":[");
    for (uint32_t i = 0; i < lease->n; i++) {
        const stk_device *d = stk_accel_device(w->x->config.accel, lease->devices[i]);
        if (strcmp(d->vendor, "nvidia") == 0 && d->uuid != NULL) {
            stk_buf_text(w->buf, n++ > 0 ? "," : "");
            stk_buf_json(w->buf, d->uuid);
        }
    }
    stk_buf_text(w->buf, "],\"devices\":[");
    n = 0;
    for (uint32_t i = 0; i < lease->n; i++) {
        const stk_device *d = stk_accel_device(w->x->config.accel, lease->devices[i]);
        if (strcmp(d->vendor, "nvidia") != 0 && d->node != NULL) {
            stk_buf_text(w->buf, n++ > 0 ? "," : "");
            stk_buf_json(w->buf, d->node);
            amd = amd || strcmp(d->vendor, "amd") == 0;
        }
    }
    stk_buf_text(w->buf, amd ? ",\"/dev/kfd\"]" : "]");
}

static void add_words(writer *w)
{
    const char *user = user_said(w);
    const char *network = stk_json_text(option(w, "network"));
    const char *entrypoint = stk_json_get_text(&w->inside.docker, "entrypoint");
    bool keep = entrypoint != NULL && strcmp(entrypoint, "keep") == 0;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    stk_buf_text(w->buf, ",\"user\":");
    stk_buf_json(w->buf, stk_text_or(user, w->all->owner));
    stk_buf_text(w->buf, ",\"owner\":");
    stk_buf_json(w->buf, w->all->owner);
    stk_buf_text(w->buf, ",\"network\":");
    stk_buf_json(w->buf, stk_text_or(network, "host"));
    stk_buf_printf(
        w->buf,
        ",\"entrypoint\":\"%s\",\"labels\":{\"stoker.run\":\"%s\",\"stoker.step\":\"%s\","
        "\"stoker.attempt\":\"%u\",\"stoker.store\":",
        keep ? "keep" : "bypass", w->x->config.run, w->step->name, w->attempt);
    stk_buf_json(w->buf, stk_store_path(w->x->config.store));
    stk_buf_text(w->buf, ",\"stoker.host\":");
    stk_buf_json(w->buf, host);
    stk_buf_char(w->buf, '}');
}

int stk_exec_container_json(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                            const char *const *env, stk_buf *buf, stk_err *err)
{
    const stk_exec_containers *all = x->config.containers;
    uint32_t i_step = x->tasks[task].i_step;
    writer w = {.x = x,
                .all = all,
                .step = stk_exec_step(x, task),
                .inside = {.at = "/stoker",
                           .dir = dir,
                           .root = all->code == NULL ? NULL : all->root,
                           .main_file = all->main_file,
                           .python_path = all->python_paths[i_step]},
                .dir = dir,
                .task = task,
                .attempt = attempt,
                .buf = buf,
                .expand = STK_BUF_INIT(1 << 20),
                .err = err};
    int rc = stk_exec_inside_open(x, task, &all->places[i_step], &w.inside, err);
    w.inside.has_program = needs_program(&w);
    const stk_json *args = stk_json_get(&w.inside.options, "run_args");
    if (args != NULL) {
        w.run_args = *args;
    }
    stk_buf_text(buf, ",\"container\":{\"image\":");
    stk_buf_json(buf, all->images[i_step]);
    stk_buf_text(buf, ",\"name\":");
    stk_buf_json(buf, stk_exec_container_image(x, task));
    if (all->socket != NULL) {
        stk_buf_text(buf, ",\"socket\":");
        stk_buf_json(buf, all->socket);
    }
    rc = rc < 0 ? rc : add_argv(&w);
    rc = rc < 0 ? rc : add_mounts(&w);
    rc = rc < 0 ? rc : add_env(&w, env);
    add_limits(&w);
    add_devices(&w);
    add_words(&w);
    stk_buf_char(buf, '}');
    rc = rc == 0 && w.expand.failed ? stk_err_nomem(err) : rc;
    stk_buf_done(&w.expand);
    return rc < 0 ? stk_err_context(err, "container") : 0;
}

const char *stk_exec_container_image(const stk_exec *x, uint32_t task)
{
    const stk_exec_containers *all = x->config.containers;
    uint32_t i_step = x->tasks[task].i_step;
    const char *written = all->places[i_step].written;
    return stk_text_or(written, all->images[i_step]);
}

void stk_exec_container_granted(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_exec_containers *all = x->config.containers;
    uint32_t i_step = x->tasks[task].i_step;
    stk_buf_text(buf, ",\"image\":{\"name\":");
    stk_buf_json(buf, stk_exec_container_image(x, task));
    stk_buf_text(buf, ",\"id\":");
    stk_buf_json(buf, all->images[i_step]);
    if (all->pins[i_step] != NULL) {
        stk_buf_text(buf, ",\"pinned\":");
        stk_buf_json(buf, all->pins[i_step]);
    }
    stk_buf_char(buf, '}');
}

const char *const *stk_exec_contain_argv(const stk_exec *x, const char *task_json)
{
    const char **argv = stk_arena_array(x->scratch, 4, sizeof *argv);
    const char *self = stk_exec_self(x);
    if (argv == NULL || self == NULL) {
        return NULL;
    }
    argv[0] = self;
    argv[1] = "contain";
    argv[2] = task_json;
    return argv;
}
