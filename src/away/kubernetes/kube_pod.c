/* kube_pod: makes a job's pod: its container with volumes and variables, and the user's options. */
#include <string.h>

#include "away/kubernetes/kube_manifest.h"
#include "base/text.h"

/* AGENT_S: after the task's grace, the agent has this long to write its report. */
enum { AGENT_S = 15, PULL_S = 1800, GANG_PORT = 29400 };

static void put_shape(stk_kube_maker *m, stk_json *map, const char *key, const char *option)
{
    const stk_json *said = stk_json_get(m->options, option);
    if (said != NULL) {
        stk_kube_set(m, map, key, stk_kube_shape(m, said));
    }
}

static void append_all(stk_kube_maker *m, stk_json *map, const char *key, const stk_json *list)
{
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        stk_kube_append(m, stk_kube_list(m, map, key), stk_kube_shape(m, &list->items[i]));
    }
}

static void set_true(stk_kube_maker *m, stk_json *map, const char *key)
{
    stk_kube_set(m, map, key, stk_json_of_bool(true));
}

/* --- folders, volumes --- */

static bool is_mounted(const stk_json *container, const char *path)
{
    const stk_json *mounts = stk_json_get(container, "volumeMounts");
    for (uint32_t i = 0; i < stk_json_n_items(mounts); i++) {
        if (stk_json_is(stk_json_get(&mounts->items[i], "mountPath"), path)) {
            return true;
        }
    }
    return false;
}

static void put_volume(stk_kube_maker *m, stk_json *spec, const char *name, const char *kind,
                       stk_json source)
{
    stk_json volume = stk_kube_map(m, "name", name, NULL);
    stk_kube_set(m, &volume, kind, source);
    stk_kube_append(m, stk_kube_list(m, spec, "volumes"), volume);
}

/* Mounts a volume, unless the user has mounted one at `path`. */
static void mount(stk_kube_maker *m, stk_json *spec, stk_json *container, const char *name,
                  const char *path, const char *kind, stk_json source)
{
    if (!is_mounted(container, path)) {
        put_volume(m, spec, name, kind, source);
        stk_kube_append(m, stk_kube_list(m, container, "volumeMounts"),
                        stk_kube_map(m, "name", name, "mountPath", path, NULL));
    }
}

static void mount_memory(stk_kube_maker *m, stk_json *spec, stk_json *container, const char *name,
                         const char *path, int64_t bytes)
{
    stk_json source = stk_kube_map(m, "medium", "Memory", NULL);
    if (bytes > 0) {
        stk_kube_set_text(
            m, &source, "sizeLimit",
            stk_arena_printf(m->arena, "%lldMi", (long long)((bytes + (1 << 20) - 1) >> 20)));
    }
    mount(m, spec, container, name, path, "emptyDir", source);
}

static void put_variable(stk_kube_maker *m, stk_json *container, const char *name,
                         const char *value)
{
    stk_kube_append(m, stk_kube_list(m, container, "env"),
                    stk_kube_map(m, "name", name, "value", value, NULL));
}

static void put_memory_folders(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    const stk_json *o = m->options;
    int64_t shm = stk_kube_whole(o, "shared_memory"), size = stk_kube_whole(o, "tmpfs_size");
    const char *path = stk_kube_text(o, "tmpfs_path");
    const stk_json *limits = stk_kube_at(container, "resources/limits");
    bool has_devices = false;
    for (uint32_t i = 0; i < stk_json_n_members(limits); i++) {
        has_devices = has_devices || strchr(stk_json_key(limits, i)->text, '/') != NULL;
    }
    /* Containers have 64 MiB by default. Training needs more; the memory limit bounds it anyway. */
    if (shm > 0 || has_devices || m->job->nodes > 1) {
        mount_memory(m, spec, container, "shm", "/dev/shm", shm);
    }
    if (stk_kube_true(o, "use_tmpfs", size > 0 || path != NULL)) {
        path = stk_text_or(path, "/metaflow_temp");
        if (size <= 0 && m->job->resources != NULL) {
            size = m->job->resources->memory_bytes / 2;
        }
        mount_memory(m, spec, container, "tmpfs", path, size);
        if (stk_kube_true(o, "tmpfs_tempdir", true)) {
            put_variable(m, container, "TMPDIR", path);
        }
    }
}

