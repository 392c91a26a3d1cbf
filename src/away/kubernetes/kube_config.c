/* kube_config: which cluster, as whom, in which namespace? A kubeconfig as kubectl reads it
 * (several files are one: what is said first counts), or the account of the pod that we run in. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube.h"
#include "base/text.h"
#include "base/yaml.h"
#include "sys/file.h"

enum { FILE_BYTES = 4 << 20, FILES_MAX = 32 };
#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

static const stk_json_limits limits = {FILE_BYTES, 200000, STK_LIMIT_DEPTH};

typedef struct file {
    const char *path;
    const char *folder; /* that its relative paths start from */
    stk_json root;
} file;

typedef struct reader {
    stk_arena *arena;
    stk_err *err;
    file files[FILES_MAX];
    uint32_t n;
} reader;

/* An entry of a file's list, and the file that it is from. */
typedef struct entry {
    const stk_json *node;
    const file *from;
} entry;

/* --- files --- */

static int read_file(reader *r, const char *path)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    file *f = &r->files[r->n];
    int rc = stk_file_read(path, FILE_BYTES, &data, &len, r->err);
    if (rc < 0) {
        stk_err_hint(r->err, "name another one (the stack's option kubeconfig, $KUBECONFIG), or "
                             "leave it out for ~/.kube/config");
        return stk_err_context(r->err, "the kubeconfig");
    }
    rc = stk_yaml_or_json_parse(data, len, path, &limits, r->arena, &f->root, r->err);
    if (rc == 0) {
        const char *slash = strrchr(path, '/');
        f->path = stk_arena_dup(r->arena, path);
        f->folder = slash == NULL ? "." : stk_arena_dupn(r->arena, path, (size_t)(slash - path));
        r->n += f->path == NULL || f->folder == NULL ? 0 : 1;
        rc = f->path == NULL || f->folder == NULL ? stk_err_nomem(r->err) : 0;
    }
    return rc;
}

/* Files of the list that aren't there are none, as for kubectl. */
static int read_list(reader *r, const char *list)
{
    int rc = 0;
    while (*list != '\0' && rc == 0) {
        size_t n = strcspn(list, ":");
        const char *path = stk_arena_dupn(r->arena, list, n);
        if (path == NULL) {
            return stk_err_nomem(r->err);
        }
        if (n > 0 && stk_file_exists(path)) {
            rc = r->n == FILES_MAX ? stk_err_set(r->err, STK_E_LIMIT,
                                                 "KUBECONFIG names more than %d files", FILES_MAX)
                                   : read_file(r, path);
        }
        list += n + (list[n] == ':');
    }
    return rc;
}

static int read_files(reader *r, const char *asked)
{
    const char *list = getenv("KUBECONFIG");
    if (asked != NULL) {
        const char *home = getenv("HOME");
        const char *path = strncmp(asked, "~/", 2) == 0 && home != NULL
                               ? stk_arena_printf(r->arena, "%s%s", home, asked + 1)
                               : asked;
        STK_TRY(stk_err_if_null(path, r->err));
        return read_file(r, path);
    }
    if (list != NULL && *list != '\0') {
        return read_list(r, list);
    }
    const char *home = getenv("HOME");
    const char *path = home == NULL ? NULL : stk_arena_printf(r->arena, "%s/.kube/config", home);
    return path != NULL && stk_file_exists(path) ? read_file(r, path) : 0;
}

static const char *say(const stk_json *map, const char *key)
{
    const char *text = stk_json_text(stk_json_get(map, key));
    return stk_text_if_any(text);
}

static bool truth(const stk_json *map, const char *key)
{
    const stk_json *node = stk_json_get(map, key);
    return node != NULL && node->kind == STK_JSON_BOOL && node->truth;
}

/* `inner` of the entry that is called `name` in the lists `outer`. */
static entry find(const reader *r, const char *outer, const char *inner, const char *name)
{
    for (uint32_t i = 0; i < r->n && name != NULL; i++) {
        const stk_json *list = stk_json_get(&r->files[i].root, outer);
        for (uint32_t j = 0; list != NULL && list->kind == STK_JSON_LIST && j < list->n; j++) {
            const char *called = say(&list->items[j], "name");
            if (called != NULL && strcmp(called, name) == 0) {
                return (entry){stk_json_get(&list->items[j], inner), &r->files[i]};
            }
        }
    }
    return (entry){NULL, NULL};
}

