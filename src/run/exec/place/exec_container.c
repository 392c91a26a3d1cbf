/* Steps in containers: writes the member "container" of task.json, which `stoker contain` runs
 * (docs/decisions/0007). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/dir.h"
#include "sys/file.h"

/* The state while the member "container" is written. */
typedef struct container_writer {
    stk_exec *x;
    const stk_exec_containers *all;
    exec_in_image in;
    uint32_t attempt;
    stk_buf *buf;
    stk_buf *expand; /* the member "expand": names of variables */
    stk_err *err;
} container_writer;

bool stk_exec_is_contained(const stk_exec *x, uint32_t task)
{
    const stk_exec_containers *all = x->config.containers;
    return all != NULL && all->places[x->tasks[task].i_step].kind == STK_PLACE_DOCKER;
}

/* --- mounts --- */

/* Makes the mount point `to` if it lies in the project's files. The container sees these read-only,
 * so the point must exist before. */
static int make_point(const container_writer *w, const char *to, bool is_dir)
{
    const char *inner = w->all->code == NULL ? NULL : stk_exec_below(w->all->root, to);
    if (inner == NULL || w->all->by_file) {
        return 0;
    }
    char *path = stk_arena_printf(w->x->scratch, "%s/%s", w->all->code, inner);
    STK_TRY(stk_err_if_null(path, w->err));
    if (stk_file_exists(path)) {
        return 0;
    }
    if (is_dir) {
        return stk_file_mkdirs(path, 0755, w->err);
    }
    char *slash = strrchr(path, '/');
    *slash = '\0';
    STK_TRY(stk_file_mkdirs(path, 0755, w->err));
    *slash = '/';
    return stk_file_write(path, "", 0, 0644, w->err);
}

static int put_mount(container_writer *w, const char *from, const char *to, bool writes,
                     bool is_dir)
{
    STK_TRY(stk_err_if_null(from, w->err));
    stk_json_open(w->buf, NULL, '{');
    stk_json_put_text(w->buf, "from", from);
    stk_json_put_text(w->buf, "to", to);
    stk_json_put_bool(w->buf, "write", writes);
    stk_json_close(w->buf, '}');
    return make_point(w, to, is_dir);
}

static int put_folder(container_writer *w, const char *folder, bool writes)
{
    return put_mount(w, folder, folder, writes, true);
}

/* Makes and mounts the step's folder of checkpoints. Outside a container a Python step makes it at
 * its first use; inside, it can only use a mount. */
static int put_checkpoints(container_writer *w)
{
    const char *folder = stk_exec_checkpoints(w->x, w->in.task, w->x->scratch);
    if (folder != NULL && mkdir(folder, 0755) < 0 && errno != EEXIST) {
        return stk_err_sys(w->err, STK_E_SYS, errno, "making folder %s", folder);
    }
    return put_folder(w, folder, true);
}

static int put_file(container_writer *w, const char *path)
{
    const char *at = stk_exec_absolute(w->x->spec, path, w->x->scratch);
    struct stat st;
    STK_TRY(stk_err_if_null(at, w->err));
    if (stat(at, &st) < 0) {
        return stk_err_sys(w->err, errno == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, errno,
                           "'%s', which goes into the container", at);
    }
    return put_mount(w, at, at, false, S_ISDIR(st.st_mode));
}

/* The project's files, at their own paths. In a home folder each part is a mount of its own, so
 * that the image's files there stay visible. */
static int put_code(container_writer *w)
{
    STK_DIR_AUTO dir = {0};
    const char *code = w->all->code, *root = w->all->root;
    if (code == NULL || !w->all->by_file) {
        if (code == NULL) {
            return 0;
        }
        return put_mount(w, code, root, false, true);
    }
    STK_TRY(stk_dir_read(code, &dir, w->err));
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        const char *from = stk_arena_printf(w->x->scratch, "%s/%s", code, name);
        const char *to = stk_arena_printf(w->x->scratch, "%s/%s", root, name);
        STK_TRY(stk_err_if_null(to, w->err));
        STK_TRY(put_mount(w, from, to, false, false));
    }
    return 0;
}

/* Whether the container needs our program: to start ranks, or to hash large files for a Python
 * worker. */
static bool needs_program(const container_writer *w)
{
    return w->all->bin != NULL &&
           (w->in.step->python != NULL || stk_exec_gang(w->x, w->in.task).ranks != 0);
}

static int put_mounts(container_writer *w)
{
    const char *artifacts =
        stk_arena_printf(w->x->scratch, "%s/artifacts", stk_store_path(w->x->config.store));
    const stk_cache_policy *cache = &w->in.step->settings->cache;
    stk_json_open(w->buf, "mounts", '[');
    STK_TRY(put_code(w));
    STK_TRY(put_folder(w, artifacts, false));
    STK_TRY(put_folder(w, w->in.dir, true));
    STK_TRY(put_checkpoints(w));
    if (w->in.step->python != NULL) {
        STK_TRY(put_mount(w, w->all->front, "/stoker/python/stoker", false, true));
    }
    if (w->in.has_program) {
        STK_TRY(put_mount(w, w->all->bin, "/stoker/bin", false, true));
    }
    for (uint32_t i = 0; i < w->in.step->n_inputs; i++) {
        if (w->in.step->inputs[i].kind == STK_INPUT_FILE) {
            STK_TRY(put_file(w, w->in.step->inputs[i].text));
        }
    }
    for (uint32_t i = 0; i < cache->n_files; i++) {
        STK_TRY(put_file(w, cache->files[i]));
    }
    stk_json_close(w->buf, ']');
    return stk_exec_put_volumes(w->x, &w->in.options, w->buf, w->err);
}

