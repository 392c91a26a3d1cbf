/* The request that creates a container, for Docker's API or Podman's own. It leaves out the
 * program's environment, because `inspect` shows the request to everyone. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "image/contain/contain_private.h"

typedef struct writer {
    const contain_spec *spec;
    const contain_files *files;
    const contain_devices *devices;
    const char *user;
    stk_buf *out;
} writer;

static void put_texts(stk_buf *out, const char *key, const char *const *texts, uint32_t n)
{
    stk_json_open(out, key, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_text(out, NULL, texts[i]);
    }
    stk_json_close(out, ']');
}

/* The runner's arguments: its socket, or those of the spec. */
static void put_arguments(const writer *w, const char *key)
{
    static const char *const command[] = {CONTAIN_SOCKET, NULL};
    stk_json_put_texts(w->out, key, w->spec->own != NULL ? w->spec->own : command);
}

static void put_known_number(stk_buf *out, const char *key, int64_t number)
{
    if (number >= 0) {
        stk_json_put_int(out, key, number);
    }
}

/* Columns: type, source, destination, and how to write read-only. */
static void put_mounts(const writer *w, bool podman)
{
    const contain_spec *s = w->spec;
    for (uint32_t i = 0; i < s->n_mounts + 2; i++) {
        contain_mount own[] = {{w->files->runner, CONTAIN_RUNNER, false},
                               {w->files->socket, CONTAIN_SOCKET, true}};
        const contain_mount *m = i < 2 ? &own[i] : &s->mounts[i - 2];
        stk_json_open(w->out, NULL, '{');
        if (podman) {
            const char *const options[] = {"rbind", m->write ? "rw" : "ro", NULL};
            stk_json_put_text(w->out, "type", "bind");
            stk_json_put_text(w->out, "source", m->from);
            stk_json_put_text(w->out, "destination", m->to);
            stk_json_put_texts(w->out, "options", options);
        } else {
            stk_json_put_text(w->out, "Type", "bind");
            stk_json_put_text(w->out, "Source", m->from);
            stk_json_put_text(w->out, "Target", m->to);
            stk_json_put_bool(w->out, "ReadOnly", !m->write);
        }
        stk_json_close(w->out, '}');
    }
    stk_contain_put_volumes(s, podman, w->out);
}

/* Unlimited is Podman's highest number, which has no sign. */
static void put_limit(const writer *w, const char *key, int64_t n, bool podman)
{
    if (n < 0) {
        stk_json_put_raw(w->out, key, podman ? "18446744073709551615" : "-1");
    } else {
        stk_json_put_int(w->out, key, n);
    }
}

static void put_ulimits(const writer *w, bool podman)
{
    static const char *const words[2][4] = {{"Ulimits", "Name", "Soft", "Hard"},
                                            {"r_limits", "type", "soft", "hard"}};
    const char *const *word = words[podman];
    stk_json_open(w->out, word[0], '[');
    for (uint32_t i = 0; i < stk_spec_n_ulimits(w->spec->ulimits); i++) {
        const stk_spec_ulimit one = stk_spec_ulimit_at(w->spec->ulimits, i);
        stk_json_open(w->out, NULL, '{');
        stk_json_put_text(w->out, word[1], one.name);
        put_limit(w, word[2], one.soft, podman);
        put_limit(w, word[3], one.hard, podman);
        stk_json_close(w->out, '}');
    }
    stk_json_close(w->out, ']');
}

static void put_groups(const writer *w, const char *key)
{
    stk_json_open(w->out, key, '[');
    for (uint32_t i = 0; i < w->devices->n_groups; i++) {
        char group[16];
        (void)snprintf(group, sizeof group, "%u", (unsigned)w->devices->groups[i]);
        stk_json_put_text(w->out, NULL, group);
    }
    stk_contain_put_items(w->spec, "group_add", w->out);
    stk_json_close(w->out, ']');
}

/* Whatever the engine's default runtime is, an image that asks for all GPUs
 * (NVIDIA_VISIBLE_DEVICES=all) gets only the granted ones. */
static const char *visible(const writer *w)
{
    return w->devices->n_uuids > 0 ? NULL : "void";
}

