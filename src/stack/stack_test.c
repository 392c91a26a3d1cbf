#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "stack/stack.h"
#include "sys/file.h"

typedef struct bench {
    char dir[64];
    stk_arena *arena;
    stk_err err;
} bench;

static int set_up(void **state)
{
    bench *b = calloc(1, sizeof *b);
    (void)snprintf(b->dir, sizeof b->dir, "/tmp/stk-stack-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    b->arena = stk_arena_new(0);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    (void)stk_file_remove_tree(b->dir, NULL);
    stk_arena_free(b->arena);
    free(b);
    return 0;
}

static int find(bench *b, const char *text, const char *name, stk_stack *ret)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/stoker.yaml", b->dir);
    b->err = (stk_err){0};
    assert_int_equal(stk_file_write(path, text, strlen(text), 0644, &b->err), 0);
    return stk_stack_find(b->dir, name, b->arena, ret, &b->err);
}

static void test_defaults(void **state)
{
    bench *b = *state;
    stk_stack s;
    assert_int_equal(stk_stack_find(b->dir, NULL, b->arena, &s, &b->err), 0);
    assert_string_equal(s.name, "local");
    assert_int_equal(s.kind, STK_PLACE_LOCAL);
    assert_int_equal(stk_stack_find(b->dir, "docker", b->arena, &s, &b->err), 0);
    assert_int_equal(s.kind, STK_PLACE_DOCKER);
    assert_null(s.file);
    assert_int_equal(stk_stack_find(b->dir, "dokcer", b->arena, &s, &b->err), STK_E_NOT_FOUND);
    assert_non_null(strstr(b->err.text, "'dokcer'"));
    assert_non_null(strstr(b->err.hint, "'docker'"));
}

static void test_file(void **state)
{
    bench *b = *state;
    stk_stack s;
    static const char text[] = "stacks:\n"
                               "  lab:\n"
                               "    backend: docker\n"
                               "    default_image: base:1\n"
                               "    image_map: {nvcr.io/: mirror/, nvcr.io/nvidia/: local/nv/}\n"
                               "    registry: reg:5000\n"
                               "    socket: /run/x.sock\n"
                               "  local: {default_image: small:2}\n";
    assert_int_equal(find(b, text, "lab", &s), 0);
    assert_int_equal(s.kind, STK_PLACE_DOCKER);
    assert_string_equal(s.default_image, "base:1");
    assert_string_equal(s.registry, "reg:5000");
    assert_string_equal(s.socket, "/run/x.sock");
    assert_string_equal(stk_stack_map(&s, "nvcr.io/nvidia/x:1", b->arena), "local/nv/x:1");
    assert_string_equal(stk_stack_map(&s, "nvcr.io/y", b->arena), "mirror/y");
    assert_string_equal(stk_stack_map(&s, "python:3", b->arena), "python:3");
    assert_int_equal(find(b, text, NULL, &s), 0);
    assert_int_equal(s.kind, STK_PLACE_LOCAL);
    assert_string_equal(s.default_image, "small:2");
    char below[128];
    (void)snprintf(below, sizeof below, "%s/a/b", b->dir);
    assert_int_equal(stk_file_mkdirs(below, 0755, &b->err), 0);
    assert_int_equal(stk_stack_find(below, "lab", b->arena, &s, &b->err), 0);
    assert_string_equal(s.default_image, "base:1");
    assert_int_equal(find(b, text, "lob", &s), STK_E_NOT_FOUND);
    assert_non_null(strstr(b->err.hint, "'lab'"));
    assert_int_equal(find(b, "# mine\n\n#\n", "docker", &s), 0); /* only marks the folder */
}

