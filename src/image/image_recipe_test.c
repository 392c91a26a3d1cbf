/* DockerSettings → Dockerfile, context and tag. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/file.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/stk-recipe-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return stk_file_remove_tree(folder, NULL);
}

static void put(const char *name, const char *text)
{
    STK_TEXT_AUTO path = stk_file_join(folder, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(stk_file_mkdirs(path, 0777, NULL), 0);
    *slash = '/';
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, NULL), 0);
}

/* Returns the Dockerfile for settings; `err` may be NULL where this must succeed. */
static const char *dockerfile(const char *docker, const char *parent_id, stk_arena *arena,
                              const char **ret_tag, stk_err *ret_err)
{
    stk_err err = {0};
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    const char *tag = NULL;
    const stk_image_recipe recipe = {.docker = docker,
                                     .parent = "base:1",
                                     .parent_id = parent_id,
                                     .folder = folder,
                                     .python = "python3"};
    int rc = stk_image_dockerfile(&recipe, arena, &buf, &tag, &err);
    if (ret_err != NULL) {
        *ret_err = err;
    } else if (rc < 0) {
        fail_msg("%s: %s; %s", docker, err.text, err.hint);
    }
    if (ret_tag != NULL) {
        *ret_tag = tag;
    }
    return rc < 0 ? NULL : stk_arena_dup(arena, buf.data);
}

static void test_builds(void **state)
{
    (void)state;
    static const struct {
        const char *docker;
        bool builds;
    } cases[] = {
        {NULL, false},
        {"{}", false},
        {"{\"parent_image\": \"x\"}", false},
        {"{\"requirements\": [\"zenml==0.20.5\"]}", false},
        {"{\"requirements\": [\"zenml[server]>=0.50 \", \" ZenML\"]}", false},
        {"{\"requirements\": [\"zenml-cli\"]}", true},
        {"{\"requirements\": [\"zenml==0.20.5\", \"torchvision\"]}", true},
        {"{\"requirements\": \"requirements.txt\"}", true},
        {"{\"requirements\": null, \"apt_packages\": []}", false},
        {"{\"apt_packages\": [\"git\"]}", true},
        {"{\"environment\": {\"A\": \"b\"}}", true},
        {"{\"environment\": {}, \"runtime_environment\": {\"A\": \"b\"}}", false},
        {"{\"user\": \"me\"}", false},
        {"{\"dockerfile\": \"Dockerfile\"}", true},
        {"{\"replicate_local_python_environment\": true}", true},
        {"{\"replicate_local_python_environment\": false}", false},
        {"{\"skip_build\": true, \"parent_image\": \"x\", \"apt_packages\": [\"git\"]}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (stk_image_builds(cases[i].docker) != cases[i].builds) {
            fail_msg("%s", cases[i].docker);
        }
    }
}

static void test_whole_file(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    put("requirements.txt", "numpy  # for arrays\n\n-r more/extra.txt\nzenml==0.20.5\n");
    put("more/extra.txt", "--extra-index-url https://packages.invalid/simple\npandas>=2\n");
    put("pyproject.toml", "[build-system]\nrequires = [\"x\"]\n[project]\nname = \"p\"\n"
                          "dependencies = [\n  \"scipy>=1\", # a [ comment\n  'torchvision',\n]\n"
                          "[project.optional-dependencies]\ndev = [\"pytest\"]\n");
    const char *text = dockerfile(
        "{\"environment\": {\"GREETING\": \"say \\\"hi\\\" \\\\ $HOME\", \"N\": 3}, "
        "\"apt_packages\": "
        "[\"git\", \"a b'c\"], \"required_integrations\": [\"sklearn\", \"s3\"], "
        "\"pyproject_path\": \"pyproject.toml\", \"requirements\": \"requirements.txt\", "
        "\"python_package_installer_args\": {\"find-links\": [\"/w\", \"/v v\"], \"pre\": null, "
        "\"no-deps\": true, \"verbose\": false}, "
        "\"local_project_install_command\": \"pip install .\", \"user\": \"me\"}",
        NULL, arena, NULL, NULL);
    static const char uv[] = "RUN uv pip install --python \"$(command -v python3)\" "
                             "--break-system-packages --no-cache-dir --find-links=/w "
                             "--find-links='/v v' --pre --no-deps -r /tmp/stoker/";
    STK_BUF_AUTO wanted = STK_BUF_INIT(1 << 20);
    stk_buf_printf(
        &wanted,
        "FROM base:1\n# zenml==0.20.5 is left out: Stoker provides its own Python package at run "
        "time\nENV GREETING=\"say \\\"hi\\\" \\\\ $HOME\"\nENV N=\"3\"\nRUN apt-get update \\\n && "
        "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends git 'a b'\\''c' "
        "\\\n && rm -rf /var/lib/apt/lists/*\nRUN command -v uv > /dev/null \\\n || "
        "PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir --find-links=/w "
        "--find-links='/v v' uv\n# required_integrations\nCOPY .stoker/integrations.txt "
        "/tmp/stoker/\n%sintegrations.txt\n# dependencies of pyproject.toml\nCOPY "
        ".stoker/pyproject.txt /tmp/stoker/\n%spyproject.txt\n# requirements\nCOPY "
        ".stoker/requirements.txt /tmp/stoker/\n%srequirements.txt\n# "
        "local_project_install_command: the project's files are part of the image\nCOPY "
        ".stoker/project/ /app/\nRUN cd /app && pip install .\nUSER me\n",
        uv, uv, uv);
    assert_string_equal(text, wanted.data);
}

