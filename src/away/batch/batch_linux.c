/* The container's parts of its instance: devices, special memory, folders. */
#include <stdio.h>
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

#define TMPFS_PATH "/metaflow_temp" /* Metaflow's */

static void put_device_nodes(stk_buf *out, const char *prefix, int64_t n,
                             const char *const *permissions)
{
    for (int64_t i = 0; i < n; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s%lld", prefix, (long long)i);
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "hostPath", path);
        stk_json_put_text(out, "containerPath", path);
        stk_json_put_texts(out, "permissions", permissions);
        stk_json_close(out, '}');
    }
}

/* MiB of the tmpfs; 0: none. As in Metaflow, use_tmpfs without a size means half the memory. */
static int64_t tmpfs_mib(const stk_batch_ask *ask)
{
    int64_t size = stk_batch_whole(&ask->options, "tmpfs_size");
    if (size > 0) {
        return size;
    }
    return stk_batch_bool(&ask->options, "use_tmpfs", false) ? ask->memory_mib / 2 : 0;
}

static const char *tmpfs_path(const stk_batch_ask *ask)
{
    const char *path = stk_batch_text(&ask->options, "tmpfs_path");
    return stk_text_or(path, TMPFS_PATH);
}

int stk_batch_put_linux(const stk_batch_ask *ask, stk_buf *out, stk_err *err)
{
    static const char *const numbers[][2] = {{"sharedMemorySize", "shared_memory"},
                                             {"maxSwap", "max_swap"},
                                             {"swappiness", "swappiness"}};
    static const char *const neuron[] = {"READ", "WRITE", NULL};
    static const char *const efa[] = {"READ", "WRITE", "MKNOD", NULL};
    int64_t tmpfs = tmpfs_mib(ask);
    if (stk_batch_whole(&ask->options, "swappiness") >= 0 &&
        stk_batch_whole(&ask->options, "max_swap") < 0) {
        return stk_err_set(err, STK_E_SPEC, "swappiness has no effect without max_swap; set both");
    }
    stk_json_open(out, "linuxParameters", '{');
    stk_json_put_bool(out, "initProcessEnabled",
                      stk_batch_bool(&ask->options, "init_process", false));
    if (ask->neurons > 0 || ask->efa > 0) {
        stk_json_open(out, "devices", '[');
        put_device_nodes(out, "/dev/neuron", ask->neurons, neuron);
        put_device_nodes(out, "/dev/infiniband/uverbs", ask->efa, efa);
        stk_json_close(out, ']');
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t number = stk_batch_whole(&ask->options, numbers[i][1]);
        if (number >= 0) {
            stk_json_put_int(out, numbers[i][0], number);
        }
    }
    if (tmpfs > 0) {
        stk_json_open(out, "tmpfs", '[');
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "containerPath", tmpfs_path(ask));
        stk_json_put_int(out, "size", tmpfs);
        stk_json_close(out, '}');
        stk_json_close(out, ']');
    }
    stk_json_close(out, '}');
    if (tmpfs > 0 && stk_batch_bool(&ask->options, "tmpfs_tempdir", true)) {
        stk_json_open(out, "environment", '[');
        stk_batch_put_pair(out, "name", "TMPDIR", "value", tmpfs_path(ask));
        stk_batch_put_pair(out, "name", "METAFLOW_TEMPDIR", "value", tmpfs_path(ask));
        stk_json_close(out, ']');
    }
    return 0;
}

/* --- folders --- */

/* Reads the source of `carry: volume`: a folder of an EFS file system, or of the host. Returns
 * false for anything else. */
static bool read_carry_volume(const char *text, stk_arena *arena, const char **ret_efs,
                              const char **ret_path)
{
    *ret_efs = NULL;
    *ret_path = NULL;
    if (text == NULL || (*text != '/' && strncmp(text, "efs:", 4) != 0)) {
        return false;
    }
    if (*text == '/') {
        *ret_path = text;
        return true;
    }
    size_t n = strcspn(text + 4, "/:");
    const char *rest = text + 4 + n;
    rest += *rest == ':';
    *ret_efs = stk_arena_dupn(arena, text + 4, n);
    *ret_path = *rest != 0 ? rest : "/";
    return *ret_efs != NULL && n > 0;
}

/* A folder of an EFS file system, or with `efs` NULL of the host. */
static void put_volume(stk_buf *volumes, const char *name, const char *efs, const char *path)
{
    stk_json_open(volumes, NULL, '{');
    stk_json_put_text(volumes, "name", name);
    stk_json_open(volumes, efs != NULL ? "efsVolumeConfiguration" : "host", '{');
    if (efs == NULL) {
        stk_json_put_text(volumes, "sourcePath", path);
    } else {
        stk_json_put_text(volumes, "fileSystemId", efs);
        if (path != NULL) {
            stk_json_put_text(volumes, "rootDirectory", path);
        }
        stk_json_put_text(volumes, "transitEncryption", "ENABLED");
    }
    stk_json_close(volumes, '}');
    stk_json_close(volumes, '}');
}

