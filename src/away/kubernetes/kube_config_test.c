/* Reads typical kubeconfigs and a pod's service account. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/kubernetes/kube.h"
#include "base/testing.h"

typedef struct fixture {
    char folder[64];
    stk_arena *arena;
    stk_kube_config c;
    stk_err err;
} fixture;

static const char *put(fixture *f, const char *name, const char *text)
{
    const char *path = stk_arena_printf(f->arena, "%s/%s", f->folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    (void)fclose(file);
    (void)chmod(path, 0755);
    return path;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/kube-config-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->arena = stk_arena_new(0);
    (void)unsetenv("KUBECONFIG");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)setenv("HOME", f->folder, 1);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", f->folder);
    assert_int_equal(system(command), 0);
    stk_arena_free(f->arena);
    free(f);
    return 0;
}

static int load(fixture *f, const char *options)
{
    const stk_json *o = stk_json_read(f->arena, options);
    f->err = (stk_err){0};
    return stk_kube_config_load(o, f->arena, &f->c, &f->err);
}

static void fails(fixture *f, const char *options, const char *part)
{
    assert_int_equal(load(f, options), STK_E_ENV);
    if (strstr(f->err.text, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, f->err.text);
    }
}

static const char first[] = "apiVersion: v1\n"
                            "kind: Config\n"
                            "current-context: dev\n"
                            "contexts:\n"
                            "- {name: dev, context: {cluster: c1, user: u1, namespace: team}}\n"
                            "- {name: other, context: {cluster: c2, user: u2}}\n"
                            "- {name: nobody, context: {cluster: c1, user: u9}}\n"
                            "- {name: nowhere, context: {cluster: c9, user: u1}}\n"
                            "- {name: proxied, context: {cluster: c3, user: u1}}\n"
                            "- {name: oddly, context: {cluster: c4, user: u1}}\n"
                            "clusters:\n"
                            "- name: c1\n"
                            "  cluster:\n"
                            "    server: https://api.dev:6443/\n"
                            "    certificate-authority: pki/ca.crt\n"
                            "- name: c3\n"
                            "  cluster: {server: https://x, proxy-url: http://p:1}\n"
                            "- name: c4\n"
                            "  cluster: {server: https://x, proxy-url: p:1}\n"
                            "users:\n"
                            "- name: u1\n"
                            "  user: {client-certificate-data: aGVs bG8=, client-key: /k.pem}\n";

static const char second[] =
    "current-context: other\n"
    "clusters:\n"
    "- {name: c1, cluster: {server: https://wrong}}\n"
    "- {name: c2, cluster: {server: https://api.two, insecure-skip-tls-verify: true, "
    "tls-server-name: kube}}\n"
    "users:\n"
    "- {name: u2, user: {token: t0k, username: me, password: pw}}\n";

static void test_files_are_one(void **state)
{
    fixture *f = *state;
    const char *a = put(f, "a", first), *b = put(f, "b", second);
    (void)setenv("KUBECONFIG", stk_arena_printf(f->arena, "/nowhere:%s::%s", a, b), 1);
    assert_int_equal(load(f, "{}"), 0);
    assert_string_equal(f->c.server, "https://api.dev:6443"); /* the first file wins */
    assert_string_equal(f->c.name_space, "team");
    assert_string_equal(f->c.tls.ca_file, stk_arena_printf(f->arena, "%s/pki/ca.crt", f->folder));
    assert_string_equal(f->c.tls.cert_data, "hello");
    assert_string_equal(f->c.tls.key_file, "/k.pem");
    assert_non_null(strstr(f->c.origin, "context 'dev' of "));
    assert_int_equal(load(f, "{\"context\": \"other\", \"namespace\": \"mine\"}"), 0);
    assert_string_equal(f->c.server, "https://api.two");
    assert_string_equal(f->c.name_space, "mine");
    assert_true(f->c.tls.insecure);
    assert_string_equal(f->c.tls.server_name, "kube");
    assert_string_equal(f->c.token, "t0k");
    const char *options = stk_arena_printf(f->arena, "{\"kubeconfig\": \"%s\"}", b);
    fails(f, options, "has no context 'other'; known: none");
}

