/* Credentials as Docker and Podman store them, and the answers of registries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/testing.h"
#include "image/image_private.h"
#include "sys/file.h"

static char folder[64];

static void put(const char *name, const char *text, mode_t mode)
{
    STK_TEXT_AUTO path = stk_file_join(folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0777, NULL), 0);
    *slash = '/';
    assert_int_equal(stk_file_write(path, text, strlen(text), mode, NULL), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Makes a home folder without the tester's own credentials. */
static int make_home(void **state)
{
    (void)state;
    static const char *const names[] = {"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"};
    char path[200];
    (void)snprintf(folder, sizeof folder, "/tmp/stk-login-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)unsetenv(names[i]);
    }
    (void)setenv("HOME", folder, 1);
    (void)snprintf(path, sizeof path, "%s/run", folder);
    (void)setenv("XDG_RUNTIME_DIR", path, 1);
    (void)snprintf(path, sizeof path, "%s/bin:%s", folder, getenv("PATH"));
    return setenv("PATH", path, 1);
}

static int remove_home(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

static void expect(const char *where, const char *user, const char *secret, const char *token)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_image_login login;
    stk_err err = {0};
    if (stk_image_login_find(where, arena, &login, &err) < 0) {
        fail_msg("%s: %s", where, err.text);
    }
    const char *const wanted[] = {user, secret, token};
    const char *const got[] = {login.user, login.secret, login.token};
    for (size_t i = 0; i < 3; i++) {
        if ((wanted[i] == NULL) != (got[i] == NULL) ||
            (wanted[i] != NULL && strcmp(wanted[i], got[i]) != 0)) {
            fail_msg("%s: %s", where, got[i] != NULL ? got[i] : "nothing");
        }
    }
}

static void test_logins(void **state)
{
    (void)state;
    expect("docker.io/library/x", NULL, NULL, NULL); /* no file at all */
    put(".docker/config.json",
        "{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"aHViOnMzY3JldA==\"}, "
        "\"ghcr.io\": {\"auth\": \"bWU6YTpi\"}, \"https://az.azurecr.io\": {\"identitytoken\": "
        "\"tok\", \"auth\": \"MDAwOg==\"}, \"localhost:5000\": {\"username\": \"u\", \"password\": "
        "\"p\"}, \"broken\": {\"auth\": \"###\"}, \"empty\": {}}}",
        0600);
    expect("docker.io/pytorch/pytorch", "hub", "s3cret", NULL);
    expect("ghcr.io/us/x", "me", "a:b", NULL);
    expect("az.azurecr.io/x", NULL, NULL, "tok");
    expect("localhost:5000/x", "u", "p", NULL);
    expect("localhost:50001/x", NULL, NULL, NULL);
    expect("broken/x", NULL, NULL, NULL);
    expect("empty/x", NULL, NULL, NULL);
    expect("quay.io/us/x", NULL, NULL, NULL);
    /* Podman's file may have longer keys; Docker's file takes precedence */
    put("run/containers/auth.json",
        "{\"auths\": {\"quay.io\": {\"auth\": \"YWxsOjE=\"}, \"quay.io/us\": {\"auth\": "
        "\"dXM6Mg==\"}, \"ghcr.io\": {\"auth\": \"bm86MQ==\"}}}",
        0600);
    expect("quay.io/us/x", "us", "2", NULL);
    expect("quay.io/usual/x", "all", "1", NULL);
    expect("ghcr.io/x", "me", "a:b", NULL);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/named.json", folder);
    put("named.json", "{\"auths\": {\"ghcr.io\": {\"auth\": \"bmFtZWQ6MQ==\"}}}", 0600);
    (void)setenv("REGISTRY_AUTH_FILE", path, 1);
    expect("ghcr.io/x", "named", "1", NULL);
}