static int wrong_volume(const char *text, const char *option, const char *form, stk_err *err)
{
    return stk_err_set(err, STK_E_SPEC, "'%s' of %s must be %s with absolute paths", text, option,
                       form);
}

/* Adds one entry of host_volumes. */
static int put_host_volume(const char *text, stk_buf *volumes, stk_buf *mounts, stk_err *err)
{
    char name[64], from[1024];
    size_t n = strcspn(text, ":");
    if (n >= sizeof from || *text != '/' || (text[n] == ':' && text[n + 1] != '/')) {
        return wrong_volume(text, "host_volumes", "/path or /path:/inside", err);
    }
    (void)snprintf(from, sizeof from, "%.*s", (int)n, text);
    (void)snprintf(name, sizeof name, "host%zu", volumes->len);
    put_volume(volumes, name, NULL, from);
    stk_batch_put_pair(mounts, "sourceVolume", name, "containerPath",
                       text[n] == ':' ? text + n + 1 : from);
    return 0;
}

/* Adds one entry of efs_volumes. */
static int put_efs_volume(const char *text, stk_buf *volumes, stk_buf *mounts, stk_err *err)
{
    char name[64], id[1024], target[1024 + 8];
    size_t n = strcspn(text, ":");
    if (n == 0 || n >= sizeof id || (text[n] == ':' && text[n + 1] != '/')) {
        return wrong_volume(text, "efs_volumes", "fs-id or fs-id:/inside", err);
    }
    (void)snprintf(id, sizeof id, "%.*s", (int)n, text);
    (void)snprintf(target, sizeof target, "/mnt/%s", id);
    (void)snprintf(name, sizeof name, "efs%zu", volumes->len);
    put_volume(volumes, name, id, NULL);
    stk_batch_put_pair(mounts, "sourceVolume", name, "containerPath",
                       text[n] == ':' ? text + n + 1 : target);
    return 0;
}

static int put_carry_volume(const stk_batch_ask *ask, stk_buf *volumes, stk_buf *mounts,
                            stk_err *err)
{
    const char *efs, *path;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    if (!read_carry_volume(ask->config->carry_volume, scratch, &efs, &path)) {
        return stk_err_set(err, STK_E_SPEC,
                           "stack '%s': carry_volume is '%s'; with carry: volume on AWS Batch it "
                           "must be a folder of the "
                           "instances (/path) or efs:fs-id[/path], filled by 'stoker carry'",
                           ask->config->stack, stk_text_or(ask->config->carry_volume, ""));
    }
    put_volume(volumes, "stoker", efs, path);
    stk_json_open(mounts, NULL, '{');
    stk_json_put_text(mounts, "sourceVolume", "stoker");
    stk_json_put_text(mounts, "containerPath", ask->job->carry_at);
    stk_json_put_bool(mounts, "readOnly", true);
    stk_json_close(mounts, '}');
    return 0;
}

int stk_batch_put_volumes(const stk_batch_ask *ask, stk_buf *out, stk_err *err)
{
    STK_BUF_AUTO volumes = STK_BUF_INIT(1 << 18);
    STK_BUF_AUTO mounts = STK_BUF_INIT(1 << 18);
    const stk_json *items;
    uint32_t n = stk_json_as_list(stk_batch_option(&ask->options, "host_volumes"), &items);
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(put_host_volume(items[i].text, &volumes, &mounts, err));
    }
    n = stk_json_as_list(stk_batch_option(&ask->options, "efs_volumes"), &items);
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(put_efs_volume(items[i].text, &volumes, &mounts, err));
    }
    const char *share = stk_text_or(ask->config->share_url, "");
    if (*share == '/' && strstr(stk_text_or(mounts.data, ""), share) == NULL) {
        STK_TRY(put_host_volume(share, &volumes, &mounts, err)); /* each instance has this folder */
    }
    if (strcmp(ask->config->carry, "volume") == 0) {
        STK_TRY(put_carry_volume(ask, &volumes, &mounts, err));
    }
    if (volumes.failed || mounts.failed) {
        return stk_err_set(err, STK_E_LIMIT, "too many volumes");
    }
    if (volumes.len > 0) {
        stk_json_put_key(out, "volumes");
        (void)stk_buf_printf(out, "[%s]", volumes.data);
        stk_json_put_key(out, "mountPoints");
        (void)stk_buf_printf(out, "[%s]", mounts.data);
    }
    return 0;
}
