/* docker-py's `run_args` and the user's volumes in the request for a container: the same for
 * Docker's API and for Podman's own, which names them in its own way. The values were checked when
 * the pipeline was read (src/tbl/run_args.def). */
#include <stdio.h>
#include <string.h>

#include "image/contain/contain_private.h"

/* Arguments whose values both take as they are. */
static const struct {
    const char *name, *docker, *podman; /* NULL: another place of the request has it */
} rows[] = {{"privileged", "Privileged", "privileged"},
            {"cap_add", "CapAdd", "cap_add"},
            {"cap_drop", "CapDrop", "cap_drop"},
            {"dns", "Dns", "dns_server"},
            {"dns_opt", "DnsOptions", "dns_option"},
            {"dns_search", "DnsSearch", "dns_search"},
            {"sysctls", "Sysctls", "sysctl"},
            {"cpu_shares", "CpuShares", NULL},
            {"oom_score_adj", "OomScoreAdj", "oom_score_adj"},
            {"hostname", NULL, "hostname"}};

void stk_contain_put_items(const contain_spec *spec, const char *key, stk_buf *out)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(stk_json_get(spec->run_args, key), &items);
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind == STK_JSON_TEXT || items[i].kind == STK_JSON_INT) {
            stk_json_put_text(out, NULL, items[i].text); /* groups may be numbers */
        }
    }
}

static void put_argument(const contain_spec *spec, const char *name, const char *key, stk_buf *out)
{
    const stk_json *value = stk_json_get(spec->run_args, name);
    bool is_list = stk_json_is_list(value) ||
                   (stk_json_is_kind(value, STK_JSON_TEXT) && strcmp(name, "hostname") != 0);
    if (value == NULL || key == NULL) {
        return;
    }
    if (is_list) {
        stk_json_open(out, key, '[');
        stk_contain_put_items(spec, name, out);
        stk_json_close(out, ']');
    } else if (stk_json_is_map(value)) {
        stk_json_open(out, key, '{');
        for (uint32_t i = 0; i < value->n; i++) {
            stk_json_put_text(out, stk_json_key(value, i)->text, stk_json_value(value, i)->text);
        }
        stk_json_close(out, '}');
    } else {
        stk_json_put(out, key, value);
    }
}

/* {HOST: ADDRESS} or ["HOST:ADDRESS"], which is also written HOST=ADDRESS. */
static void put_hosts(const contain_spec *spec, const char *key, stk_buf *out)
{
    const stk_json *hosts = stk_json_get(spec->run_args, "extra_hosts");
    if (hosts == NULL) {
        return;
    }
    stk_json_open(out, key, '[');
    for (uint32_t i = 0; i < stk_json_n_members(hosts); i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "%s:%s", stk_json_key(hosts, i)->text,
                       stk_json_value(hosts, i)->text);
        stk_json_put_text(out, NULL, line);
    }
    for (uint32_t i = 0; i < stk_json_n_items(hosts); i++) {
        char line[512];
        (void)snprintf(line, sizeof line, "%s", hosts->items[i].text);
        line[strcspn(line, "=:")] = ':';
        stk_json_put_text(out, NULL, line);
    }
    stk_json_close(out, ']');
}

/* Podman's own API has a field for each of Docker's security options. */
static void put_podman_security(const contain_spec *spec, stk_buf *out)
{
    static const char *const fields[][2] = {{"seccomp=", "seccomp_profile_path"},
                                            {"apparmor=", "apparmor_profile"}};
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(stk_json_get(spec->run_args, "security_opt"), &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = stk_json_text(&items[i]);
        for (size_t k = 0; text != NULL && k < sizeof fields / sizeof *fields; k++) {
            size_t n_prefix = strlen(fields[k][0]);
            if (strncmp(text, fields[k][0], n_prefix) == 0) {
                stk_json_put_text(out, fields[k][1], text + n_prefix);
            }
        }
        if (text != NULL && strncmp(text, "no-new-privileges", 17) == 0 &&
            strstr(text, "false") == NULL) {
            stk_json_put_bool(out, "no_new_privileges", true);
        }
    }
}