static void test_helpers(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_image_login login;
    stk_err err = {0};
    put(".docker/config.json",
        "{\"credHelpers\": {\"1.dkr.ecr.eu-west-1.amazonaws.com\": \"ecr\", \"gone.io\": \"gone\", "
        "\"sad.io\": \"sad\", \"odd.io\": \"odd\", \"big.io\": \"big\"}, \"credsStore\": \"all\", "
        "\"auths\": "
        "{\"kept.io\": {\"auth\": \"aDpp\"}}}",
        0600);
    put("bin/docker-credential-ecr",
        "#!/bin/sh\n[ \"$1\" = get ] && read -r s\n"
        "echo \"{\\\"ServerURL\\\": \\\"$s\\\", \\\"Username\\\": \\\"AWS\\\", \\\"Secret\\\": "
        "\\\"for $s\\\"}\"\n",
        0755);
    put("bin/docker-credential-all",
        "#!/bin/sh\nread -r s\ncase $s in *index.docker.io*) echo '{\"Username\": \"<token>\", "
        "\"Secret\": \"t\"}';; *) echo 'credentials not found in native keychain'; exit 1;; esac\n",
        0755);
    put("bin/docker-credential-sad", "#!/bin/sh\necho 'the keyring is locked'; exit 2\n", 0755);
    put("bin/docker-credential-odd", "#!/bin/sh\necho hello\n", 0755);
    put("bin/docker-credential-big", "#!/bin/sh\nwhile :; do echo and so on; done\n", 0755);
    expect("1.dkr.ecr.eu-west-1.amazonaws.com/x", "AWS", "for 1.dkr.ecr.eu-west-1.amazonaws.com",
           NULL);
    expect("docker.io/x", NULL, NULL, "t");
    expect("kept.io/x", "h", "i", NULL);
    expect("none.io/x", NULL, NULL, NULL);
    assert_int_equal(stk_image_login_find("gone.io/x", arena, &login, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "docker-credential-gone"));
    assert_int_equal(stk_image_login_find("big.io/x", arena, &login, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "more than 65536 bytes")); /* endless output */
    assert_int_equal(stk_image_login_find("sad.io/x", arena, &login, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "the keyring is locked"));
    assert_int_equal(stk_image_login_find("odd.io/x", arena, &login, &err), STK_E_ENV);
    assert_non_null(strstr(err.text, "invalid JSON"));
    put(".docker/config.json", "{not", 0600);
    assert_int_equal(stk_image_login_find("x.io/x", arena, &login, &err), STK_E_ENV);
}

static void test_header(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *auth = "";
    assert_int_equal(stk_image_auth("ghcr.io", arena, &auth, NULL), 0);
    assert_null(auth);
    put(".docker/config.json", "{\"auths\": {\"ghcr.io\": {\"auth\": \"bWU6YT8+\"}}}", 0600);
    assert_int_equal(stk_image_auth("ghcr.io", arena, &auth, NULL), 0);
    /* {"serveraddress":"ghcr.io","username":"me","password":"a?>"} in URL-safe base64 */
    assert_string_equal(auth, "eyJzZXJ2ZXJhZGRyZXNzIjoiZ2hjci5pbyIsInVzZXJuYW1lIjoibWUiLCJwYXNzd29y"
                              "ZCI6ImE_PiJ9");
}

static void test_challenges(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char header[] = "Bearer realm=\"https://auth.docker.io/token\",service=\"r.io\", "
                                 "scope=\"repository:a/b:pull,push\",error=insufficient_scope";
    assert_string_equal(stk_image_challenge(header, "realm", arena),
                        "https://auth.docker.io/token");
    assert_string_equal(stk_image_challenge(header, "service", arena), "r.io");
    assert_string_equal(stk_image_challenge(header, "scope", arena), "repository:a/b:pull,push");
    assert_string_equal(stk_image_challenge(header, "error", arena), "insufficient_scope");
    assert_null(stk_image_challenge(header, "ope", arena));
    assert_null(stk_image_challenge(header, "user", arena));
}