/* --- program and variables --- */

static int put_argv(container_writer *w)
{
    const char *const *argv = stk_exec_in_image_argv(w->x, &w->in);
    STK_TRY(stk_err_if_null(argv, w->err));
    stk_json_put_texts(w->buf, "argv", argv);
    stk_json_put_text(w->buf, "cwd", stk_exec_in_image_cwd(w->x, &w->in));
    return 0;
}

static void put_container_env(void *arg, const char *key, const char *value, bool expands)
{
    container_writer *w = arg;
    if (expands) {
        stk_json_put_text(w->expand, NULL, key);
    }
    stk_json_put_text(w->buf, key, value);
}

/* An option of the step's `settings={"orchestrator.docker": {…}}`, or of ZenML's `run_args` in it;
 * NULL: neither has it. */
static const stk_json *option(const container_writer *w, const char *key)
{
    return stk_spec_docker_option(&w->in.options, key);
}

/* The user that the step asks for, or NULL. */
static const char *other_user(const container_writer *w)
{
    const char *user = stk_json_get_text(&w->in.docker, "user");
    if (user == NULL) {
        user = stk_json_text(option(w, "user"));
    }
    return stk_text_if_any(user);
}

static int put_variables(container_writer *w, const char *const *env)
{
    stk_json_open(w->expand, "expand", '[');
    stk_json_open(w->buf, "env", '{');
    if (strcmp(w->all->owner, "0:0") != 0 && other_user(w) == NULL &&
        !stk_exec_sets(w->x, &w->in, "HOME")) {
        /* a user whom the image doesn't know has no home */
        stk_json_put_text(w->buf, "HOME", "/tmp");
    }
    stk_exec_put_environment(w->x, &w->in, w->buf);
    STK_TRY(stk_exec_in_image_env(w->x, &w->in, put_container_env, w, w->err));
    stk_json_close(w->buf, '}');
    stk_json_close(w->expand, ']');
    STK_TRY(stk_buf_check(w->expand, w->err));
    stk_buf_char(w->buf, ',');
    stk_buf_add(w->buf, w->expand->data, w->expand->len);
    stk_json_open(w->buf, "pass", '[');
    for (uint32_t i = 0; env != NULL && env[i] != NULL; i++) {
        const char *name = stk_arena_dupn(w->x->scratch, env[i], strcspn(env[i], "="));
        STK_TRY(stk_err_if_null(name, w->err));
        stk_json_put_text(w->buf, NULL, name);
    }
    if (getenv("STOKER_MAIN_ARGS") != NULL) {
        stk_json_put_text(w->buf, NULL, "STOKER_MAIN_ARGS");
    }
    stk_json_close(w->buf, ']');
    return 0;
}

/* --- limits and devices --- */

static int64_t shm_bytes(const container_writer *w)
{
    int64_t bytes = 0;
    struct statvfs fs;
    if (!stk_spec_container_bytes(option(w, "shm_size"), &bytes) &&
        statvfs("/dev/shm", &fs) == 0) { /* like a step without a container */
        bytes = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    }
    return bytes;
}

static void put_limits(container_writer *w)
{
    const stk_request *r = stk_plan_request(w->x->config.plan, w->x->tasks[w->in.task].i_step);
    const exec_slot *slot = w->x->tasks[w->in.task].slot;
    int64_t memory = stk_exec_asked_memory(&w->in.options, stk_exec_memory_limit(w->x, w->in.task));
    int64_t cpu_milli = stk_exec_asked_cpu(&w->in.options, r->limit_cpu ? r->cpu_milli : 0);
    int64_t shm = shm_bytes(w);
    STK_BUF_AUTO cpus = STK_BUF_INIT(1 << 16);
    if (memory > 0) {
        stk_json_put_whole(w->buf, "memory_bytes", memory);
    }
    if (cpu_milli > 0) {
        stk_json_put_whole(w->buf, "cpu_milli", cpu_milli);
    }
    for (uint32_t i = 0; i < slot->n_cpus; i++) {
        stk_buf_separate(&cpus, ",");
        stk_buf_printf(&cpus, "%u", w->x->cpu_ids[slot->cpus[i]]);
    }
    if (cpus.len > 0) {
        stk_json_put_text(w->buf, "cpus", cpus.data);
    }
    if (shm > 0) {
        stk_json_put_whole(w->buf, "shm_bytes", shm);
    }
    if (option(w, "ulimits") != NULL) {
        stk_json_put(w->buf, "ulimits", option(w, "ulimits"));
    }
}