static void put_docker_devices(const writer *w)
{
    const contain_devices *d = w->devices;
    stk_json_open(w->out, "Devices", '[');
    for (uint32_t i = 0; i < d->n_nodes; i++) {
        stk_json_open(w->out, NULL, '{');
        stk_json_put_text(w->out, "PathOnHost", d->nodes[i]->from);
        stk_json_put_text(w->out, "PathInContainer", d->nodes[i]->to);
        stk_json_put_text(w->out, "CgroupPermissions", d->nodes[i]->how);
        stk_json_close(w->out, '}');
    }
    stk_json_close(w->out, ']');
    if (d->n_uuids + d->n_cdi == 0) {
        return;
    }
    stk_json_open(w->out, "DeviceRequests", '[');
    if (d->n_uuids > 0) {
        stk_json_open(w->out, NULL, '{');
        stk_json_put_text(w->out, "Driver", "nvidia");
        put_texts(w->out, "DeviceIDs", d->uuids, d->n_uuids);
        stk_json_put_raw(w->out, "Capabilities", "[[\"gpu\",\"compute\",\"utility\"]]");
        stk_json_close(w->out, '}');
    }
    if (d->n_cdi > 0) {
        stk_json_open(w->out, NULL, '{');
        stk_json_put_text(w->out, "Driver", "cdi");
        put_texts(w->out, "DeviceIDs", d->cdi, d->n_cdi);
        stk_json_close(w->out, '}');
    }
    stk_json_close(w->out, ']');
}

static int64_t bytes_of(const contain_spec *s, const char *key)
{
    int64_t bytes = -1;
    bool known = stk_spec_container_bytes(stk_json_get(s->run_args, key), &bytes);
    return known ? bytes : -1;
}

/* Memory plus swap: no swap, unless memswap_limit allows some. */
static int64_t swap_bytes(const contain_spec *s)
{
    int64_t asked = bytes_of(s, "memswap_limit");
    return s->memory_bytes > 0 && asked > s->memory_bytes ? asked : s->memory_bytes;
}

static int64_t reserved_bytes(const contain_spec *s)
{
    return bytes_of(s, "mem_reservation");
}

static void put_docker(const writer *w)
{
    static const char *const entrypoint[] = {CONTAIN_RUNNER, NULL};
    static const char *const env[] = {"NVIDIA_VISIBLE_DEVICES=void"};
    const contain_spec *s = w->spec;
    stk_json_open(w->out, NULL, '{');
    stk_json_put_text(w->out, "Image", s->image);
    stk_json_put_texts(w->out, "Entrypoint", entrypoint);
    put_arguments(w, "Cmd");
    put_texts(w->out, "Env", env, visible(w) != NULL);
    stk_json_put_text(w->out, "User", w->user);
    if (s->cwd !=
        NULL) { /* the runner changes to it: an engine would create a missing folder, or fail */
        stk_json_put_text(w->out, "WorkingDir", "/");
    }
    if (s->labels != NULL) {
        stk_json_put(w->out, "Labels", s->labels);
    }
    stk_json_put_known_text(w->out, "Hostname", stk_json_get_text(s->run_args, "hostname"));
    stk_json_put_raw(w->out, "Healthcheck", "{\"Test\":[\"NONE\"]}");
    stk_json_open(w->out, "HostConfig", '{');
    stk_json_put_bool(w->out, "AutoRemove", true); /* works even if all our processes have died */
    stk_json_put_text(w->out, "NetworkMode", s->network);
    stk_json_open(w->out, "SecurityOpt", '[');
    stk_json_put_text(w->out, NULL, "label=disable");
    stk_contain_put_items(s, "security_opt", w->out);
    stk_json_close(w->out, ']');
    if (s->read_only) {
        stk_json_put_bool(w->out, "ReadonlyRootfs", true);
    }
    put_known_number(w->out, "Memory", s->memory_bytes);
    put_known_number(w->out, "MemorySwap", swap_bytes(s));
    put_known_number(w->out, "NanoCpus", s->cpu_milli * 1000000);
    if (!stk_contain_shares_memory(s)) {
        put_known_number(w->out, "ShmSize", s->shm_bytes);
    }
    put_known_number(w->out, "PidsLimit", s->pids);
    put_known_number(w->out, "MemoryReservation", reserved_bytes(s));
    stk_contain_put_run_args(s, false, w->out);
    if (s->cpus != NULL) {
        stk_json_put_text(w->out, "CpusetCpus", s->cpus);
    }
    if (s->ulimits != NULL) {
        put_ulimits(w, false);
    }
    put_groups(w, "GroupAdd");
    put_docker_devices(w);
    stk_json_open(w->out, "Mounts", '[');
    put_mounts(w, false);
    stk_json_close(w->out, ']');
    stk_json_close(w->out, '}');
    stk_json_close(w->out, '}');
}

