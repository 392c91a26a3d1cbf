/* kube_pod: the pod of a job: its container, what it finds inside, and what a user says of it. */
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube_manifest.h"
#include "base/text.h"

/* The agent writes its report within this, after the task's own grace. */
enum { AGENT_S = 15, PULL_S = 1800, GANG_PORT = 29400 };

/* --- the API's shapes as Python programs write them --- */

static const char *camel(const char *key, char *buf, size_t size)
{
    static const char *const odd[][2] = {
        {"host_ipc", "hostIPC"},     {"host_pid", "hostPID"},
        {"volume_id", "volumeID"},   {"disk_uri", "diskURI"},
        {"cluster_ip", "clusterIP"}, {"set_hostname_as_fqdn", "setHostnameAsFQDN"}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        if (strcmp(key, odd[i][0]) == 0) {
            return odd[i][1];
        }
    }
    for (; *key != '\0' && n + 1 < size; key++) {
        bool up = *key == '_' && n > 0 && key[1] >= 'a' && key[1] <= 'z';
        buf[n++] = up ? (char)(key[1] - 'a' + 'A') : *key;
        key += up;
    }
    buf[n] = '\0';
    return buf;
}

/* Keys of these are the user's own. */
static bool has_free_keys(const char *key)
{
    static const char *const all[] = {"labels",       "matchLabels",      "annotations",
                                      "nodeSelector", "limits",           "requests",
                                      "driver",       "volumeAttributes", "stringData"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(key, all[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A copy with the API's names: node_affinity → nodeAffinity. */
static json_t *api_shape(const json_t *value)
{
    char buf[256];
    if (json_is_array(value)) {
        json_t *list = json_array(), *one;
        size_t i;
        json_array_foreach(value, i, one)
        {
            (void)json_array_append_new(list, api_shape(one));
        }
        return list;
    }
    if (!json_is_object(value)) {
        return json_deep_copy(value);
    }
    json_t *map = json_object(), *one;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        const char *name = camel(key, buf, sizeof buf);
        bool is_free = has_free_keys(name);
        if (!json_is_null(one)) { /* Python's clients write what isn't there, too */
            (void)json_object_set_new(map, name, is_free ? json_deep_copy(one) : api_shape(one));
        }
    }
    return map;
}

static void append_all(stk_kube_maker *m, json_t *map, const char *key, const json_t *list)
{
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one)
    {
        stk_kube_append(m, stk_kube_list(m, map, key), api_shape(one));
    }
}

/* --- folders, volumes --- */

static bool is_mounted(const json_t *container, const char *path)
{
    size_t i;
    json_t *mount;
    json_array_foreach(json_object_get(container, "volumeMounts"), i, mount)
    {
        const char *there = json_string_value(json_object_get(mount, "mountPath"));
        if (there != NULL && strcmp(there, path) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes `source` over. What a user has mounted there stays. */
static void mount(stk_kube_maker *m, json_t *spec, json_t *container, const char *name,
                  const char *path, const char *kind, json_t *source)
{
    if (is_mounted(container, path)) {
        json_decref(source);
        return;
    }
    stk_kube_append(m, stk_kube_list(m, spec, "volumes"),
                    json_pack("{s:s, s:o}", "name", name, kind, source));
    stk_kube_append(m, stk_kube_list(m, container, "volumeMounts"),
                    json_pack("{s:s, s:s}", "name", name, "mountPath", path));
}

static json_t *in_memory(const stk_kube_maker *m, int64_t bytes)
{
    json_t *source = json_pack("{s:s}", "medium", "Memory");
    if (bytes > 0 && source != NULL) {
        (void)json_object_set_new(
            source, "sizeLimit",
            json_string(
                stk_arena_printf(m->arena, "%lldMi", (long long)((bytes + (1 << 20) - 1) >> 20))));
    }
    return source;
}

static void put_memory_folders(stk_kube_maker *m, json_t *spec, json_t *container)
{
    const json_t *o = m->options;
    int64_t shm = stk_kube_bytes(o, "shared_memory"), size = stk_kube_bytes(o, "tmpfs_size");
    int64_t memory = m->job->resources == NULL ? -1 : m->job->resources->memory_bytes;
    const char *path = stk_kube_text(o, "tmpfs_path");
    const json_t *limits = json_object_get(json_object_get(container, "resources"), "limits");
    bool has_devices = false;
    const char *name;
    json_t *amount;
    json_object_foreach((json_t *)(uintptr_t)limits, name, amount)
    {
        has_devices = has_devices || strchr(name, '/') != NULL;
    }
    /* Containers have 64 MiB; who trains wants more, bounded by the memory that it has anyway. */
    if (shm > 0 || has_devices || m->job->nodes > 1) {
        mount(m, spec, container, "shm", "/dev/shm", "emptyDir", in_memory(m, shm));
    }
    if (stk_kube_true(o, "use_tmpfs", size > 0 || path != NULL)) {
        path = stk_text_or(path, "/metaflow_temp");
        mount(m, spec, container, "tmpfs", path, "emptyDir",
              in_memory(m, size > 0     ? size
                           : memory > 0 ? memory / 2
                                        : -1));
        if (stk_kube_true(o, "tmpfs_tempdir", true)) {
            stk_kube_append(m, stk_kube_list(m, container, "env"),
                            json_pack("{s:s, s:s}", "name", "TMPDIR", "value", path));
        }
    }
}

static void put_claims(stk_kube_maker *m, json_t *spec, json_t *container)
{
    uint32_t n = 0;
    const char *claim;
    json_t *path;
    json_object_foreach(json_object_get(m->options, "persistent_volume_claims"), claim, path)
    {
        mount(m, spec, container, stk_arena_printf(m->arena, "claim-%u", n++),
              json_string_value(path), "persistentVolumeClaim",
              json_pack("{s:s}", "claimName", claim));
    }
}

static void put_folders(stk_kube_maker *m, json_t *spec, json_t *container)
{
    for (uint32_t i = 0; m->job->folders != NULL && m->job->folders[i] != NULL; i++) {
        mount(m, spec, container, stk_arena_printf(m->arena, "folder-%u", i), m->job->folders[i],
              "emptyDir", json_object());
    }
}

/* --- our program --- */

static int carry_by_image(stk_kube_maker *m, json_t *spec, json_t *container)
{
    const char *image = m->config->runner_image;
    const char *at = stk_text_or(m->job->carry_at, "/stoker");
    if (image == NULL) {
        return stk_err_set(
            m->err, STK_E_SPEC,
            "stack '%s' doesn't say how our program gets into the pods; make an image "
            "by `make runner-image`, push it, and name it as runner_image, or say "
            "carry: volume",
            m->config->stack);
    }
    json_t *init = json_pack("{s:s, s:s, s:[s,s,s], s:[{s:s, s:s}]}", "name", "stoker-carry",
                             "image", image, "command", "/stoker/bin/stoker", "carry", "/carried",
                             "volumeMounts", "name", "stoker", "mountPath", "/carried");
    stk_kube_set_text(m, init, "imagePullPolicy", stk_kube_text(m->options, "image_pull_policy"));
    const char *const names[] = {"cpu", "memory"};
    const char *const kinds[] = {"requests", "limits"};
    for (size_t k = 0; k < 2; k++) { /* quotas want them of every container */
        for (size_t i = 0; i < 2; i++) {
            json_t *amount = json_object_get(
                json_object_get(json_object_get(container, "resources"), kinds[k]), names[i]);
            if (amount != NULL) {
                stk_kube_set(m, stk_kube_child(m, stk_kube_child(m, init, "resources"), kinds[k]),
                             names[i], json_incref(amount));
            }
        }
    }
    stk_kube_append(m, stk_kube_list(m, spec, "initContainers"), init);
    mount(m, spec, container, "stoker", at, "emptyDir", json_object());
    return 0;
}

/* `from`: "pvc:NAME[/path]", or a path of the nodes; `what` names it in messages. */
static int mount_volume(stk_kube_maker *m, json_t *spec, json_t *container, const char *what,
                        const char *name, const char *from, const char *at, bool read_only)
{
    json_t *volume = NULL;
    const char *path = NULL;
    if (from != NULL && strncmp(from, "pvc:", 4) == 0 && from[4] != '\0' && from[4] != '/') {
        const char *slash = strchr(from + 4, '/');
        const char *claim = slash == NULL
                                ? from + 4
                                : stk_arena_dupn(m->arena, from + 4, (size_t)(slash - from - 4));
        path = slash == NULL || slash[1] == '\0' ? NULL : slash + 1;
        volume = json_pack("{s:s, s:{s:s, s:b}}", "name", name, "persistentVolumeClaim",
                           "claimName", claim, "readOnly", read_only ? 1 : 0);
    } else if (from != NULL && *from == '/') {
        volume = json_pack("{s:s, s:{s:s, s:s}}", "name", name, "hostPath", "path", from, "type",
                           "Directory");
    } else {
        return stk_err_set(m->err, STK_E_SPEC,
                           "stack '%s': %s '%s' is neither pvc:NAME[/path] nor a path of the nodes",
                           m->config->stack, what, stk_text_or(from, ""));
    }
    json_t *here = json_pack("{s:s, s:s}", "name", name, "mountPath", at);
    if (read_only) {
        stk_kube_set(m, here, "readOnly", json_true());
    }
    stk_kube_set_text(m, here, "subPath", path);
    stk_kube_append(m, stk_kube_list(m, spec, "volumes"), volume);
    stk_kube_append(m, stk_kube_list(m, container, "volumeMounts"), here);
    return 0;
}

static int carry_by_volume(stk_kube_maker *m, json_t *spec, json_t *container)
{
    const char *at = stk_text_or(m->job->carry_at, "/stoker");
    return mount_volume(m, spec, container, "carry_volume", "stoker", m->config->carry_volume, at,
                        true);
}

/* A store that is a folder is there under its own path: on every node, unless a volume is named. */
static int put_share(stk_kube_maker *m, json_t *spec, json_t *container)
{
    const char *url = m->config->share_url;
    const char *folder = NULL;
    if (url != NULL && strncmp(url, "file://", 7) == 0) {
        folder = url + 7;
    } else if (url != NULL && *url == '/') {
        folder = url;
    }
    if (folder == NULL || is_mounted(container, folder)) {
        return 0;
    }
    const char *from = stk_text_or(m->config->store_volume, folder);
    return mount_volume(m, spec, container, "store_volume", "store", from, folder, false);
}

static int put_carry(stk_kube_maker *m, json_t *spec, json_t *container)
{
    const char *carry = stk_text_or(m->job->carry, m->config->carry);
    if (carry == NULL) {
        return 0;
    }
    if (strcmp(carry, "image") == 0) {
        return carry_by_image(m, spec, container);
    }
    if (strcmp(carry, "volume") == 0) {
        return carry_by_volume(m, spec, container);
    }
    return stk_err_set(m->err, STK_E_SPEC,
                       "stack '%s': our program can't be carried into pods by '%s'; say carry: "
                       "image or carry: volume",
                       m->config->stack, carry);
}

/* --- the container --- */

/* The kubelet makes `$` of `$$`, and looks for a variable behind `$(`. */
static json_t *literal(const char *text)
{
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    (void)stk_buf_text(&out, "");
    for (; *text != '\0'; text++) {
        (void)stk_buf_text(&out, *text == '$' ? "$$" : (char[]){*text, '\0'});
    }
    return out.failed ? NULL : json_stringn(out.data, out.len);
}

static void put_variable(stk_kube_maker *m, json_t *list, const char *name, const char *value)
{
    stk_kube_append(m, list, json_pack("{s:s, s:s}", "name", name, "value", value));
}

static void put_env(stk_kube_maker *m, json_t *container)
{
    json_t *list = stk_kube_list(m, container, "env");
    for (const char *const *e = m->job->env; e != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        if (equals != NULL) {
            stk_kube_append(m, list,
                            json_pack("{s:s#, s:o}", "name", *e, (int)(equals - *e), "value",
                                      literal(equals + 1)));
        }
    }
    if (m->job->nodes > 1) { /* which node it is, JOB_COMPLETION_INDEX says */
        int64_t patience = stk_kube_whole(m->options, "hostname_resolution_timeout");
        const char *lead =
            stk_arena_printf(m->arena, m->as_set ? "%s" STK_KUBE_OF_SET "-0.%s" : "%s-0.%s",
                             m->job->name, m->job->name);
        put_variable(
            m, list, "STOKER_GANG_RDZV",
            stk_arena_printf(m->arena, "%s:%d", lead, m->job->port > 0 ? m->job->port : GANG_PORT));
        if (patience > 0) {
            put_variable(m, list, "STOKER_GANG_JOIN",
                         stk_arena_printf(m->arena, "%llds", (long long)patience));
        }
    }
    append_all(m, container, "env", json_object_get(m->options, "env"));
    if (json_array_size(list) == 0) {
        (void)json_object_del(container, "env");
    }
    append_all(m, container, "envFrom", json_object_get(m->options, "env_from"));
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(m->options, "secrets"), i, name)
    {
        stk_kube_append(m, stk_kube_list(m, container, "envFrom"),
                        json_pack("{s:{s:O}}", "secretRef", "name", name));
    }
    if (m->job->secret != NULL && m->job->secret[0] != NULL) {
        stk_kube_append(m, stk_kube_list(m, container, "envFrom"),
                        json_pack("{s:{s:s}}", "secretRef", "name", m->job->name));
    }
}

static int put_container(stk_kube_maker *m, json_t *spec)
{
    json_t *container = json_pack("{s:s, s:s}", "name", STK_KUBE_MAIN, "image",
                                  stk_text_or(m->job->image, "(the step's image)"));
    stk_kube_append(m, stk_kube_list(m, spec, "containers"), container);
    stk_kube_set_text(m, container, "imagePullPolicy",
                      stk_kube_text(m->options, "image_pull_policy"));
    json_t *command = stk_kube_list(m, container, "command");
    for (const char *const *word = m->job->argv; word != NULL && *word != NULL; word++) {
        stk_kube_append(m, command, literal(*word));
    }
    put_env(m, container);
    json_t *resources = stk_kube_child(m, container, "resources");
    stk_kube_wanted ask;
    STK_TRY(stk_kube_put_devices(m, spec, resources, &ask));
    const char *const kinds[] = {"requests", "limits", "claims"};
    json_t *said = json_object_get(m->options, "resources");
    for (size_t i = 0; i < 3; i++) {
        json_t *more = json_object_get(said, kinds[i]);
        if (json_is_object(more)) {
            (void)json_object_update(stk_kube_child(m, resources, kinds[i]), more);
        } else if (json_is_array(more)) {
            append_all(m, resources, kinds[i], more);
        }
    }
    STK_TRY(stk_kube_wanted_check(m, &ask, resources));
    const char *asked = stk_kube_asked(m, resources);
    if (asked != NULL) { /* however it was said: the agent looks whether they are there */
        stk_kube_append(m, stk_kube_list(m, container, "env"),
                        json_pack("{s:s, s:s}", "name", "STOKER_ASKED_DEVICES", "value", asked));
    }
    if (json_object_size(resources) == 0) {
        (void)json_object_del(container, "resources");
    }
    int64_t port = stk_kube_whole(m->options, "port");
    if (port > 0) {
        stk_kube_set(m, container, "ports",
                     json_pack("[{s:I}]", "containerPort", (json_int_t)port));
    }
    json_t *security = json_object_get(m->options, "security_context");
    if (security != NULL) {
        stk_kube_set(m, container, "securityContext", api_shape(security));
    }
    if (stk_kube_true(m->options, "privileged", false)) {
        stk_kube_set(m, stk_kube_child(m, container, "securityContext"), "privileged", json_true());
    }
    append_all(m, spec, "volumes", json_object_get(m->options, "volumes"));
    append_all(m, container, "volumeMounts", json_object_get(m->options, "volume_mounts"));
    put_claims(m, spec, container);
    put_memory_folders(m, spec, container);
    put_folders(m, spec, container);
    STK_TRY(put_share(m, spec, container));
    return put_carry(m, spec, container);
}

/* --- the pod --- */

static int put_pool(stk_kube_maker *m, json_t *spec)
{
    const char *pool = stk_kube_text(m->options, "compute_pool");
    const char *label = stk_kube_text(m->options, "compute_pool_label");
    json_t *said = json_object_get(m->options, "node_selector");
    if (said != NULL) {
        (void)json_object_update(stk_kube_child(m, spec, "nodeSelector"), said);
    }
    if (pool != NULL && label == NULL) {
        return stk_err_set(m->err, STK_E_SPEC,
                           "step '%s': compute_pool '%s' needs the label that tells your pools "
                           "apart; say compute_pool_label (like cloud.google.com/gke-nodepool) in "
                           "the stack's options, or a node_selector",
                           m->job->step, pool);
    }
    if (pool != NULL) {
        stk_kube_set_text(m, stk_kube_child(m, spec, "nodeSelector"), label, pool);
    }
    return 0;
}

static void put_patience(stk_kube_maker *m, json_t *spec)
{
    int64_t lost = stk_kube_whole(m->options, "node_lost_seconds");
    const char *const taints[] = {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"};
    for (size_t i = 0; i < 2 && lost >= 0; i++) {
        stk_kube_append(m, stk_kube_list(m, spec, "tolerations"),
                        json_pack("{s:s, s:s, s:s, s:I}", "key", taints[i], "operator", "Exists",
                                  "effect", "NoExecute", "tolerationSeconds", (json_int_t)lost));
    }
    int64_t grace_s = (m->job->grace_ms + 999) / 1000 + AGENT_S;
    stk_kube_set(m, spec, "terminationGracePeriodSeconds", json_integer(grace_s));
    if (m->job->timeout_ms > 0) { /* the agent's own comes first; a pull may take its time */
        stk_kube_set(m, spec, "activeDeadlineSeconds",
                     json_integer((m->job->timeout_ms + 999) / 1000 + grace_s + PULL_S));
    }
}

/* Keys of the pod's spec that have no option of their own; lists are added to. */
static int put_additional(stk_kube_maker *m, json_t *spec)
{
    json_t *said = json_object_get(m->options, "additional_pod_spec_args");
    if (said == NULL) {
        return 0;
    }
    STK_KUBE_JSON_AUTO more = api_shape(said);
    const char *key;
    json_t *value;
    json_object_foreach(more, key, value)
    {
        if (strcmp(key, "containers") == 0 || strcmp(key, "restartPolicy") == 0) {
            return stk_err_set(m->err, STK_E_SPEC,
                               "step '%s': additional_pod_spec_args can't set '%s'; %s",
                               m->job->step, key,
                               *key == 'r' ? "say the step's `retry`"
                                           : "a step is one container: use its own options, or "
                                             "initContainers for what goes before");
        }
        json_t *there = json_object_get(spec, key);
        if (json_is_array(there) && json_is_array(value)) {
            (void)json_array_extend(there, value);
        } else if (json_is_object(there) && json_is_object(value)) {
            (void)json_object_update_recursive(there, value);
        } else {
            stk_kube_set(m, spec, key, json_incref(value));
        }
    }
    return 0;
}

int stk_kube_put_pod(stk_kube_maker *m, json_t *template)
{
    const json_t *o = m->options;
    json_t *spec = stk_kube_child(m, template, "spec");
    stk_kube_set_text(m, spec, "restartPolicy", "Never");
    stk_kube_set(m, spec, "enableServiceLinks", json_false());
    stk_kube_set_text(m, spec, "serviceAccountName", stk_kube_text(o, "service_account"));
    stk_kube_set_text(m, spec, "schedulerName", stk_kube_text(o, "scheduler_name"));
    stk_kube_set_text(m, spec, "priorityClassName", stk_kube_text(o, "priority_class"));
    stk_kube_set_text(m, spec, "runtimeClassName", stk_kube_text(o, "runtime_class"));
    if (m->job->nodes > 1) {
        stk_kube_set_text(m, spec, "subdomain", m->job->name);
    }
    if (stk_kube_true(o, "host_ipc", false)) {
        stk_kube_set(m, spec, "hostIPC", json_true());
    }
    if (stk_kube_true(o, "host_network", false)) {
        stk_kube_set(m, spec, "hostNetwork", json_true());
        stk_kube_set_text(m, spec, "dnsPolicy", "ClusterFirstWithHostNet");
    }
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(o, "image_pull_secrets"), i, name)
    {
        stk_kube_append(m, stk_kube_list(m, spec, "imagePullSecrets"),
                        json_pack("{s:O}", "name", name));
    }
    json_t *affinity = json_object_get(o, "affinity");
    if (affinity != NULL) {
        stk_kube_set(m, spec, "affinity", api_shape(affinity));
    }
    json_t *security = json_object_get(o, "pod_security_context");
    if (security != NULL) {
        stk_kube_set(m, spec, "securityContext", api_shape(security));
    }
    append_all(m, spec, "tolerations", json_object_get(o, "tolerations"));
    put_patience(m, spec);
    STK_TRY(put_pool(m, spec));
    STK_TRY(put_container(m, spec));
    return put_additional(m, spec);
}