bool stk_contain_shares_memory(const contain_spec *spec)
{
    const char *mode = stk_json_get_text(spec->run_args, "ipc_mode");
    return mode != NULL && strcmp(mode, "host") == 0;
}

/* A tmpfs is a member of HostConfig, and one of the mounts in Podman's own API. */
static void put_tmpfs(const contain_spec *spec, stk_buf *out)
{
    stk_json_open(out, "Tmpfs", '{');
    for (uint32_t i = 0; i < spec->n_volumes; i++) {
        const stk_spec_volume *v = &spec->volumes[i];
        if (strcmp(v->kind, "tmpfs") == 0) {
            stk_json_put_text(out, v->to, v->how);
        }
    }
    stk_json_close(out, '}');
}

static void put_podman_volumes(const contain_spec *spec, stk_buf *out)
{
    stk_json_open(out, "volumes", '[');
    for (uint32_t i = 0; i < spec->n_volumes; i++) {
        const stk_spec_volume *v = &spec->volumes[i];
        const char *const options[] = {v->write ? "rw" : "ro", NULL};
        if (strcmp(v->kind, "volume") == 0) {
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, "Name", v->from);
            stk_json_put_text(out, "Dest", v->to);
            stk_json_put_texts(out, "Options", options);
            stk_json_close(out, '}');
        }
    }
    stk_json_close(out, ']');
}

void stk_contain_put_run_args(const contain_spec *spec, bool podman, stk_buf *out)
{
    const char *ipc = stk_json_get_text(spec->run_args, "ipc_mode");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_argument(spec, rows[i].name, podman ? rows[i].podman : rows[i].docker, out);
    }
    put_hosts(spec, podman ? "hostadd" : "ExtraHosts", out);
    if (podman) {
        put_podman_security(spec, out);
        put_podman_volumes(spec, out);
    } else {
        put_tmpfs(spec, out);
        stk_json_put_known_text(out, "IpcMode", ipc);
    }
    if (podman && ipc != NULL) {
        stk_json_open(out, "ipcns", '{');
        stk_json_put_text(out, "nsmode", ipc);
        stk_json_close(out, '}');
    }
}

static void put_docker_volume(const stk_spec_volume *v, stk_buf *out)
{
    stk_json_put_text(out, "Type", v->kind);
    stk_json_put_text(out, "Source", v->from);
    stk_json_put_text(out, "Target", v->to);
    stk_json_put_bool(out, "ReadOnly", !v->write);
}

static void put_podman_mount(const stk_spec_volume *v, stk_buf *out)
{
    bool binds = strcmp(v->kind, "bind") == 0;
    stk_json_put_text(out, "type", v->kind);
    stk_json_put_text(out, "source", binds ? v->from : "tmpfs");
    stk_json_put_text(out, "destination", v->to);
    stk_json_open(out, "options", '[');
    if (binds) {
        stk_json_put_text(out, NULL, "rbind");
        stk_json_put_text(out, NULL, v->write ? "rw" : "ro");
    }
    for (const char *word = v->how; !binds && *word != '\0';) {
        char part[128];
        int n = (int)strcspn(word, ",");
        (void)snprintf(part, sizeof part, "%.*s", n, word);
        stk_json_put_text(out, NULL, part);
        word += n + (word[n] == ',');
    }
    stk_json_close(out, ']');
}

void stk_contain_put_volumes(const contain_spec *spec, bool podman, stk_buf *out)
{
    for (uint32_t i = 0; i < spec->n_volumes; i++) {
        const stk_spec_volume *v = &spec->volumes[i];
        bool binds = strcmp(v->kind, "bind") == 0;
        if (!binds && strcmp(v->kind, podman ? "tmpfs" : "volume") != 0) {
            continue; /* elsewhere in the request */
        }
        stk_json_open(out, NULL, '{');
        if (podman) {
            put_podman_mount(v, out);
        } else {
            put_docker_volume(v, out);
        }
        stk_json_close(out, '}');
    }
}