static void test_packages(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_image_settings s;
    stk_image_packages packages[STK_IMAGE_PACKAGES];
    STK_BUF_AUTO notes = STK_BUF_INIT(1 << 16);
    uint32_t n = 0;
    const stk_image_recipe recipe = {.folder = folder, .python = "python3"};
    put("requirements.txt", "numpy # for arrays\n-r more/extra.txt\n");
    put("more/extra.txt", "-r third.txt\npandas>=2\n");
    put("more/third.txt", "a #egg\nb@https://x/#sha=1\n");
    assert_int_equal(stk_image_settings_read(
                         "{\"disable_automatic_requirements_detection\": false, "
                         "\"replicate_local_python_environment\": [\"printf\", \"x==1\\ny==2\"]}",
                         arena, &s, NULL),
                     0);
    assert_int_equal(stk_image_gather(&recipe, &s, arena, packages, &n, &notes, NULL), 0);
    assert_int_equal(n, 1);
    assert_string_equal(packages[0].text, "x==1\ny==2\n");
    assert_int_equal(stk_image_settings_read(
                         "{\"disable_automatic_requirements_detection\": false}", arena, &s, NULL),
                     0);
    assert_int_equal(stk_image_gather(&recipe, &s, arena, packages, &n, &notes, NULL), 0);
    assert_int_equal(n, 1);
    assert_string_equal(packages[0].text, "numpy\na\nb@https://x/#sha=1\npandas>=2\n");
}