static void put_claims(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    const stk_json *claims = stk_json_get(m->options, "persistent_volume_claims");
    for (uint32_t i = 0; i < stk_json_n_members(claims); i++) {
        mount(m, spec, container, stk_arena_printf(m->arena, "claim-%u", i),
              stk_json_value(claims, i)->text, "persistentVolumeClaim",
              stk_kube_map(m, "claimName", stk_json_key(claims, i)->text, NULL));
    }
}

static void put_folders(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    for (uint32_t i = 0; m->job->folders != NULL && m->job->folders[i] != NULL; i++) {
        mount(m, spec, container, stk_arena_printf(m->arena, "folder-%u", i), m->job->folders[i],
              "emptyDir", stk_json_of_map());
    }
}

/* --- our program --- */

static int carry_by_image(stk_kube_maker *m, stk_json *spec, stk_json *container, const char *at)
{
    static const char *const words[] = {"/stoker/bin/stoker", "carry", "/carried"};
    const char *image = m->config->runner_image;
    if (image == NULL) {
        return stk_err_set(
            m->err, STK_E_SPEC,
            "stack '%s' doesn't set how Stoker's program gets into pods; push an image by `stoker "
            "carry --image NAME` and set runner_image to it, or set carry: volume",
            m->config->stack);
    }
    stk_json init = stk_kube_map(m, "name", STK_KUBE_CARRY, "image", image, NULL);
    for (size_t i = 0; i < 3; i++) {
        stk_kube_append_text(m, stk_kube_list(m, &init, "command"), words[i]);
    }
    stk_kube_append(m, stk_kube_list(m, &init, "volumeMounts"),
                    stk_kube_map(m, "name", "stoker", "mountPath", "/carried", NULL));
    stk_kube_set_text(m, &init, "imagePullPolicy", stk_kube_text(m->options, "image_pull_policy"));
    static const char *const amounts[][2] = {
        {"requests", "cpu"}, {"requests", "memory"}, {"limits", "cpu"}, {"limits", "memory"}};
    for (size_t i = 0; i < 4; i++) { /* a quota requires them for every container */
        const char *kind = amounts[i][0], *name = amounts[i][1];
        const stk_json *all = stk_json_get(stk_json_get(container, "resources"), kind);
        const stk_json *amount = stk_json_get(all, name);
        if (amount != NULL) {
            stk_kube_set(m, stk_kube_child(m, stk_kube_child(m, &init, "resources"), kind), name,
                         *amount);
        }
    }
    put_shape(m, &init, "securityContext", "security_context"); /* Pod Security judges all */
    stk_kube_append(m, stk_kube_list(m, spec, "initContainers"), init);
    mount(m, spec, container, "stoker", at, "emptyDir", stk_json_of_map());
    return 0;
}

/* `from`: "pvc:NAME[/path]", or a path of the nodes; `what` names it in messages. */
static int mount_volume(stk_kube_maker *m, stk_json *spec, stk_json *container, const char *what,
                        const char *name, const char *from, const char *at, bool read_only)
{
    stk_json here = stk_kube_map(m, "name", name, "mountPath", at, NULL);
    from = stk_text_or(from, "");
    if (read_only) {
        set_true(m, &here, "readOnly");
    }
    if (strncmp(from, "pvc:", 4) == 0 && from[4] != '\0' && from[4] != '/') {
        size_t n = strcspn(from + 4, "/");
        const char *path = from + 4 + n + (from[4 + n] == '/');
        stk_json claim = stk_kube_map(m, "claimName", stk_arena_dupn(m->arena, from + 4, n), NULL);
        stk_kube_set(m, &claim, "readOnly", stk_json_of_bool(read_only));
        stk_kube_set_text(m, &here, "subPath", stk_text_if_any(path));
        put_volume(m, spec, name, "persistentVolumeClaim", claim);
    } else if (*from == '/') {
        put_volume(m, spec, name, "hostPath",
                   stk_kube_map(m, "path", from, "type", "Directory", NULL));
    } else {
        return stk_err_set(
            m->err, STK_E_SPEC,
            "stack '%s': %s '%s' must be pvc:NAME[/path] or an absolute path on the nodes",
            m->config->stack, what, from);
    }
    stk_kube_append(m, stk_kube_list(m, container, "volumeMounts"), here);
    return 0;
}