static void test_what_is_wrong(void **state)
{
    fixture *f = *state;
    fails(f, "{}", "no Kubernetes cluster is known");
    (void)setenv("KUBECONFIG", put(f, "a", first), 1);
    fails(f, "{\"context\": \"prod\"}", "has no context 'prod'; known: dev, other, nobody");
    fails(f, "{\"context\": \"other\"}", "names the cluster 'c2', which doesn't exist");
    fails(f, "{\"context\": \"nobody\"}", "names the user 'u9', which doesn't exist; known: u1");
    fails(f, "{\"context\": \"nowhere\"}", "names the cluster 'c9'");
    assert_int_equal(load(f, "{\"context\": \"proxied\"}"), 0);
    assert_string_equal(f->c.proxy, "http://p:1");
    fails(f, "{\"context\": \"oddly\"}", "proxy-url 'p:1' must begin with");
    (void)put(f, "a", "contexts: [");
    assert_true(load(f, "{}") < 0);
    (void)put(f, "a",
              "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
              "current-context: x\n"
              "clusters: [{name: c, cluster: {server: 'https://x', "
              "certificate-authority-data: '%%'}}]\n"
              "users: [{name: u, user: {}}]\n");
    fails(f, "{}", "certificate-authority-data in the kubeconfig isn't valid base64");
}

static const char plugged[] = "current-context: x\n"
                              "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
                              "clusters: [{name: c, cluster: {server: 'https://x'}}]\n"
                              "users:\n"
                              "- name: u\n"
                              "  user:\n"
                              "    exec:\n"
                              "      apiVersion: client.authentication.k8s.io/%s\n"
                              "      command: ./plugin\n"
                              "      args: [get, token]\n"
                              "      env: [{name: A, value: b}]\n"
                              "      provideClusterInfo: true\n"
                              "      installHint: install it by hand\n";

static void test_plugin(void **state)
{
    fixture *f = *state;
    char text[1024];
    stk_kube_auth auth = {.waits = true};
    (void)snprintf(text, sizeof text, plugged, "v1beta1");
    (void)setenv("KUBECONFIG", put(f, "a", text), 1);
    assert_int_equal(load(f, "{}"), 0);
    assert_string_equal(f->c.exec.argv[0], stk_arena_printf(f->arena, "%s/./plugin", f->folder));
    assert_string_equal(f->c.exec.argv[2], "token");
    assert_string_equal(f->c.exec.env[0], "A=b");
    assert_non_null(strstr(f->c.exec.info, "\"server\":\"https://x\""));
    assert_true(stk_kube_auth_refresh(&f->c, &auth, &f->err) < 0);
    assert_string_equal(f->err.hint, "install it by hand");
    (void)put(f, "plugin",
              "#!/bin/sh\n[ \"$A $1 $2\" = 'b get token' ] || exit 4\n"
              "echo '{\"status\":{\"token\":\"abc\",\"clientCertificateData\":\"C\","
              "\"clientKeyData\":\"K\",\"expirationTimestamp\":\"2999-01-01T00:00:00Z\"}}'\n");
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), 0);
    assert_string_equal(auth.header, "Authorization: Bearer abc");
    assert_string_equal(auth.cert, "C");
    assert_string_equal(auth.key, "K");
    (void)put(f, "plugin", "#!/bin/sh\nexit 7\n");
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), 0); /* cert is still valid */
    auth.refused = true;
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), STK_E_ENV);
    assert_non_null(strstr(f->err.text, "failed with status 7"));
    stk_kube_auth_done(&auth);
    (void)snprintf(text, sizeof text, plugged, "v1alpha1");
    (void)put(f, "a", text);
    fails(f, "{}", "update the entry");
}

static void test_basic(void **state)
{
    fixture *f = *state;
    stk_kube_auth auth = {.waits = true};
    f->c = (stk_kube_config){.user = "me", .password = "p:w"};
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), 0);
    assert_string_equal(auth.header, "Authorization: Basic bWU6cDp3");
    stk_kube_auth_done(&auth);
}

static void test_account(void **state)
{
    fixture *f = *state;
    stk_kube_auth auth = {.waits = true};
    (void)setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
    (void)setenv("STOKER_SERVICE_ACCOUNT", f->folder, 1);
    (void)put(f, "token", "one\n");
    (void)put(f, "namespace", "jobs\n");
    assert_int_equal(load(f, "{}"), 0);
    assert_string_equal(f->c.server, "https://[fd00::1]:6443");
    assert_string_equal(f->c.name_space, "jobs");
    assert_true(f->c.direct);
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), 0);
    assert_string_equal(auth.header, "Authorization: Bearer one");
    (void)put(f, "token", "two");
    auth.refused = true; /* the server refuses the token within its hour */
    assert_int_equal(stk_kube_auth_refresh(&f->c, &auth, &f->err), 0);
    assert_string_equal(auth.header, "Authorization: Bearer two");
    stk_kube_auth_done(&auth);
    (void)mkdir(stk_arena_printf(f->arena, "%s/.kube", f->folder), 0755);
    (void)put(f, ".kube/config", second);
    fails(f, "{}", "has no context 'other'");              /* a kubeconfig takes precedence … */
    assert_int_equal(load(f, "{\"incluster\": true}"), 0); /* … unless an option says otherwise */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files_are_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_plugin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_basic, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_account, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
