/* kube_config: which cluster, which user and which namespace. Read from a kubeconfig as kubectl
 * does it (of several files, the first one with a name wins), or from the service account of the
 * pod that we run in. */
#include <ctype.h>
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
    const char *folder; /* base of its relative paths */
    stk_json root;
} file;

typedef struct reader {
    stk_arena *arena;
    stk_err *err;
    file files[FILES_MAX];
    uint32_t n;
} reader;

/* An entry of a file's list, and its file. */
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
    if (stk_file_read(path, FILE_BYTES, &data, &len, r->err) < 0) {
        stk_err_hint(r->err, "name another file (the stack's option kubeconfig, or $KUBECONFIG), "
                             "or none for ~/.kube/config");
        return stk_err_context(r->err, "the kubeconfig");
    }
    STK_TRY(stk_yaml_or_json_parse(data, len, path, &limits, r->arena, &f->root, r->err));
    const char *slash = strrchr(path, '/');
    f->path = stk_arena_dup(r->arena, path);
    f->folder = ".";
    if (slash != NULL) {
        f->folder = stk_arena_dupn(r->arena, path, (size_t)(slash - path));
    }
    STK_TRY(stk_err_if_null(f->path, r->err));
    STK_TRY(stk_err_if_null(f->folder, r->err));
    r->n++;
    return 0;
}

/* Skips files of the list that don't exist, like kubectl. */
static int read_list(reader *r, const char *list)
{
    while (*list != '\0') {
        size_t n = strcspn(list, ":");
        const char *path = stk_arena_dupn(r->arena, list, n);
        STK_TRY(stk_err_if_null(path, r->err));
        list += n + (list[n] == ':');
        if (n == 0 || !stk_file_exists(path)) {
            continue;
        }
        if (r->n == FILES_MAX) {
            return stk_err_set(r->err, STK_E_LIMIT, "KUBECONFIG names more than %d files",
                               FILES_MAX);
        }
        STK_TRY(read_file(r, path));
    }
    return 0;
}

static const char *env(const char *name)
{
    return stk_text_if_any(getenv(name));
}

static int read_files(reader *r, const char *asked)
{
    const char *home = getenv("HOME");
    bool is_default = asked == NULL;
    if (is_default && env("KUBECONFIG") != NULL) {
        return read_list(r, env("KUBECONFIG"));
    }
    asked = stk_text_or(asked, "~/.kube/config");
    if (strncmp(asked, "~/", 2) == 0 && home != NULL) {
        asked = stk_arena_printf(r->arena, "%s%s", home, asked + 1);
        STK_TRY(stk_err_if_null(asked, r->err));
    }
    if (is_default && (home == NULL || !stk_file_exists(asked))) {
        return 0;
    }
    return read_file(r, asked);
}

static const char *say(const stk_json *map, const char *key)
{
    return stk_text_if_any(stk_json_get_text(map, key));
}

/* Member `inner` of the entry named `name` in the files' lists `outer`. */
static entry find(const reader *r, const char *outer, const char *inner, const char *name)
{
    for (uint32_t i = 0; i < r->n && name != NULL; i++) {
        const stk_json *list = stk_json_get(&r->files[i].root, outer);
        for (uint32_t j = 0; j < stk_json_n_items(list); j++) {
            if (stk_json_is(stk_json_get(&list->items[j], "name"), name)) {
                return (entry){stk_json_get(&list->items[j], inner), &r->files[i]};
            }
        }
    }
    return (entry){NULL, NULL};
}

static const char *names_of(const reader *r, const char *outer)
{
    STK_BUF_AUTO all = STK_BUF_INIT(FILE_BYTES);
    for (uint32_t i = 0; i < r->n; i++) {
        const stk_json *list = stk_json_get(&r->files[i].root, outer);
        for (uint32_t j = 0; j < stk_json_n_items(list) && all.len <= 300; j++) {
            const char *called = say(&list->items[j], "name");
            if (called != NULL) {
                (void)stk_buf_separate(&all, ", ");
                (void)stk_buf_text(&all, called);
            }
        }
    }
    return stk_text_or(stk_buf_keep(&all, r->arena), "none");
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
    STK_TRY(stk_err_if_null(out, r->err));
    for (const char *c = text; *c != '\0' && *c != '='; c++) {
        const char *at = strchr(digits, *c);
        if (isspace((unsigned char)*c)) {
            continue;
        }
        if (at == NULL) {
            return stk_err_set(r->err, STK_E_ENV, "%s in the kubeconfig isn't valid base64", key);
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
    if (data != NULL) {
        return base64(r, data, data_key, ret_data);
    }
    *ret_file = path_of(r, e, key);
    return 0;
}

/* --- an exec plugin --- */

/* Makes the plugin's input, with the cluster's data if it asks for them (provideClusterInfo). */
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
    if (stk_json_is_true(stk_json_get(exec, "provideClusterInfo"))) {
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
                           "%s: the exec plugin '%s' uses '%s', but Stoker understands "
                           "client.authentication.k8s.io/v1 and v1beta1; update the entry",
                           c->origin, stk_text_or(command, ""), stk_text_or(c->exec.version, ""));
    }
    argv[0] = command;
    if (strchr(command, '/') != NULL && *command != '/') {
        argv[0] = stk_arena_printf(r->arena, "%s/%s", user->from->folder, command);
    }
    for (uint32_t i = 0; i < n_args; i++) {
        argv[i + 1] = stk_text_or(stk_json_text(&args->items[i]), "");
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
    STK_TRY(pem(r, user, "client-certificate", &c->tls.cert_data, &c->tls.cert_file));
    STK_TRY(pem(r, user, "client-key", &c->tls.key_data, &c->tls.key_file));
    c->token = say(user->node, "token");
    c->token_file = path_of(r, user, "tokenFile");
    c->user = say(user->node, "username");
    c->password = say(user->node, "password");
    if (stk_json_get(user->node, "auth-provider") != NULL && exec == NULL) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s logs in by an auth-provider, which Kubernetes has removed; use its "
                           "exec plugin (like gke-gcloud-auth-plugin or kubelogin)",
                           c->origin);
    }
    if (!stk_json_is_map(exec)) {
        return 0;
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
    c->tls.insecure = stk_json_is_true(stk_json_get(cluster->node, "insecure-skip-tls-verify"));
    c->proxy = say(cluster->node, "proxy-url");
    if (c->proxy != NULL && strncmp(c->proxy, "http://", 7) != 0 &&
        strncmp(c->proxy, "https://", 8) != 0 && strncmp(c->proxy, "socks5://", 9) != 0) {
        return stk_err_set(r->err, STK_E_ENV,
                           "%s: proxy-url '%s' must begin with http://, https:// or socks5://",
                           c->origin, c->proxy);
    }
    STK_TRY(stk_err_if_null(c->server, r->err));
    return pem(r, cluster, "certificate-authority", &c->tls.ca_data, &c->tls.ca_file);
}

