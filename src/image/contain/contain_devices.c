/* How to pass devices to a container: as nodes, as names of the Container Device Interface (CDI),
 * or by a request to NVIDIA's runtime. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/yaml.h"
#include "image/contain/contain_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { SPEC_MAX = 16 << 20, INFO_MAX = 64 << 10 };

static const char *const cdi_folders[] = {"/etc/cdi", "/var/run/cdi", "/run/cdi"};

/* "vendor.com/class=name" */
static bool is_cdi(const char *name)
{
    const char *slash = strchr(name, '/');
    const char *equal = strchr(name, '=');
    return name[0] != '/' && slash != NULL && equal != NULL && slash < equal;
}

/* The minor number of a GPU, from NVIDIA's driver; -1: unknown. */
static int64_t minor_of(const char *uuid)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    STK_DIR_AUTO dir = {0};
    int64_t found = -1;
    int rc = stk_dir_read(folder, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && found < 0 && i < dir.n; i++) {
        char path[512];
        STK_TEXT_AUTO text = NULL;
        size_t n = 0;
        (void)snprintf(path, sizeof path, "%s/%s/information", folder, dir.items[i].name);
        if (stk_file_read(path, INFO_MAX, &text, &n, NULL) == 0 && strstr(text, uuid) != NULL) {
            const char *minor = strstr(text, "Device Minor:");
            if (minor != NULL) {
                found = strtol(minor + strlen("Device Minor:"), NULL, 10);
            }
        }
    }
    return found;
}

/* Is this the device, by its name or by the only node of a whole GPU? */
static bool is_device(const stk_json *device, const char *uuid, int64_t minor)
{
    char node[64];
    if (stk_json_is(stk_json_get(device, "name"), uuid)) {
        return true;
    }
    const stk_json *nodes = stk_json_get(stk_json_get(device, "containerEdits"), "deviceNodes");
    uint32_t n_whole = 0;
    bool ours = false;
    (void)snprintf(node, sizeof node, "/dev/nvidia%lld", (long long)minor);
    for (uint32_t i = 0; i < stk_json_n_items(nodes); i++) {
        const char *path = stk_json_get_text(&nodes->items[i], "path");
        bool whole = path != NULL && strncmp(path, "/dev/nvidia", 11) == 0 && path[11] >= '0' &&
                     path[11] <= '9';
        n_whole += whole;
        ours |= whole && strcmp(path, node) == 0;
    }
    return minor >= 0 && ours && n_whole == 1; /* not the entry for all GPUs */
}

/* What is looked for: a GPU, or a name like "vendor.com/class=name". */
typedef struct wanted {
    const char *uuid, *name; /* one of them is NULL */
    int64_t minor;
} wanted;

static bool is_wanted(const wanted *w, const char *kind, const stk_json *device)
{
    if (w->uuid != NULL) {
        return strcmp(kind, "nvidia.com/gpu") == 0 && is_device(device, w->uuid, w->minor);
    }
    size_t n = strlen(kind);
    return strncmp(w->name, kind, n) == 0 && w->name[n] == '=' &&
           stk_json_is(stk_json_get(device, "name"), w->name + n + 1);
}

/* The CDI name of this device in one specification, or NULL. */
static const char *name_in(const char *path, const wanted *w, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t n = 0;
    stk_json root = {0};
    if (stk_file_read(path, SPEC_MAX, &text, &n, NULL) < 0 ||
        stk_yaml_or_json_parse(text, n, path, &stk_engine_limits, arena, &root, NULL) < 0) {
        return NULL;
    }
    const char *kind = stk_json_get_text(&root, "kind");
    const stk_json *devices = stk_json_get(&root, "devices");
    for (uint32_t i = 0; kind != NULL && i < stk_json_n_items(devices); i++) {
        const char *name = stk_json_get_text(&devices->items[i], "name");
        if (name != NULL && is_wanted(w, kind, &devices->items[i])) {
            return stk_arena_printf(arena, "%s=%s", kind, name);
        }
    }
    return NULL;
}

static const char *find_cdi(const wanted *w, stk_arena *arena)
{
    const char *found = NULL;
    for (size_t i = 0; i < sizeof cdi_folders / sizeof *cdi_folders && found == NULL; i++) {
        STK_DIR_AUTO dir = {0};
        int rc = stk_dir_read(cdi_folders[i], &dir, NULL);
        for (uint32_t k = 0; rc == 0 && found == NULL && k < dir.n; k++) {
            const char *dot = strrchr(dir.items[k].name, '.');
            if (dot != NULL && (strcmp(dot, ".json") == 0 || strcmp(dot, ".yaml") == 0)) {
                char path[512];
                (void)snprintf(path, sizeof path, "%s/%s", cdi_folders[i], dir.items[k].name);
                found = name_in(path, w, arena);
            }
        }
    }
    return found;
}

static const char *cdi_name(const char *uuid, stk_arena *arena)
{
    return find_cdi(&(wanted){.uuid = uuid, .minor = minor_of(uuid)}, arena);
}