static const char *names_of(const reader *r, const char *outer)
{
    const char *all = "";
    for (uint32_t i = 0; i < r->n; i++) {
        const stk_json *list = stk_json_get(&r->files[i].root, outer);
        for (uint32_t j = 0; list != NULL && list->kind == STK_JSON_LIST && j < list->n; j++) {
            const char *called = say(&list->items[j], "name");
            const char *more =
                called == NULL || strlen(all) > 300
                    ? all
                    : stk_arena_printf(r->arena, "%s%s%s", all, *all == '\0' ? "" : ", ", called);
            all = stk_text_or(more, all);
        }
    }
    return *all == '\0' ? "none" : all;
}

/* --- values --- */

static const char *path_of(const reader *r, const entry *e, const char *key)
{
    const char *path = say(e->node, key);
    if (path == NULL || *path == '/') {
        return path;
    }
    return stk_arena_printf(r->arena, "%s/%s", e->from->folder, path);
}

static int base64(const reader *r, const char *text, const char *key, const char **ret)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = stk_arena_alloc(r->arena, strlen(text) + 1);
    size_t n = 0;
    uint32_t bits = 0;
    int n_bits = 0;
    if (out == NULL) {
        return stk_err_nomem(r->err);
    }
    for (const char *c = text; *c != '\0' && *c != '='; c++) {
        const char *at = strchr(digits, *c);
        if (isspace((unsigned char)*c)) {
            continue;
        }
        if (at == NULL) {
            return stk_err_set(r->err, STK_E_ENV, "%s in the kubeconfig is not base64", key);
        }
        bits = bits << 6 | (uint32_t)(at - digits);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (char)(bits >> n_bits & 0xff);
        }
    }
    *ret = out;
    return 0;
}

/* KEY-data as text, else the file that KEY names. */
static int pem(const reader *r, const entry *e, const char *key, const char **ret_data,
               const char **ret_file)
{
    char data_key[64];
    (void)snprintf(data_key, sizeof data_key, "%s-data", key);
    const char *data = say(e->node, data_key);
    *ret_file = data == NULL ? path_of(r, e, key) : NULL;
    return data == NULL ? 0 : base64(r, data, data_key, ret_data);
}

/* --- an exec plugin --- */

/* With what a plugin may want to know of the cluster (provideClusterInfo). */
static int exec_info(const reader *r, const stk_json *exec, const stk_json *cluster,
                     stk_kube_config *c)
{
    static const char *const keys[] = {"certificate-authority-data", "tls-server-name",
                                       "proxy-url"};
    STK_BUF_AUTO out = STK_BUF_INIT(FILE_BYTES);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "apiVersion", c->exec.version);
    stk_json_put_text(&out, "kind", "ExecCredential");
    stk_json_open(&out, "spec", '{');
    stk_json_put_bool(&out, "interactive", false);
    if (truth(exec, "provideClusterInfo")) {
        stk_json_open(&out, "cluster", '{');
        stk_json_put_text(&out, "server", c->server);
        stk_json_put_bool(&out, "insecure-skip-tls-verify", c->tls.insecure);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const char *value = say(cluster, keys[i]);
            if (value != NULL) {
                stk_json_put_text(&out, keys[i], value);
            }
        }
        stk_json_close(&out, '}');
    }
    stk_json_close(&out, '}');
    stk_json_close(&out, '}');
    STK_TRY(stk_buf_check(&out, r->err));
    c->exec.info = stk_arena_printf(r->arena, "KUBERNETES_EXEC_INFO=%s", out.data);
    return stk_err_if_null(c->exec.info, r->err);
}