/* An environment that uv made: it has no pip. */
static void test_freeze(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char *const names[] = {"venv/bin/python3", NULL};
    put("venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n");
    put("venv/lib/python3.11/site-packages/B_b-2.0.dist-info/METADATA", "");
    put("venv/lib/python3.11/site-packages/a-1.0+cu130.dist-info/METADATA", "");
    put("venv/lib/python3.11/site-packages/pip-24.0.dist-info/METADATA", "");
    put("venv/lib/python3.11/site-packages/mine-1.dist-info/direct_url.json",
        "{\"url\": \"file:///home/me\", \"dir_info\": {\"editable\": true}}");
    put("venv/lib/python3.11/site-packages/far-1.dist-info/direct_url.json",
        "{\"url\": \"https://g.invalid/far\", \"vcs_info\": {\"vcs\": \"git\", \"commit_id\": "
        "\"abc\"}}");
    STK_TEXT_AUTO python = stk_file_join(folder, names[0]);
    STK_TEXT_AUTO bin = stk_file_join(folder, "venv/bin");
    assert_int_equal(stk_file_mkdirs(bin, 0777, NULL), 0);
    assert_int_equal(symlink("/usr/bin/python3", python), 0);
    stk_image_settings s;
    stk_image_packages packages[STK_IMAGE_PACKAGES];
    STK_BUF_AUTO notes = STK_BUF_INIT(1 << 16);
    uint32_t n = 0;
    const stk_image_recipe recipe = {.folder = folder, .python = python};
    stk_err err = {0};
    assert_int_equal(
        stk_image_settings_read("{\"replicate_local_python_environment\": true}", arena, &s, NULL),
        0);
    if (stk_image_gather(&recipe, &s, arena, packages, &n, &notes, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(packages[0].text, "a==1.0+cu130\nB_b==2.0\nfar @ "
                                          "git+https://g.invalid/far@abc\n");
    assert_non_null(strstr(notes.data, "mine is left out"));
}

static void test_refusals(void **state)
{
    (void)state;
    put("requirements.txt", "-e .\n");
    put("loop.txt", "-r loop.txt\n");
    static const struct {
        const char *docker;
        int code;
        const char *text;
    } cases[] = {
        {"{\"skip_build\": true}", STK_E_SPEC, "skip_build needs parent_image"},
        {"{\"apt_packages\": \"git\"}", STK_E_SPEC, "apt_packages must be a list of strings"},
        {"{\"requirements\": [1]}", STK_E_SPEC, "requirements must be a list of strings"},
        {"{\"python_package_installer\": \"conda\"}", STK_E_SPEC, "neither 'pip' nor 'uv'"},
        {"{\"python_package_installer_args\": {\"a b\": 1}}", STK_E_SPEC,
         "isn't a valid name of an option"},
        {"{\"required_integrations\": [\"sklern\"]}", STK_E_SPEC, "did you mean 'sklearn'?"},
        {"{\"requirements\": \"none.txt\"}", STK_E_NOT_FOUND, "none.txt"},
        {"{\"requirements\": \"loop.txt\"}", STK_E_SPEC, "includes itself"},
        {"{\"requirements\": \"requirements.txt\"}", STK_E_SPEC, "names a file of this host"},
        {"{\"requirements\": [\"./x.whl\"]}", STK_E_SPEC, "names a file of this host"},
        {"{\"dockerfile\": \"None\"}", STK_E_NOT_FOUND, "None"},
        {"{\"environment\": {\"A\": \"b\\nc\"}}", STK_E_SPEC, "one line"},
        {"{\"environment\": {\"A B\": \"c\"}}", STK_E_SPEC, "must be a valid name"},
        {"{\"replicate_local_python_environment\": \"conda\"}", STK_E_SPEC, "must be true"},
        {"{\"replicate_local_python_environment\": [\"false\"]}", STK_E_ENV, "'false'"},
        {"{\"pyproject_path\": \"loop.txt\"}", STK_E_SPEC, "no [project] with dependencies"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_err err = {0};
        assert_null(dockerfile(cases[i].docker, NULL, arena, NULL, &err));
        if (err.code != cases[i].code || strstr(err.text, cases[i].text) == NULL) {
            fail_msg("%s: %d %s", cases[i].docker, err.code, err.text);
        }
    }
}

static void test_pip_and_mounts(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text = dockerfile("{\"requirements\": [\"a\"], \"python_package_installer\": "
                                  "\"pip\"}",
                                  NULL, arena, NULL, NULL);
    assert_non_null(strstr(text, "RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install "
                                 "--no-cache-dir --default-timeout=60 -r /tmp/stoker/"));
    assert_null(strstr(text, "uv"));
    static const char cached[] = "{\"requirements\": [\"a\"], "
                                 "\"python_package_installer_cache_mount\": \"/c\"}";
    text = dockerfile(cached, NULL, arena, NULL, NULL);
    assert_non_null(strstr(text, "RUN --mount=type=cache,target=/c uv pip install"));
    assert_non_null(strstr(text, " --cache-dir=/c -r"));
    assert_null(strstr(text, "--break-system-packages --no-cache-dir"));
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    const char *tag;
    const stk_image_recipe recipe = {.docker = cached, .parent = "b", .without_mounts = true};
    assert_int_equal(stk_image_dockerfile(&recipe, arena, &buf, &tag, NULL), 0);
    assert_null(strstr(buf.data, "--mount"));
    /* the parent has no pip: this machine's uv is copied, as nothing can be mounted */
    stk_image_recipe ours = recipe;
    ours.uv = "/bin/true";
    stk_buf_clear(&buf);
    assert_int_equal(stk_image_dockerfile(&ours, arena, &buf, &tag, NULL), 0);
    assert_non_null(strstr(buf.data, "\nCOPY .stoker/uv /tmp/stoker-uv\n"));
    assert_non_null(strstr(buf.data, "RUN /tmp/stoker-uv pip install --python"));
    assert_null(strstr(buf.data, "-m pip install"));
}

static void test_own_dockerfile(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    put("docker/Dockerfile", "FROM scratch\nCOPY hello /");
    put("docker/hello", "1");
    put("docker/secret/key", "2");
    put("docker/.dockerignore", "secret\n");
    static const char docker[] = "{\"dockerfile\": \"docker/Dockerfile\", \"build_context_root\": "
                                 "\"docker\", \"environment\": {\"A\": \"b\"}}";
    const char *one = NULL, *two = NULL;
    assert_string_equal(dockerfile(docker, NULL, arena, &one, NULL),
                        "FROM scratch\nCOPY hello /\nENV A=\"b\"\n");
    put("docker/secret/key", "3"); /* an ignored file isn't part of the digest */
    (void)dockerfile(docker, NULL, arena, &two, NULL);
    assert_string_equal(one, two);
    put("docker/hello", "2");
    (void)dockerfile(docker, NULL, arena, &two, NULL);
    assert_string_not_equal(one, two);
}

static void test_tags(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char *const different[] = {
        "{\"requirements\": [\"a\"]}", "{\"requirements\": [\"b\"]}",
        "{\"requirements\": [\"a\"], \"user\": \"me\"}",
        "{\"requirements\": [\"a\"], \"build_config\": {\"build_options\": {\"no_cache\": true}}}",
        "{\"requirements\": [\"a\"], \"python_package_installer\": \"pip\"}"};
    enum { N = sizeof different / sizeof different[0] };
    const char *tags[N], *again = NULL, *other = NULL;
    for (size_t i = 0; i < N; i++) {
        (void)dockerfile(different[i], "sha256:1", arena, &tags[i], NULL);
        assert_int_equal(strlen(tags[i]), 40);
        (void)dockerfile(different[i], "sha256:1", arena, &again, NULL);
        assert_string_equal(tags[i], again);
        (void)dockerfile(different[i], "sha256:2", arena, &other, NULL);
        assert_string_not_equal(tags[i], other); /* the parent changed */
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(tags[i], tags[k]);
        }
    }
    /* project code isn't part of the image */
    put("train.py", "1");
    (void)dockerfile(different[0], "sha256:1", arena, &again, NULL);
    assert_string_equal(tags[0], again);
}

static void test_ignore(void **state)
{
    (void)state;
    static const struct {
        const char *patterns, *path;
        bool ignored;
    } cases[] = {
        {"", "a", false},
        {"a", "a", true},
        {"a", "b/a", false},
        {"a", "a/b/c", true},
        {"/a/", "a/b", true},
        {"./a", "a", true},
        {"# a\n", "# a", false},
        {"*.pyc", "x.pyc", true},
        {"*.pyc", "d/x.pyc", false},
        {"**/*.pyc", "x.pyc", true},
        {"**/*.pyc", "d/e/x.pyc", true},
        {"*/x", "d/x", true},
        {"*/x", "d/e/x", false},
        {"a/**", "a/b/c", true},
        {"a/**", "a", false},
        {"a/**/z", "a/z", true},
        {"a/**/z", "a/b/c/z", true},
        {"*\n!keep", "keep", false},
        {"*\n!keep", "other", true},
        {"*\n!keep/me", "keep/me", false},
        {"!a\na", "a", true},
        {"a?c", "abc", true},
        {"a?c", "a/c", false},
        {"[a-c]x", "bx", true},
        {"[^a-c]x", "bx", false},
        {"[^a-c]x", "zx", true},
        {"[a", "[a", false},
        {"\\*", "*", true},
        {"\\*", "x", false},
        {" a \r\n", "a", true},
        {"**", "any/thing", true},
        {"********************x", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaay",
         false},
        {"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*.key",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.key", true},
        {"**a**a**a**a**a**a**a**a**a**a**.key",
         "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/x.key", false},
        {"**/a/**/a/**/a/**/a/**/a/**/a/**/*.key",
         "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/x.key", true},
        {"**/*a*a*a*a*a*a*a*a*a*b.key",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/aaaaaaaaaab.key", true},
        {"*a**b", "aab", true},
        {"a**b", "a/x/b", true},
        {"a**b", "axb", false},
        {"a\\/b", "a/b", false},
        {"[a/]b", "/b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_image_ignore ignore;
        assert_int_equal(stk_image_ignore_read(cases[i].patterns, arena, &ignore, NULL), 0);
        if (stk_image_is_ignored(&ignore, cases[i].path) != cases[i].ignored) {
            fail_msg("'%s': %s", cases[i].patterns, cases[i].path);
        }
    }
}

/* The system's tar can read our archives. */
static void test_tar(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char deep[400] = "ctx/";
    while (strlen(deep) < 200) {
        (void)strcat(deep, "folder-with-a-long-name/");
    }
    (void)strcat(deep, "file");
    put(deep, "deep");
    put("ctx/run.sh", "#!/bin/sh\n");
    put("ctx/skip/me", "x");
    put("ctx/.dockerignore", "skip\n");
    STK_TEXT_AUTO root = stk_file_join(folder, "ctx");
    STK_TEXT_AUTO script = stk_file_join(folder, "ctx/run.sh");
    STK_TEXT_AUTO link = stk_file_join(folder, "ctx/link");
    assert_int_equal(chmod(script, 0700), 0);
    assert_int_equal(symlink("run.sh", link), 0);
    stk_image_context context = {.arena = arena};
    assert_int_equal(stk_image_context_tree(&context, root, "", NULL, true, NULL), 0);
    assert_int_equal(stk_image_context_text(&context, "Dockerfile", "FROM x\n", NULL), 0);
    stk_image_context_sort(&context);
    int fd = -1;
    assert_int_equal(stk_image_context_tar(&context, &fd, NULL), 0);
    char command[256];
    (void)snprintf(command, sizeof command,
                   "tar -tvf /proc/self/fd/%d | awk '{print $1, $2, $3, $6}' > %s/list; tar -xOf "
                   "/proc/self/fd/%d --wildcards '*/file' > %s/content",
                   fd, folder, fd, folder);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
    assert_int_equal(system(command), 0);
    stk_file_close(&fd);
    STK_TEXT_AUTO list_path = stk_file_join(folder, "list");
    STK_TEXT_AUTO content_path = stk_file_join(folder, "content");
    STK_TEXT_AUTO list = NULL;
    STK_TEXT_AUTO content = NULL;
    size_t n;
    assert_int_equal(stk_file_read(list_path, 1 << 20, &list, &n, NULL), 0);
    assert_int_equal(stk_file_read(content_path, 1 << 20, &content, &n, NULL), 0);
    assert_string_equal(content, "deep");
    assert_non_null(strstr(list, "-rw-r--r-- 0/0 7 Dockerfile\n"));
    assert_non_null(strstr(list, "-rwx------ 0/0 10 run.sh\n")); /* a private file stays private */
    assert_non_null(strstr(list, "lrwxrwxrwx 0/0 0 link\n"));
    assert_non_null(strstr(list, deep + 4));
    assert_null(strstr(list, "skip"));
}

/* The project's files in an image: files that are private by name or by mode are left out. */
static void test_private(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    put("app/a.py", "1\n");
    put("app/.env", "TOKEN=x\n");
    put("app/.netrc", "x\n");
    put("app/deep/id_rsa", "x\n");
    put("app/mine", "x\n");
    put("app/ours", "x\n");
    put("app/.dockerignore", "!ours\n!.env\n");
    STK_TEXT_AUTO root = stk_file_join(folder, "app");
    const char *const shut[] = {"app/mine", "app/ours"};
    for (size_t i = 0; i < 2; i++) {
        STK_TEXT_AUTO path = stk_file_join(folder, shut[i]);
        assert_int_equal(chmod(path, 0600), 0);
    }
    for (int with_private = 0; with_private < 2; with_private++) {
        stk_image_context context = {.arena = arena};
        assert_int_equal(stk_image_context_tree(&context, root, "", NULL, with_private == 1, NULL),
                         0);
        stk_image_context_sort(&context);
        STK_BUF_AUTO text = STK_BUF_INIT(1 << 16);
        for (uint32_t i = 0; i < context.n; i++) {
            stk_buf_printf(&text, "%s %o\n", context.files[i].name,
                           (unsigned)context.files[i].mode & 0777);
        }
        assert_int_equal(context.n_left_out, with_private == 1 ? 0 : 3);
        assert_string_equal(text.data, with_private == 1
                                           ? ".dockerignore 644\n.env 644\n.netrc 644\na.py 644\n"
                                             "deep 755\ndeep/id_rsa 644\nmine 600\nours 600\n"
                                           : ".dockerignore 644\n.env 644\na.py 644\ndeep 755\n"
                                             "ours 600\n");
    }
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds),
        CASE(test_whole_file),
        CASE(test_packages),
        CASE(test_freeze),
        CASE(test_refusals),
        CASE(test_pip_and_mounts),
        CASE(test_own_dockerfile),
        CASE(test_tags),
        cmocka_unit_test(test_ignore),
        CASE(test_tar),
        CASE(test_private),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