int stk_contain_check_cdi(const stk_engine *engine, const char *name, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    if (!engine->has_cdi) {
        return stk_err_set(err, STK_E_RESOURCES, "%s doesn't take CDI names like %s", engine->name,
                           name);
    }
    if (find_cdi(&(wanted){.name = name}, arena) != NULL) {
        return 0;
    }
    stk_err_set(err, STK_E_RESOURCES,
                "no CDI specification in /etc/cdi, /var/run/cdi or /run/cdi has device %s", name);
    stk_err_hint(err, "correct the name, or have the device's vendor write the specification "
                      "(NVIDIA: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)");
    return STK_E_RESOURCES;
}

static int no_way(const stk_engine *engine, const char *uuid, stk_err *err)
{
    if (engine->has_cdi) {
        stk_err_set(err, STK_E_RESOURCES,
                    "no CDI specification in /etc/cdi or /run/cdi has GPU %s, so %s can't pass it "
                    "to a container",
                    uuid, engine->name);
        stk_err_hint(err, "make one with: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml");
    } else {
        stk_err_set(
            err, STK_E_RESOURCES,
            "GPU %s can't be passed to a container: %s has neither CDI nor NVIDIA's runtime", uuid,
            engine->name);
        stk_err_hint(err,
                     "install nvidia-container-toolkit, then run: nvidia-ctk runtime configure");
    }
    return STK_E_RESOURCES;
}

int stk_contain_check_gpu(const stk_engine *engine, const char *uuid, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    bool has_way = engine->has_nvidia || (engine->has_cdi && cdi_name(uuid, arena) != NULL);
    if (has_way) {
        return 0;
    }
    return no_way(engine, uuid, err);
}

static int add_gpus(const contain_spec *spec, stk_engine *engine, stk_arena *arena,
                    contain_devices *d, stk_err *err)
{
    if (spec->n_gpus == 0) {
        return 0;
    }
    STK_TRY(stk_engine_ask(engine, arena, err));
    for (uint32_t i = 0; i < spec->n_gpus; i++) {
        const char *name = NULL;
        if (engine->has_cdi) {
            name = cdi_name(spec->gpus[i], arena);
        }
        if (name != NULL) {
            d->cdi[d->n_cdi++] = name;
        } else if (engine->has_nvidia) {
            d->uuids[d->n_uuids++] = spec->gpus[i];
        } else {
            return no_way(engine, spec->gpus[i], err);
        }
    }
    return 0;
}

/* Adds a node and its group: nodes of /dev/dri often belong to a group (render), and a user other
 * than root must be in it. */
static int add_node(const stk_spec_volume *node, contain_devices *d, stk_err *err)
{
    struct stat st;
    if (stat(node->from, &st) != 0) {
        return stk_err_sys(err, STK_E_RESOURCES, errno, "device %s", node->from);
    }
    d->nodes[d->n_nodes++] = node;
    bool known = st.st_gid == 0 || (st.st_mode & S_IRGRP) == 0 || (st.st_mode & S_IROTH) != 0;
    for (uint32_t i = 0; i < d->n_groups; i++) {
        known |= d->groups[i] == st.st_gid;
    }
    if (!known && d->n_groups < sizeof d->groups / sizeof *d->groups) {
        d->groups[d->n_groups++] = st.st_gid;
    }
    return 0;
}

int stk_contain_devices(const contain_spec *spec, stk_engine *engine, stk_arena *arena,
                        contain_devices *ret, stk_err *err)
{
    size_t n = (size_t)spec->n_devices + spec->n_gpus + spec->n_volumes + 1;
    stk_spec_volume *own = stk_arena_array(arena, n, sizeof *own);
    int rc = 0;
    *ret = (contain_devices){.nodes = stk_arena_array(arena, n, sizeof *ret->nodes),
                             .cdi = stk_arena_array(arena, n, sizeof *ret->cdi),
                             .uuids = stk_arena_array(arena, n, sizeof *ret->uuids)};
    if (own == NULL || ret->nodes == NULL || ret->cdi == NULL || ret->uuids == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "devices");
    }
    for (uint32_t i = 0; rc == 0 && i < spec->n_devices; i++) {
        const char *name = spec->devices[i];
        if (is_cdi(name)) {
            ret->cdi[ret->n_cdi++] = name;
        } else {
            own[i] = (stk_spec_volume){.kind = "device", .from = name, .to = name, .how = "rwm"};
            rc = add_node(&own[i], ret, err);
        }
    }
    for (uint32_t i = 0; rc == 0 && i < spec->n_volumes; i++) {
        const stk_spec_volume *v = &spec->volumes[i];
        if (strcmp(v->kind, "cdi") == 0) {
            ret->cdi[ret->n_cdi++] = v->from;
        } else if (strcmp(v->kind, "device") == 0) {
            rc = add_node(v, ret, err);
        }
    }
    if (rc == 0 && ret->n_cdi > 0) {
        rc = stk_engine_ask(engine, arena, err);
        for (uint32_t i = 0; rc == 0 && i < ret->n_cdi; i++) {
            rc = stk_contain_check_cdi(engine, ret->cdi[i], err);
        }
    }
    STK_TRY(rc);
    return add_gpus(spec, engine, arena, ret, err);
}