static void test_index(void **state)
{
    (void)state;
    static const stk_json_limits limits = {1 << 16, 1000, 16};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char text[] =
        "{\"manifests\": [{\"digest\": \"sha256:a\", \"platform\": {\"os\": \"linux\", "
        "\"architecture\": \"amd64\"}}, {\"digest\": \"sha256:b\", \"platform\": {\"os\": "
        "\"linux\", \"architecture\": \"arm64\"}}, {\"digest\": \"sha256:c\", \"platform\": "
        "{\"os\": \"unknown\", \"architecture\": \"unknown\"}}]}";
    stk_json root;
    const char *have = NULL;
    assert_int_equal(stk_json_parse(text, strlen(text), "i", &limits, arena, &root, NULL), 0);
    assert_string_equal(stk_image_pick(&root, "arm64", arena, &have), "sha256:b");
    assert_null(stk_image_pick(&root, "s390x", arena, &have));
    assert_string_equal(have, "linux/amd64, linux/arm64");
}

static void test_insecure(void **state)
{
    (void)state;
    static const char conf[] = "unqualified-search-registries = [\"docker.io\"]\n"
                               "[[registry]]\nlocation=\"a:5000\"\ninsecure=true\n"
                               "[[registry]]\nlocation = \"b:5000\"\n  insecure = false\n"
                               "[[registry]]\nprefix = \"c:5000\"\ninsecure = true # why not\n";
    static const struct {
        const char *registry;
        bool insecure;
    } cases[] = {{"a:5000", true}, {"b:5000", false}, {"c:5000", true}, {"docker.io", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(stk_image_conf_insecure(conf, cases[i].registry), cases[i].insecure);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const stk_image_ref ecr = {"1.dkr.ecr.eu-west-1.amazonaws.com", "x", "1", NULL},
                        hub = {"docker.io", "us/x", "1", NULL};
    const stk_image_login none = {0}, some = {.user = "me", .secret = "S3CR", .source = "file"};
    static const struct {
        int status, code;
        bool ecr, known;
        const char *text, *hint;
        bool pushes;
        const char *words;
    } cases[] = {
        {401, STK_E_ENV, true, false, "no credentials were found",
         "aws ecr get-login-password | docker login --username AWS --password-stdin "
         "1.dkr.ecr.eu-west-1.amazonaws.com (such a token lasts 12 hours)"},
        {401, STK_E_ENV, true, true, "it rejects the credentials from file", "aws ecr"},
        {403, STK_E_ENV, true, true, "it rejects the credentials from file", "aws ecr", false,
         "Your authorization token has expired. Reauthenticate and try again."},
        {403, STK_E_ENV, true, true, "the account of file may not pull from there",
         "ecr:BatchGetImage", false,
         "User: arn:aws:iam::1:user/u is not authorized to perform: ecr:BatchGetImage"},
        {403, STK_E_ENV, true, true, "refuses the push of", "ecr:PutImage", true, "denied"},
        {401, STK_E_ENV, false, true, "may not push there", "collaborator", true,
         "requested access to the resource is denied"},
        {401, STK_E_ENV, false, false, "(401, words): no credentials were found", "docker login",
         true},
        {404, STK_E_NOT_FOUND, true, false, "has no repository x to push to",
         "aws ecr create-repository --repository-name x", true},
        {404, STK_E_NOT_FOUND, false, false, "registry docker.io has no image docker.io/us/x:1",
         "tags"},
        {429, STK_E_BUSY, false, false, "limits requests from here", "log in"},
        {429, STK_E_BUSY, false, true, "again in s: 7", "image_map"},
        {503, STK_E_ENV, false, false, "answers 503", "has a problem"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_err err = {0};
        int code = stk_image_refused(cases[i].ecr ? &ecr : &hub, cases[i].status,
                                     cases[i].words != NULL ? cases[i].words : "words", "7",
                                     cases[i].known ? &some : &none, cases[i].pushes, &err);
        assert_int_equal(code, cases[i].code);
        assert_int_equal(err.code, cases[i].code);
        if (!strstr(err.text, cases[i].text) || !strstr(err.hint, cases[i].hint) ||
            strstr(err.text, "S3CR") != NULL) {
            fail_msg("%d: %s; %s", cases[i].status, err.text, err.hint);
        }
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_home, remove_home)
    const struct CMUnitTest tests[] = {
        CASE(test_logins),
        CASE(test_helpers),
        CASE(test_header),
        cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_insecure),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
