/* What a container gets of its instance: devices, memory of special kinds, folders. */
#include <stdio.h>
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/text.h"

#define TMPFS_PATH "/metaflow_temp" /* Metaflow's */

static void put_devices(stk_buf *out, const char *prefix, int64_t n, bool is_efa)
{
    for (int64_t i = 0; i < n; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s%lld", prefix, (long long)i);
        stk_batch_put_comma(out);
        (void)stk_buf_char(out, '{');
        stk_json_put_text(out, "hostPath", path);
        stk_json_put_text(out, "containerPath", path);
        stk_json_put_key(out, "permissions");
        (void)stk_buf_text(out,
                           is_efa ? "[\"READ\",\"WRITE\",\"MKNOD\"]}" : "[\"READ\",\"WRITE\"]}");
    }
}

/* MiB of the tmpfs; 0: none. Metaflow's meaning: half the memory where only use_tmpfs is said. */
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
    int64_t tmpfs = tmpfs_mib(ask);
    if (stk_batch_whole(&ask->options, "swappiness") >= 0 &&
        stk_batch_whole(&ask->options, "max_swap") < 0) {
        return stk_err_set(err, STK_E_SPEC, "swappiness means nothing without max_swap; give both");
    }
    stk_json_put_key(out, "linuxParameters");
    (void)stk_buf_char(out, '{');
    stk_json_put_bool(out, "initProcessEnabled",
                      stk_batch_bool(&ask->options, "init_process", false));
    if (ask->neurons > 0 || ask->efa > 0) {
        stk_json_put_key(out, "devices");
        (void)stk_buf_char(out, '[');
        put_devices(out, "/dev/neuron", ask->neurons, false);
        put_devices(out, "/dev/infiniband/uverbs", ask->efa, true);
        (void)stk_buf_char(out, ']');
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int64_t number = stk_batch_whole(&ask->options, numbers[i][1]);
        if (number >= 0) {
            stk_json_put_int(out, numbers[i][0], number);
        }
    }
    if (tmpfs > 0) {
        stk_json_put_key(out, "tmpfs");
        (void)stk_buf_text(out, "[{");
        stk_json_put_text(out, "containerPath", tmpfs_path(ask));
        stk_json_put_int(out, "size", tmpfs);
        (void)stk_buf_text(out, "}]");
    }
    (void)stk_buf_char(out, '}');
    if (tmpfs > 0 && stk_batch_bool(&ask->options, "tmpfs_tempdir", true)) {
        stk_json_put_key(out, "environment");
        (void)stk_buf_char(out, '[');
        stk_batch_put_pair(out, "name", "TMPDIR", "value", tmpfs_path(ask));
        stk_batch_put_pair(out, "name", "METAFLOW_TEMPDIR", "value", tmpfs_path(ask));
        (void)stk_buf_char(out, ']');
    }
    return 0;
}

/* --- folders --- */