/* Mounts a store that is a folder under the same path, from the node or from store_volume. */
static int put_share(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    const char *folder = stk_text_or(m->config->share_url, "");
    if (strncmp(folder, "file://", 7) == 0) {
        folder += 7;
    } else if (*folder != '/') {
        return 0;
    }
    if (is_mounted(container, folder)) {
        return 0;
    }
    const char *from = stk_text_or(m->config->store_volume, folder);
    return mount_volume(m, spec, container, "store_volume", "store", from, folder, false);
}

static int put_carry(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    const char *carry = stk_text_or(m->job->carry, m->config->carry);
    const char *at = stk_text_or(m->job->carry_at, "/stoker");
    if (carry == NULL) {
        return 0;
    }
    if (strcmp(carry, "image") == 0) {
        return carry_by_image(m, spec, container, at);
    }
    if (strcmp(carry, "volume") == 0) {
        return mount_volume(m, spec, container, "carry_volume", "stoker", m->config->carry_volume,
                            at, true);
    }
    return stk_err_set(
        m->err, STK_E_SPEC,
        "stack '%s': carry '%s' isn't possible on Kubernetes; set carry: image or carry: volume",
        m->config->stack, carry);
}

/* --- the container --- */

/* Doubles each `$`: the kubelet expands `$(NAME)`, and turns `$$` into `$`. */
static const char *literal(stk_kube_maker *m, const char *text)
{
    char *out = stk_arena_alloc(m->arena, 2 * strlen(text) + 1);
    for (size_t n = 0; out != NULL && *text != '\0'; text++) {
        out[n++] = *text;
        if (*text == '$') {
            out[n++] = '$';
        }
    }
    m->failed = out == NULL || m->failed;
    return stk_text_or(out, "");
}

static void put_gang(stk_kube_maker *m, stk_json *container)
{
    static const char *const leads[] = {"-0", STK_KUBE_OF_SET "-0"};
    const char *name = m->job->name;
    int port = m->job->port > 0 ? m->job->port : GANG_PORT;
    int64_t patience = stk_kube_whole(m->options, "hostname_resolution_timeout");
    /* The node's number is in JOB_COMPLETION_INDEX. */
    put_variable(m, container, "STOKER_GANG_RDZV",
                 stk_arena_printf(m->arena, "%s%s.%s:%d", name, leads[m->as_set], name, port));
    if (patience > 0) {
        put_variable(m, container, "STOKER_GANG_JOIN",
                     stk_arena_printf(m->arena, "%llds", (long long)patience));
    }
}

static void put_secret(stk_kube_maker *m, stk_json *container, const char *name)
{
    stk_json from = stk_json_of_map();
    stk_kube_set_text(m, stk_kube_child(m, &from, "secretRef"), "name", name);
    stk_kube_append(m, stk_kube_list(m, container, "envFrom"), from);
}

static void put_env(stk_kube_maker *m, stk_json *container)
{
    for (const char *const *e = m->job->env; e != NULL && *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        if (equals != NULL) {
            put_variable(m, container, stk_arena_dupn(m->arena, *e, (size_t)(equals - *e)),
                         literal(m, equals + 1));
        }
    }
    if (m->job->nodes > 1) {
        put_gang(m, container);
    }
    append_all(m, container, "env", stk_json_get(m->options, "env"));
    append_all(m, container, "envFrom", stk_json_get(m->options, "env_from"));
    const stk_json *names = stk_json_get(m->options, "secrets");
    for (uint32_t i = 0; i < stk_json_n_items(names); i++) {
        put_secret(m, container, names->items[i].text);
    }
    if (m->job->secret != NULL && m->job->secret[0] != NULL) {
        put_secret(m, container, m->job->name);
    }
}