static void put_podman_limits(const writer *w)
{
    const contain_spec *s = w->spec;
    stk_json_open(w->out, "resource_limits", '{');
    if (s->memory_bytes > 0) {
        stk_json_open(w->out, "memory", '{');
        put_known_number(w->out, "limit", s->memory_bytes);
        put_known_number(w->out, "swap", swap_bytes(s));
        put_known_number(w->out, "reservation", reserved_bytes(s));
        stk_json_close(w->out, '}');
    }
    stk_json_open(w->out, "cpu", '{');
    if (s->cpu_milli > 0) {
        put_known_number(w->out, "period", 100000);
        put_known_number(w->out, "quota", s->cpu_milli * 100);
    }
    if (s->cpus != NULL) {
        stk_json_put_text(w->out, "cpus", s->cpus);
    }
    put_known_number(w->out, "shares", stk_json_get_whole(s->run_args, "cpu_shares", -1));
    stk_json_close(w->out, '}');
    if (s->pids > 0) {
        stk_json_open(w->out, "pids", '{');
        put_known_number(w->out, "limit", s->pids);
        stk_json_close(w->out, '}');
    }
    stk_json_close(w->out, '}');
}

/* Uses Podman's own API: its Docker API silently drops CDI names. */
static void put_podman(const writer *w)
{
    static const char *const entrypoint[] = {CONTAIN_RUNNER, NULL};
    static const char *const security[] = {"disable", NULL};
    const contain_spec *s = w->spec;
    const contain_devices *d = w->devices;
    char path[512];
    stk_json_open(w->out, NULL, '{');
    stk_json_put_text(w->out, "name", s->name);
    stk_json_put_text(w->out, "image", s->image);
    stk_json_put_texts(w->out, "entrypoint", entrypoint);
    put_arguments(w, "command");
    stk_json_open(w->out, "env", '{');
    if (visible(w) != NULL) {
        stk_json_put_text(w->out, "NVIDIA_VISIBLE_DEVICES", visible(w));
    }
    stk_json_close(w->out, '}');
    stk_json_put_text(w->out, "user", w->user);
    if (s->cwd != NULL) {
        stk_json_put_text(w->out, "work_dir", "/");
    }
    if (s->labels != NULL) {
        stk_json_put(w->out, "labels", s->labels);
    }
    stk_json_put_raw(w->out, "healthconfig", "{\"Test\":[\"NONE\"]}");
    stk_json_put_bool(w->out, "remove", true);
    stk_json_put_bool(w->out, "read_only_filesystem", s->read_only);
    stk_json_put_texts(w->out, "selinux_opts", security);
    stk_json_open(w->out, "netns", '{');
    stk_json_put_text(w->out, "nsmode", s->network);
    stk_json_close(w->out, '}');
    if (!stk_contain_shares_memory(s)) {
        put_known_number(w->out, "shm_size", s->shm_bytes);
    }
    put_podman_limits(w);
    stk_contain_put_run_args(s, true, w->out);
    if (s->ulimits != NULL) {
        put_ulimits(w, true);
    }
    put_groups(w, "groups");
    stk_json_open(w->out, "devices", '[');
    for (uint32_t i = 0; i < d->n_nodes + d->n_cdi; i++) {
        stk_json_open(w->out, NULL, '{');
        stk_json_put_key(w->out, "path");
        if (i < d->n_nodes) {
            const stk_spec_volume *node = d->nodes[i];
            (void)snprintf(path, sizeof path, "%s:%s:%s", node->from, node->to, node->how);
            stk_json_put_text(w->out, NULL, path);
        } else {
            stk_json_put_text(w->out, NULL, d->cdi[i - d->n_nodes]);
        }
        stk_json_close(w->out, '}');
    }
    stk_json_close(w->out, ']');
    stk_json_open(w->out, "mounts", '[');
    put_mounts(w, true);
    stk_json_close(w->out, ']');
    stk_json_close(w->out, '}');
}