static int read_exec(const reader *r, const entry *user, const stk_json *exec,
                     const stk_json *cluster, stk_kube_config *c)
{
    const char *command = say(exec, "command");
    const stk_json *args = stk_json_get(exec, "args");
    const stk_json *env = stk_json_get(exec, "env");
    uint32_t n_args = stk_json_n_items(args);
    uint32_t n_env = stk_json_n_items(env);
    const char **argv = stk_arena_array(r->arena, (size_t)n_args + 2, sizeof *argv);
    const char **pairs = stk_arena_array(r->arena, (size_t)n_env + 1, sizeof *pairs);
    c->exec.version = say(exec, "apiVersion");
    c->exec.hint = say(exec, "installHint");
    if (argv == NULL || pairs == NULL) {
        return stk_err_nomem(r->err);
    }
    if (command == NULL || c->exec.version == NULL ||
        (strcmp(c->exec.version, "client.authentication.k8s.io/v1") != 0 &&
         strcmp(c->exec.version, "client.authentication.k8s.io/v1beta1") != 0)) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s: the exec plugin '%s' speaks '%s'; client.authentication.k8s.io/v1 "
                           "and v1beta1 are understood: update the entry",
                           c->origin, stk_text_or(command, ""), stk_text_or(c->exec.version, ""));
    }
    argv[0] = strchr(command, '/') != NULL && *command != '/'
                  ? stk_arena_printf(r->arena, "%s/%s", user->from->folder, command)
                  : command;
    for (uint32_t i = 0; i < n_args; i++) {
        const char *word = stk_json_text(&args->items[i]);
        argv[i + 1] = stk_text_or(word, "");
    }
    for (uint32_t i = 0, n = 0; i < n_env; i++) {
        const char *name = say(&env->items[i], "name");
        const char *value = say(&env->items[i], "value");
        if (name != NULL) {
            pairs[n++] = stk_arena_printf(r->arena, "%s=%s", name, stk_text_or(value, ""));
        }
    }
    c->exec.argv = argv;
    c->exec.env = pairs;
    STK_TRY(stk_err_if_null(argv[0], r->err));
    return exec_info(r, exec, cluster, c);
}

/* --- a context --- */

static int read_user(const reader *r, const entry *user, const stk_json *cluster,
                     stk_kube_config *c)
{
    const stk_json *exec = stk_json_get(user->node, "exec");
    int rc = pem(r, user, "client-certificate", &c->tls.cert_data, &c->tls.cert_file);
    rc = rc < 0 ? rc : pem(r, user, "client-key", &c->tls.key_data, &c->tls.key_file);
    c->token = say(user->node, "token");
    c->token_file = path_of(r, user, "tokenFile");
    c->user = say(user->node, "username");
    c->password = say(user->node, "password");
    if (rc == 0 && stk_json_get(user->node, "auth-provider") != NULL && exec == NULL) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s logs in by an auth-provider, which Kubernetes has given up; use its "
                           "exec plugin (like gke-gcloud-auth-plugin or kubelogin)",
                           c->origin);
    }
    if (rc < 0 || exec == NULL || exec->kind != STK_JSON_MAP) {
        return rc;
    }
    return read_exec(r, user, exec, cluster, c);
}

static int read_cluster(const reader *r, const entry *cluster, stk_kube_config *c)
{
    const char *server = say(cluster->node, "server");
    if (server == NULL) {
        return stk_err_set(r->err, STK_E_ENV, "%s: its cluster has no server", c->origin);
    }
    size_t n = strlen(server);
    while (n > 0 && server[n - 1] == '/') {
        n--;
    }
    c->server = stk_arena_dupn(r->arena, server, n);
    c->tls.server_name = say(cluster->node, "tls-server-name");
    c->tls.insecure = truth(cluster->node, "insecure-skip-tls-verify");
    const char *proxy = say(cluster->node, "proxy-url");
    if (proxy != NULL) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s: its cluster has a proxy-url, which Stoker doesn't read; export "
                           "HTTPS_PROXY=%s instead",
                           c->origin, proxy);
    }
    STK_TRY(stk_err_if_null(c->server, r->err));
    return pem(r, cluster, "certificate-authority", &c->tls.ca_data, &c->tls.ca_file);
}