/* The container's resources; the option `resources` overrides the step's request. */
static int put_resources(stk_kube_maker *m, stk_json *spec, stk_json *container)
{
    static const char *const kinds[] = {"requests", "limits", "claims"};
    const stk_json *said = stk_json_get(m->options, "resources");
    stk_json resources = stk_json_of_map();
    stk_kube_wanted ask;
    STK_TRY(stk_kube_put_devices(m, spec, &resources, &ask));
    for (size_t i = 0; i < 3; i++) {
        const stk_json *more = stk_json_get(said, kinds[i]);
        if (stk_json_is_map(more)) {
            stk_kube_update(m, stk_kube_child(m, &resources, kinds[i]), more);
        }
        append_all(m, &resources, kinds[i], more);
    }
    STK_TRY(stk_kube_wanted_check(m, &ask, &resources));
    if (resources.n > 0) {
        stk_kube_set(m, container, "resources", resources);
    }
    const char *asked = stk_kube_asked(m, &resources);
    if (asked != NULL) { /* the agent checks that they are there */
        put_variable(m, container, "STOKER_ASKED_DEVICES", asked);
    }
    return 0;
}

static int put_container(stk_kube_maker *m, stk_json *spec)
{
    stk_json container = stk_kube_map(m, "name", STK_KUBE_MAIN, "image",
                                      stk_text_or(m->job->image, "(the step's image)"), NULL);
    stk_kube_list(m, spec, "containers"); /* keeps its place; the container is added below */
    stk_kube_set_text(m, &container, "imagePullPolicy",
                      stk_kube_text(m->options, "image_pull_policy"));
    stk_kube_list(m, &container, "command");
    for (const char *const *word = m->job->argv; word != NULL && *word != NULL; word++) {
        stk_kube_append_text(m, stk_kube_list(m, &container, "command"), literal(m, *word));
    }
    put_env(m, &container);
    STK_TRY(put_resources(m, spec, &container));
    int64_t port = stk_kube_whole(m->options, "port");
    if (port > 0) {
        stk_json one = stk_json_of_map();
        stk_kube_set_whole(m, &one, "containerPort", port);
        stk_kube_append(m, stk_kube_list(m, &container, "ports"), one);
    }
    put_shape(m, &container, "securityContext", "security_context");
    if (stk_kube_true(m->options, "privileged", false)) {
        set_true(m, stk_kube_child(m, &container, "securityContext"), "privileged");
    }
    append_all(m, spec, "volumes", stk_json_get(m->options, "volumes"));
    append_all(m, &container, "volumeMounts", stk_json_get(m->options, "volume_mounts"));
    put_claims(m, spec, &container);
    put_memory_folders(m, spec, &container);
    put_folders(m, spec, &container);
    STK_TRY(put_share(m, spec, &container));
    STK_TRY(put_carry(m, spec, &container));
    stk_kube_append(m, stk_kube_list(m, spec, "containers"), container);
    return 0;
}

/* --- the pod --- */

static int put_pool(stk_kube_maker *m, stk_json *spec)
{
    const char *pool = stk_kube_text(m->options, "compute_pool");
    const char *label = stk_kube_text(m->options, "compute_pool_label");
    const stk_json *said = stk_json_get(m->options, "node_selector");
    if (said != NULL) {
        stk_kube_update(m, stk_kube_child(m, spec, "nodeSelector"), said);
    }
    if (pool != NULL && label == NULL) {
        return stk_kube_refuse(
            m,
            "set compute_pool_label (like cloud.google.com/gke-nodepool) in the stack's options, "
            "or use node_selector",
            "compute_pool '%s' needs the name of the label that distinguishes your pools", pool);
    }
    if (pool != NULL) {
        stk_kube_set_text(m, stk_kube_child(m, spec, "nodeSelector"), label, pool);
    }
    return 0;
}