/* The user of the program, so that the user owns the files it writes. Root in a rootless engine is
 * that user. */
static const char *user_of(const contain_spec *spec, const stk_engine *engine, stk_arena *arena)
{
    if (stk_contain_switches(spec)) {
        return "0:0";
    }
    if (spec->user != NULL && spec->user[0] != '\0') {
        return spec->user;
    }
    if (engine->is_rootless) {
        return "0:0";
    }
    return stk_arena_printf(arena, "%u:%u", (unsigned)geteuid(), (unsigned)getegid());
}

static int check_mounts(const contain_spec *spec, stk_err *err)
{
    for (uint32_t i = 0; i < spec->n_mounts; i++) {
        if (access(spec->mounts[i].from, F_OK) != 0) {
            return stk_err_sys(err, STK_E_NOT_FOUND, errno, "mounting %s at %s in the container",
                               spec->mounts[i].from, spec->mounts[i].to);
        }
    }
    return 0;
}

int stk_contain_delete(const stk_engine *engine, const char *id, stk_err *err)
{
    char path[512];
    (void)snprintf(path, sizeof path, "/containers/%s?force=true&v=true", id);
    int status = 0;
    int rc = stk_engine_call(engine, "DELETE", path, NULL, &status, NULL, err);
    return rc == STK_E_NOT_FOUND || status == 404 || status == 409
               ? 0
               : rc; /* removed, or being removed */
}

int stk_contain_create(const contain_spec *spec, stk_engine *engine, const contain_files *files,
                       stk_arena *arena, const char **ret_id, stk_err *err)
{
    contain_devices devices = {0};
    STK_BUF_AUTO body = STK_BUF_INIT(16 << 20);
    STK_BUF_AUTO answer = STK_BUF_INIT(1 << 20);
    stk_json root = {0};
    char path[512];
    STK_TRY(check_mounts(spec, err));
    STK_TRY(stk_contain_devices(spec, engine, arena, &devices, err));
    writer w = {.spec = spec,
                .files = files,
                .devices = &devices,
                .user = user_of(spec, engine, arena),
                .out = &body};
    bool own_api = engine->is_podman && devices.n_cdi > 0;
    if (own_api) {
        put_podman(&w);
        (void)snprintf(path, sizeof path, "/libpod/containers/create");
    } else {
        put_docker(&w);
        (void)snprintf(path, sizeof path, "/containers/create?name=%s", spec->name);
    }
    if (body.failed || w.user == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "container %s", spec->name);
    }
    int status = 0;
    int rc = stk_engine_call(engine, "POST", path, body.data, &status, &answer, err);
    if (rc < 0 && status != 404 && err != NULL && strstr(err->text, spec->name) != NULL &&
        strstr(err->text, "in use") != NULL) { /* left by a dead attempt of this name */
        STK_TRY(stk_contain_delete(engine, spec->name, err));
        rc = stk_engine_call(engine, "POST", path, body.data, &status, &answer, err);
    }
    if (rc < 0 && status == 404 && err != NULL) {
        stk_err words = *err;
        stk_err_set(err, STK_E_NOT_FOUND, "image '%s' isn't on this host (%s)", spec->shown,
                    words.text);
        stk_err_hint(err, "pull it: %s pull %s", stk_engine_program(engine), spec->shown);
    }
    STK_TRY(rc);
    STK_TRY(stk_engine_parse(engine, path, &answer, arena, &root, err));
    *ret_id = stk_json_get_text(&root, "Id");
    if (*ret_id == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s made a container without an id", engine->name);
    }
    return 0;
}