static int refuse_name(const reader *r, const stk_kube_config *c, const char *kind,
                       const char *kinds, const char *name)
{
    return stk_err_set(r->err, STK_E_ENV, "%s names the %s '%s', which doesn't exist; known: %s",
                       c->origin, kind, stk_text_or(name, ""), names_of(r, kinds));
}

static int read_context(reader *r, const char *asked, stk_kube_config *c)
{
    const char *name = asked, *what = "current-context", *more = "";
    for (uint32_t i = 0; i < r->n && name == NULL; i++) {
        name = say(&r->files[i].root, "current-context");
    }
    entry context = find(r, "contexts", "context", name);
    if (context.node == NULL) {
        if (name != NULL) {
            what = stk_arena_printf(r->arena, "context '%s'", name);
        }
        if (r->n > 1) {
            more = " (and other files of KUBECONFIG)";
        }
        return stk_err_set(r->err, STK_E_ENV, "%s%s has no %s; known: %s", r->files[0].path, more,
                           stk_text_or(what, ""), names_of(r, "contexts"));
    }
    c->origin = stk_arena_printf(r->arena, "context '%s' of %s", name, context.from->path);
    STK_TRY(stk_err_if_null(c->origin, r->err));
    const char *of_cluster = say(context.node, "cluster");
    const char *of_user = say(context.node, "user");
    entry cluster = find(r, "clusters", "cluster", of_cluster);
    entry user = find(r, "users", "user", of_user);
    if (cluster.node == NULL) {
        return refuse_name(r, c, "cluster", "clusters", of_cluster);
    }
    if (of_user != NULL && user.from == NULL) {
        return refuse_name(r, c, "user", "users", of_user);
    }
    c->name_space = say(context.node, "namespace");
    STK_TRY(read_cluster(r, &cluster, c));
    if (user.node == NULL) {
        return 0;
    }
    return read_user(r, &user, cluster.node, c);
}

/* --- the account of our own pod --- */

static int read_account(stk_arena *arena, stk_kube_config *c, stk_err *err)
{
    const char *host = env("KUBERNETES_SERVICE_HOST");
    const char *port = stk_text_or(env("KUBERNETES_SERVICE_PORT"), "443");
    /* STOKER_SERVICE_ACCOUNT: where the account is mounted, if not at the usual place. */
    const char *folder = stk_text_or(env("STOKER_SERVICE_ACCOUNT"), ACCOUNT);
    const char *open = "", *close = "";
    if (host == NULL) {
        const char *said = env("KUBECONFIG"), *why = "KUBECONFIG isn't set";
        if (said != NULL) {
            why = "KUBECONFIG names it";
        }
        return stk_err_set(err, STK_E_ENV,
                           "no Kubernetes cluster is known: %s doesn't exist, %s, and this isn't a "
                           "pod; get a kubeconfig from your cluster",
                           stk_text_or(said, "~/.kube/config"), why);
    }
    if (strchr(host, ':') != NULL) { /* IPv6 */
        open = "[";
        close = "]";
    }
    c->origin = "this pod's service account";
    c->direct = true;
    c->server = stk_arena_printf(arena, "https://%s%s%s:%s", open, host, close, port);
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
        c->name_space = stk_arena_dup(arena, stk_text_if_any(text));
    }
    return 0;
}

int stk_kube_config_load(const stk_json *options, stk_arena *arena, stk_kube_config *ret,
                         stk_err *err)
{
    reader *r = stk_arena_alloc(arena, sizeof *r);
    stk_kube_config c = {0};
    STK_TRY(stk_err_if_null(r, err));
    *r = (reader){.arena = arena, .err = err};
    if (!stk_kube_true(options, "incluster", false)) {
        STK_TRY(read_files(r, stk_kube_text(options, "kubeconfig")));
    }
    if (r->n == 0) {
        STK_TRY(read_account(arena, &c, err));
    } else {
        STK_TRY(read_context(r, stk_kube_text(options, "context"), &c));
    }
    const char *asked = stk_kube_text(options, "namespace");
    if (asked != NULL) {
        c.name_space = stk_arena_dup(arena, asked);
    }
    c.name_space = stk_text_or(c.name_space, "default");
    *ret = c;
    return 0;
}