static void put_patience(stk_kube_maker *m, stk_json *spec)
{
    int64_t lost = stk_kube_whole(m->options, "node_lost_seconds");
    const char *const taints[] = {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"};
    for (size_t i = 0; i < 2 && lost >= 0; i++) {
        stk_json one =
            stk_kube_map(m, "key", taints[i], "operator", "Exists", "effect", "NoExecute", NULL);
        stk_kube_set_whole(m, &one, "tolerationSeconds", lost);
        stk_kube_append(m, stk_kube_list(m, spec, "tolerations"), one);
    }
    int64_t grace_s = (m->job->grace_ms + 999) / 1000 + AGENT_S;
    stk_kube_set_whole(m, spec, "terminationGracePeriodSeconds", grace_s);
    if (m->job->timeout_ms > 0) { /* later than the agent's own; a pull takes long */
        stk_kube_set_whole(m, spec, "activeDeadlineSeconds",
                           (m->job->timeout_ms + 999) / 1000 + grace_s + PULL_S);
    }
}

/* Merges `more` over `there`, map by map. */
static stk_json merge(stk_kube_maker *m, const stk_json *there, const stk_json *more)
{
    if (!stk_json_is_map(there) || !stk_json_is_map(more)) {
        return *more;
    }
    stk_json all = *there;
    for (uint32_t i = 0; i < more->n; i++) {
        const char *key = stk_json_key(more, i)->text;
        stk_kube_set(m, &all, key, merge(m, stk_json_get(&all, key), stk_json_value(more, i)));
    }
    return all;
}

/* Members of the pod's spec that have no option; lists are extended. */
static int put_additional(stk_kube_maker *m, stk_json *spec)
{
    static const char *const never[][2] = {
        {"containers", "a step is one container; use its options, or initContainers for containers "
                       "that run before it"},
        {"restartPolicy", "use the step's `retry`"}};
    const stk_json *said = stk_json_get(m->options, "additional_pod_spec_args");
    stk_json more = stk_json_of_map();
    if (said != NULL) {
        more = stk_kube_shape(m, said);
    }
    for (uint32_t i = 0; i < more.n; i++) {
        const char *key = stk_json_key(&more, i)->text;
        const stk_json *value = stk_json_value(&more, i), *there = stk_json_get(spec, key);
        for (size_t k = 0; k < 2; k++) {
            if (strcmp(key, never[k][0]) == 0) {
                return stk_kube_refuse(m, never[k][1], "additional_pod_spec_args can't set '%s'",
                                       key);
            }
        }
        if (stk_json_is_list(there) && stk_json_is_list(value)) {
            for (uint32_t k = 0; k < value->n; k++) {
                stk_kube_append(m, stk_kube_list(m, spec, key), value->items[k]);
            }
        } else {
            stk_kube_set(m, spec, key, merge(m, there, value));
        }
    }
    return 0;
}

int stk_kube_put_pod(stk_kube_maker *m, stk_json *template)
{
    static const char *const texts[][2] = {{"serviceAccountName", "service_account"},
                                           {"schedulerName", "scheduler_name"},
                                           {"priorityClassName", "priority_class"},
                                           {"runtimeClassName", "runtime_class"}};
    const stk_json *o = m->options;
    stk_json spec = stk_kube_map(m, "restartPolicy", "Never", NULL);
    stk_kube_set(m, &spec, "enableServiceLinks", stk_json_of_bool(false));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        stk_kube_set_text(m, &spec, texts[i][0], stk_kube_text(o, texts[i][1]));
    }
    if (m->job->nodes > 1) {
        stk_kube_set_text(m, &spec, "subdomain", m->job->name);
    }
    if (stk_kube_true(o, "host_ipc", false)) {
        set_true(m, &spec, "hostIPC");
    }
    if (stk_kube_true(o, "host_network", false)) {
        set_true(m, &spec, "hostNetwork");
        stk_kube_set_text(m, &spec, "dnsPolicy", "ClusterFirstWithHostNet");
    }
    const stk_json *names = stk_json_get(o, "image_pull_secrets");
    for (uint32_t i = 0; i < stk_json_n_items(names); i++) {
        stk_kube_append(m, stk_kube_list(m, &spec, "imagePullSecrets"),
                        stk_kube_map(m, "name", names->items[i].text, NULL));
    }
    put_shape(m, &spec, "affinity", "affinity");
    put_shape(m, &spec, "securityContext", "pod_security_context");
    append_all(m, &spec, "tolerations", stk_json_get(o, "tolerations"));
    put_patience(m, &spec);
    STK_TRY(put_pool(m, &spec));
    STK_TRY(put_container(m, &spec));
    STK_TRY(put_additional(m, &spec));
    stk_kube_set(m, template, "spec", spec);
    return 0;
}