/* Writes NVIDIA devices by uuid, the others by their device nodes. */
static void put_leased_devices(container_writer *w)
{
    static const stk_lease none = {0};
    stk_accel *accel = w->x->config.accel;
    /* a simulated device can run nothing */
    const stk_lease *lease =
        stk_accel_is_simulated(accel) ? &none : &w->x->tasks[w->in.task].slot->lease;
    bool amd = false;
    stk_json_open(w->buf, "gpus", '[');
    for (uint32_t i = 0; i < lease->n; i++) {
        const stk_device *d = stk_accel_device(accel, lease->devices[i]);
        if (strcmp(d->vendor, "nvidia") == 0 && d->uuid != NULL) {
            stk_json_put_text(w->buf, NULL, d->uuid);
        }
    }
    stk_json_close(w->buf, ']');
    stk_json_open(w->buf, "devices", '[');
    for (uint32_t i = 0; i < lease->n; i++) {
        const stk_device *d = stk_accel_device(accel, lease->devices[i]);
        if (strcmp(d->vendor, "nvidia") != 0 && d->node != NULL) {
            stk_json_put_text(w->buf, NULL, d->node);
            amd = amd || strcmp(d->vendor, "amd") == 0;
        }
    }
    if (amd) {
        stk_json_put_text(w->buf, NULL, "/dev/kfd");
    }
    stk_json_close(w->buf, ']');
}

static void put_container_words(container_writer *w)
{
    const stk_json *entrypoint = stk_json_get(&w->in.docker, "entrypoint");
    char host[256] = "", attempt[16];
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(attempt, sizeof attempt, "%u", w->attempt);
    stk_json_put_text(w->buf, "user", stk_text_or(other_user(w), w->all->owner));
    stk_json_put_text(w->buf, "owner", w->all->owner);
    stk_json_put_text(w->buf, "network", stk_exec_asked_network(&w->in.options));
    stk_json_put_text(w->buf, "entrypoint", stk_json_is(entrypoint, "keep") ? "keep" : "bypass");
    stk_json_open(w->buf, "labels", '{');
    stk_exec_put_labels(w->x, &w->in.options, w->buf);
    stk_json_put_text(w->buf, "stoker.run", w->x->config.run);
    stk_json_put_text(w->buf, "stoker.step", w->in.step->name);
    stk_json_put_text(w->buf, "stoker.attempt", attempt);
    stk_json_put_text(w->buf, "stoker.store", stk_store_path(w->x->config.store));
    stk_json_put_text(w->buf, "stoker.host", host);
    stk_json_close(w->buf, '}');
}

static int put_members(container_writer *w, const char *const *env)
{
    uint32_t i_step = w->x->tasks[w->in.task].i_step;
    STK_TRY(stk_exec_in_image_open(w->x, w->in.task, &w->all->places[i_step], &w->in, w->err));
    w->in.has_program = needs_program(w);
    stk_json_open(w->buf, "container", '{');
    stk_json_put_text(w->buf, "image", w->all->images[i_step]);
    stk_json_put_text(w->buf, "name", stk_exec_container_image(w->x, w->in.task));
    stk_json_put_known_text(w->buf, "socket", w->all->socket);
    STK_TRY(put_argv(w));
    STK_TRY(put_mounts(w));
    STK_TRY(put_variables(w, env));
    put_limits(w);
    put_leased_devices(w);
    put_container_words(w);
    stk_exec_put_run_args(&w->in.options, w->buf);
    stk_json_close(w->buf, '}');
    return 0;
}

int stk_exec_put_container(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                           const char *const *env, stk_buf *buf, stk_err *err)
{
    const stk_exec_containers *all = x->config.containers;
    STK_BUF_AUTO expand = STK_BUF_INIT(1 << 20);
    container_writer w = {.x = x,
                          .all = all,
                          .in = {.task = task,
                                 .at = "/stoker",
                                 .dir = dir,
                                 .root = all->code == NULL ? NULL : all->root,
                                 .main_file = all->main_file,
                                 .python_path = all->python_paths[x->tasks[task].i_step]},
                          .attempt = attempt,
                          .buf = buf,
                          .expand = &expand,
                          .err = err};
    if (put_members(&w, env) >= 0) {
        return 0;
    }
    return stk_err_context(err, "container");
}

const char *stk_exec_container_image(const stk_exec *x, uint32_t task)
{
    const stk_exec_containers *all = x->config.containers;
    uint32_t i_step = x->tasks[task].i_step;
    const char *written = all->places[i_step].written;
    return stk_text_or(written, all->images[i_step]);
}

void stk_exec_put_container_image(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_exec_containers *all = x->config.containers;
    uint32_t i_step = x->tasks[task].i_step;
    stk_json_open(buf, "image", '{');
    stk_json_put_text(buf, "name", stk_exec_container_image(x, task));
    stk_json_put_text(buf, "id", all->images[i_step]);
    stk_json_put_known_text(buf, "pinned", all->pins[i_step]);
    stk_json_close(buf, '}');
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