static void test_map_parts(void **state)
{
    bench *b = *state;
    stk_stack s;
    assert_int_equal(find(b, "stacks: {d: {backend: docker, image_map: {python: my/py}}}", "d", &s),
                     0);
    assert_string_equal(stk_stack_map(&s, "python:3.11", b->arena), "my/py:3.11");
    assert_string_equal(stk_stack_map(&s, "python", b->arena), "my/py");
    assert_string_equal(stk_stack_map(&s, "pythonista:1", b->arena), "pythonista:1");
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *text;
        int code, line;
        const char *words, *hint;
    } cases[] = {
        {"stacks:\n  a: {backend: doker}", STK_E_SPEC, 2, "'backend' must be docker or local", ""},
        {"stacks:\n  a:\n    backend: docker\n    image: x", STK_E_SPEC, 4,
         "unknown key 'image' in 'a'", ""},
        {"stacks:\n  a:\n    backend: docker\n    default_imgae: x", STK_E_SPEC, 4,
         "unknown key 'default_imgae'", "default_image"},
        {"stack:\n  a: {}", STK_E_SPEC, 1, "unknown key 'stack'", "stacks"},
        {"stacks:\n  a: {}", STK_E_SPEC, 2, "doesn't say its backend", ""},
        {"stacks: [a]", STK_E_SPEC, 1, "'stacks' must be a mapping", ""},
        {"stacks:\n  a:\n    backend: docker\n    image_map: [x]", STK_E_SPEC, 4, "image_map", ""},
        {"stacks:\n  a:\n    backend: docker\n    socket: 5", STK_E_SPEC, 4, "'socket'", ""},
        {"stoker: 2\nstacks: {}", STK_E_VERSION, 1, "format 2", ""},
        {"- a", STK_E_SPEC, 1, "is a mapping", ""},
        {"stacks: {a: {backend: docker}", STK_E_SPEC, -1, "", ""},
    };
    bench *b = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_stack s;
        assert_int_equal(find(b, cases[i].text, "docker", &s), cases[i].code);
        assert_non_null(strstr(b->err.text, cases[i].words));
        assert_non_null(strstr(b->err.hint, cases[i].hint));
        assert_non_null(strstr(b->err.file, "stoker.yaml"));
        assert_true(cases[i].line < 0 || b->err.line == cases[i].line);
    }
}

static void test_place(void **state)
{
    static const struct {
        const char *with, *backend, *docker;
        int code;
        stk_place_kind kind;
        const char *image, *words; /* of the note, or of the error */
    } cases[] = {
        {"local", NULL, NULL, 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", NULL, "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", "\"docker\"", "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_DOCKER, "x:1", NULL},
        {"local", "{\"docker\":{\"shm_size\":\"1g\"}}", "{\"parent_image\":\"x:1\"}", 0,
         STK_PLACE_DOCKER, "x:1", NULL},
        {"local", "\"docker\"", NULL, STK_E_SPEC, 0, NULL, "no image"},
        {"local", "\"docker\"", "{\"dockerfile\":\"D\"}", 0, STK_PLACE_DOCKER, NULL, NULL},
        {"local", "{\"kubernetes\":{\"image\":\"k:1\"}}", NULL, 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", "\"kubernetes\"", NULL, 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", "\"dokcer\"", NULL, STK_E_SPEC, 0, NULL, "there is no backend 'dokcer'"},
        {"docker", NULL, NULL, 0, STK_PLACE_LOCAL, NULL, "names no image"},
        {"docker", NULL, "{\"requirements\":[\"zenml\"]}", 0, STK_PLACE_LOCAL, NULL,
         "names no image"},
        {"docker", NULL, "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_DOCKER, "x:1", NULL},
        {"docker", "{\"kubernetes\":{\"image\":\"k:1\"}}", NULL, 0, STK_PLACE_DOCKER, "k:1", NULL},
        {"docker", "{\"batch\":{\"image\":\"b:1\"}}", "{\"parent_image\":\"x:1\"}", 0,
         STK_PLACE_DOCKER, "x:1", NULL},
        {"docker", "\"local\"", "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_LOCAL, NULL, NULL},
        {"lab", NULL, NULL, 0, STK_PLACE_DOCKER, "mirror/base:1", NULL},
        {"lab", NULL, "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_DOCKER, "x:1", NULL},
    };
    bench *b = *state;
    static const char text[] = "stacks: {lab: {backend: docker, default_image: \"hub/base:1\", "
                               "image_map: {hub/: mirror/}}}";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_stack s;
        stk_place place = {0};
        stk_settings settings = {.backend = cases[i].backend, .docker = cases[i].docker};
        assert_int_equal(find(b, text, cases[i].with, &s), 0);
        assert_int_equal(stk_stack_place(&s, "train", &settings, b->arena, &place, &b->err),
                         cases[i].code);
        if (cases[i].code < 0) {
            assert_non_null(strstr(b->err.text, cases[i].words));
            assert_true(b->err.hint[0] != '\0');
            continue;
        }
        assert_int_equal(place.kind, cases[i].kind);
        if (cases[i].image == NULL) {
            assert_null(place.image);
        } else {
            assert_string_equal(place.image, cases[i].image);
        }
        if (cases[i].words == NULL) {
            assert_null(place.note);
        } else {
            assert_non_null(strstr(place.note, cases[i].words));
        }
    }
}

static void test_sources(void **state)
{
    bench *b = *state;
    stk_stack s;
    stk_place place;
    stk_settings settings = {.backend = "{\"docker\":{\"network\":\"none\"}}"};
    assert_int_equal(find(b, "stacks: {local: {default_image: a:1}}", NULL, &s), 0);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_string_equal(place.written, "a:1");
    assert_string_equal(place.source, "stack 'local'");
    assert_string_equal(place.options, "{\"network\":\"none\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_map_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sources, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