static int read_context(reader *r, const char *asked, stk_kube_config *c)
{
    const char *name = asked;
    const char *path = r->files[0].path;
    for (uint32_t i = 0; i < r->n && name == NULL; i++) {
        name = say(&r->files[i].root, "current-context");
    }
    entry context = find(r, "contexts", "context", name);
    if (context.node == NULL) {
        return stk_err_set(r->err, STK_E_ENV, "%s%s has no %scontext%s%s%s; there are: %s", path,
                           r->n > 1 ? " (and other files of KUBECONFIG)" : "",
                           name == NULL ? "current-" : "", name == NULL ? "" : " '",
                           stk_text_or(name, ""), name == NULL ? "" : "'", names_of(r, "contexts"));
    }
    c->origin = stk_arena_printf(r->arena, "context '%s' of %s", name, context.from->path);
    const char *of_cluster = say(context.node, "cluster");
    const char *of_user = say(context.node, "user");
    entry cluster = find(r, "clusters", "cluster", of_cluster);
    entry user = find(r, "users", "user", of_user);
    if (c->origin == NULL) {
        return stk_err_nomem(r->err);
    }
    if (cluster.node == NULL || (of_user != NULL && user.from == NULL)) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s names the %s '%s', which is not there; there are: %s", c->origin,
                           cluster.node == NULL ? "cluster" : "user",
                           cluster.node != NULL ? of_user : stk_text_or(of_cluster, ""),
                           names_of(r, cluster.node == NULL ? "clusters" : "users"));
    }
    c->name_space = say(context.node, "namespace");
    int rc = read_cluster(r, &cluster, c);
    if (rc < 0 || user.node == NULL) {
        return rc;
    }
    return read_user(r, &user, cluster.node, c);
}

/* --- the account of our own pod --- */

static int read_account(stk_arena *arena, stk_kube_config *c, stk_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    const char *asked = getenv("STOKER_SERVICE_ACCOUNT"); /* where it is mounted, if elsewhere */
    const char *folder = asked == NULL || *asked == '\0' ? ACCOUNT : asked;
    if (host == NULL || *host == '\0') {
        const char *said = getenv("KUBECONFIG");
        bool is_said = said != NULL && *said != '\0';
        return stk_err_set(err, STK_E_ENV,
                           "no Kubernetes cluster is known: there is no %s, %sand this is no pod; "
                           "get a kubeconfig from your cluster",
                           is_said ? said : "~/.kube/config",
                           is_said ? "which KUBECONFIG names, " : "KUBECONFIG is not set, ");
    }
    bool is_v6 = strchr(host, ':') != NULL;
    c->origin = "this pod's service account";
    c->direct = true;
    c->server = stk_arena_printf(arena, "https://%s%s%s:%s", is_v6 ? "[" : "", host,
                                 is_v6 ? "]" : "", port == NULL || *port == '\0' ? "443" : port);
    c->token_file = stk_arena_printf(arena, "%s/token", folder);
    c->tls.ca_file = stk_arena_printf(arena, "%s/ca.crt", folder);
    const char *path = stk_arena_printf(arena, "%s/namespace", folder);
    if (c->server == NULL || c->token_file == NULL || c->tls.ca_file == NULL || path == NULL) {
        return stk_err_nomem(err);
    }
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (stk_file_read(path, 4096, &text, &len, NULL) == 0) {
        text[strcspn(text, " \r\n")] = '\0';
        c->name_space = *text == '\0' ? NULL : stk_arena_dup(arena, text);
    }
    return 0;
}

int stk_kube_config_load(const stk_json *options, stk_arena *arena, stk_kube_config *ret,
                         stk_err *err)
{
    reader *r = stk_arena_alloc(arena, sizeof *r);
    stk_kube_config c = {0};
    if (r == NULL) {
        return stk_err_nomem(err);
    }
    *r = (reader){.arena = arena, .err = err};
    bool in_pod = stk_kube_true(options, "incluster", false);
    int rc = in_pod ? 0 : read_files(r, stk_kube_text(options, "kubeconfig"));
    if (rc == 0) {
        rc = r->n == 0 ? read_account(arena, &c, err)
                       : read_context(r, stk_kube_text(options, "context"), &c);
    }
    const char *asked = stk_kube_text(options, "namespace");
    if (asked != NULL) {
        c.name_space = stk_arena_dup(arena, asked);
    }
    if (c.name_space == NULL) {
        c.name_space = "default";
    }
    if (rc == 0) {
        *ret = c;
    }
    return rc;
}