bool stk_batch_carry_volume(const char *text, stk_arena *arena, const char **ret_efs,
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

static void put_efs(stk_buf *out, const char *id, const char *root)
{
    stk_json_put_key(out, "efsVolumeConfiguration");
    (void)stk_buf_char(out, '{');
    stk_json_put_text(out, "fileSystemId", id);
    if (root != NULL) {
        stk_json_put_text(out, "rootDirectory", root);
    }
    stk_json_put_text(out, "transitEncryption", "ENABLED");
    (void)stk_buf_char(out, '}');
}

/* One text of host_volumes or efs_volumes: into `volumes` and `mounts`. */
static int put_volume(const char *text, bool is_efs, stk_buf *volumes, stk_buf *mounts,
                      stk_err *err)
{
    char name[64], from[1024], inside[1024 + 8];
    size_t n = strcspn(text, ":");
    if (n == 0 || n >= sizeof from || (!is_efs && *text != '/') ||
        (text[n] == ':' && text[n + 1] != '/')) {
        return stk_err_set(err, STK_E_SPEC, "'%s' of %s must be %s, both paths absolute", text,
                           is_efs ? "efs_volumes" : "host_volumes",
                           is_efs ? "fs-id or fs-id:/inside" : "/path or /path:/inside");
    }
    (void)snprintf(from, sizeof from, "%.*s", (int)n, text);
    (void)snprintf(inside, sizeof inside, "%s%s", text[n] == 0 && is_efs ? "/mnt/" : "",
                   text[n] == 0 ? from : text + n + 1);
    (void)snprintf(name, sizeof name, "%s%zu", is_efs ? "efs" : "host", volumes->len);
    stk_batch_put_comma(volumes);
    (void)stk_buf_char(volumes, '{');
    stk_json_put_text(volumes, "name", name);
    if (is_efs) {
        put_efs(volumes, from, NULL);
    } else {
        stk_json_put_key(volumes, "host");
        (void)stk_buf_char(volumes, '{');
        stk_json_put_text(volumes, "sourcePath", from);
        (void)stk_buf_char(volumes, '}');
    }
    (void)stk_buf_char(volumes, '}');
    stk_batch_put_pair(mounts, "sourceVolume", name, "containerPath", inside);
    return 0;
}

static int put_carry_volume(const stk_batch_ask *ask, stk_buf *volumes, stk_buf *mounts,
                            stk_err *err)
{
    const char *efs, *path;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    if (scratch == NULL ||
        !stk_batch_carry_volume(ask->config->carry_volume, scratch, &efs, &path)) {
        return stk_err_set(err, STK_E_SPEC,
                           "stack '%s': carry_volume is '%s'; with carry: volume on AWS Batch it "
                           "must be a folder of the "
                           "instances (/path) or efs:fs-id[/path], filled by 'stoker carry'",
                           ask->config->stack, stk_text_or(ask->config->carry_volume, ""));
    }
    stk_batch_put_comma(volumes);
    (void)stk_buf_text(volumes, "{\"name\":\"stoker\"");
    if (efs != NULL) {
        put_efs(volumes, efs, path);
    } else {
        stk_json_put_key(volumes, "host");
        (void)stk_buf_char(volumes, '{');
        stk_json_put_text(volumes, "sourcePath", path);
        (void)stk_buf_char(volumes, '}');
    }
    (void)stk_buf_char(volumes, '}');
    stk_batch_put_comma(mounts);
    (void)stk_buf_text(mounts, "{\"sourceVolume\":\"stoker\"");
    stk_json_put_text(mounts, "containerPath", ask->job->carry_at);
    stk_json_put_bool(mounts, "readOnly", true);
    (void)stk_buf_char(mounts, '}');
    return 0;
}

int stk_batch_put_volumes(const stk_batch_ask *ask, stk_buf *out, stk_err *err)
{
    static const char *const lists[] = {"host_volumes", "efs_volumes"};
    STK_BUF_AUTO volumes = STK_BUF_INIT(1 << 18);
    STK_BUF_AUTO mounts = STK_BUF_INIT(1 << 18);
    int rc = 0;
    for (int k = 0; k < 2; k++) {
        const stk_json *list = stk_batch_option(&ask->options, lists[k]);
        bool alone = list != NULL && list->kind != STK_JSON_LIST;
        for (uint32_t i = 0; list != NULL && rc == 0 && i < (alone ? 1 : list->n); i++) {
            rc = put_volume(alone ? list->text : list->items[i].text, k == 1, &volumes, &mounts,
                            err);
        }
    }
    const char *share = ask->config->share_url;
    if (rc == 0 && share != NULL && *share == '/' &&
        (mounts.data == NULL || strstr(mounts.data, share) == NULL)) {
        rc = put_volume(share, false, &volumes, &mounts, err); /* each instance has it */
    }
    if (rc == 0 && strcmp(ask->config->carry, "volume") == 0) {
        rc = put_carry_volume(ask, &volumes, &mounts, err);
    }
    if (rc == 0 && volumes.len > 0) {
        stk_json_put_key(out, "volumes");
        (void)stk_buf_printf(out, "[%s]", volumes.data);
        stk_json_put_key(out, "mountPoints");
        (void)stk_buf_printf(out, "[%s]", mounts.data);
    }
    if (rc < 0 || !(volumes.failed || mounts.failed)) {
        return rc;
    }
    return stk_err_set(err, STK_E_LIMIT, "too many volumes");
}
