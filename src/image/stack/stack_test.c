#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "image/stack/stack.h"
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
    assert_int_equal(find(b, "# mine\n\n#\n", "docker", &s), 0); /* it only marks the folder */
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
        {"stacks:\n  a: {backend: doker}", STK_E_SPEC, 2,
         "'backend' must be docker, kubernetes, batch, slurm, ssh or local", ""},
        {"stacks:\n  a:\n    backend: docker\n    image: x", STK_E_SPEC, 4,
         "unknown key 'image' in 'a'", ""},
        {"stacks:\n  a:\n    backend: docker\n    default_imgae: x", STK_E_SPEC, 4,
         "unknown key 'default_imgae'", "default_image"},
        {"stack:\n  a: {}", STK_E_SPEC, 1, "unknown key 'stack'", "stacks"},
        {"stacks:\n  a: {}", STK_E_SPEC, 2, "has no backend", ""},
        {"stacks: [a]", STK_E_SPEC, 1, "'stacks' must be a mapping", ""},
        {"stacks:\n  a:\n    backend: docker\n    image_map: [x]", STK_E_SPEC, 4, "image_map", ""},
        {"stacks:\n  a:\n    backend: docker\n    socket: 5", STK_E_SPEC, 4, "'socket'", ""},
        {"stoker: 2\nstacks: {}", STK_E_VERSION, 1, "format 2", ""},
        {"- a", STK_E_SPEC, 1, "must be a mapping", ""},
        {"stacks:\n  a:\n    backend: docker\n    store: /x", STK_E_SPEC, 4,
         "'store' has no meaning for backend docker", ""},
        {"stacks:\n  a:\n    backend: batch\n    store: data/x", STK_E_SPEC, 4, "s3://", ""},
        {"stacks:\n  a:\n    backend: batch\n    carry: mail", STK_E_SPEC, 4,
         "image, volume or store", ""},
        {"stacks:\n  a:\n    backend: batch\n    pools:\n      p: {holds: {gpus: 1}}", STK_E_SPEC,
         5, "unknown key 'gpus'", ""},
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
        const char *image, *words; /* words: part of the note or the error */
    } cases[] = {
        {"local", NULL, NULL, 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", NULL, "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", "\"docker\"", "{\"parent_image\":\"x:1\"}", 0, STK_PLACE_DOCKER, "x:1", NULL},
        {"local", "{\"docker\":{\"shm_size\":\"1g\"}}", "{\"parent_image\":\"x:1\"}", 0,
         STK_PLACE_DOCKER, "x:1", NULL},
        {"local", "\"docker\"", NULL, STK_E_SPEC, 0, NULL, "no image"},
        {"local", "\"docker\"", "{\"dockerfile\":\"D\"}", 0, STK_PLACE_DOCKER, NULL, NULL},
        {"local", "{\"kubernetes\":{\"image\":\"k:1\"}}", NULL, 0, STK_PLACE_LOCAL, NULL, NULL},
        {"local", "\"kubernetes\"", NULL, 0, STK_PLACE_LOCAL, NULL, "has no stack"},
        {"local", "\"dokcer\"", NULL, STK_E_SPEC, 0, NULL, "unknown backend 'dokcer'"},
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

static const char cluster[] =
    "stacks:\n"
    "  prod:\n"
    "    backend: kubernetes\n"
    "    store: s3://b/p\n"
    "    default_image: hub/base:1\n"
    "    image_map: {hub/: mirror/}\n"
    "    options: {namespace: ml, labels: {team: a}}\n"
    "    resources: {cpu_count: 1, memory: 4GB}\n"
    "    limits: {memory: 400GB}\n"
    "    max_jobs: 50\n"
    "    pending: 5m\n"
    "    pools:\n"
    "      plain: {nodes: 9, holds: {cpu_count: 8, memory: 32GB, gpu_count: 0}, price: 1}\n"
    "      a100: {nodes: 2, holds: {cpu_count: 96, memory: 1TB, gpu_count: 8, gpu_vendor: nvidia,\n"
    "             gpu_class: A100-80GB, gpu_memory: 80GB}, price: 30, options: {node_selector: {g: "
    "a}}}\n"
    "      t4: {holds: {cpu_count: 16, memory: 64GB, gpu_count: 1, gpu_class: T4,\n"
    "           gpu_vendor: nvidia}, price: 2}\n"
    "  other: {backend: docker}\n";

static void test_elsewhere(void **state)
{
    bench *b = *state;
    stk_stack s;
    stk_place place;
    stk_settings settings = {
        .resources = {.cpu_milli = -1,
                      .memory_bytes = -1,
                      .base = {.gpu_count = 1, .gpu_memory_bytes = -1, .gpu_class = "A100"}},
        .backend = "{\"kubernetes\":{\"labels\":{\"x\":\"y\"}}}"};
    assert_int_equal(find(b, cluster, "prod", &s), 0);
    assert_int_equal(s.kind, STK_PLACE_KUBERNETES);
    assert_string_equal(s.carry, "image");
    assert_int_equal(s.max_jobs, 50);
    assert_int_equal(s.pending_ms, 300000);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_KUBERNETES);
    assert_string_equal(place.image, "mirror/base:1");
    assert_string_equal(place.pool->name, "a100");
    assert_int_equal(place.resources->memory_bytes, 4000000000);
    assert_non_null(strstr(place.options, "\"namespace\":\"ml\""));
    assert_non_null(strstr(place.options, "\"node_selector\":{\"g\":\"a\"}"));
    assert_non_null(strstr(place.options, "\"team\":\"a\""));
    assert_non_null(strstr(place.options, "\"x\":\"y\""));
    /* without --with, a step's options select the file's only stack of that backend */
    assert_int_equal(find(b, cluster, NULL, &s), 0);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_string_equal(place.stack->name, "prod");
    /* another stack that the user chose is kept; the options have no effect */
    assert_int_equal(find(b, cluster, "local", &s), 0);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_LOCAL);
    assert_non_null(strstr(place.note, "no effect: 'labels' of kubernetes"));
    /* the step names a stack */
    settings.backend = "\"prod\"";
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_KUBERNETES);
    assert_int_equal(stk_stack_place(place.stack, "t", &settings, b->arena, &place, &b->err), 0);
    assert_string_equal(place.stack->name, "prod"); /* its own stack gives the same place */
    /* resource requests hold on every backend; a note names options of one backend only */
    settings.backend = "{\"kubernetes\":{\"gpu\":1,\"image\":\"i:1\",\"cpu\":\"1\",\"memory\":4}}";
    settings.resources.cpu_milli = 1000;
    settings.resources.memory_bytes = 4000000;
    assert_int_equal(find(b, cluster, "local", &s), 0);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_null(place.note);
    settings.resources.cpu_milli = 500;
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_string_equal(place.note, "step 't' runs on this machine, so these options have no "
                                    "effect: 'cpu' of kubernetes");
    settings.backend = "{\"docker\":{\"read_only\":true},\"stack\":\"prod\"}";
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_KUBERNETES);
    assert_non_null(strstr(place.note, "runs on kubernetes"));
    assert_non_null(strstr(place.note, "'read_only' of docker"));
    settings.backend = "\"batch\"";
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_LOCAL);
    assert_non_null(strstr(place.note, "step 't' asks for batch"));
    /* a step may name a stack that doesn't exist */
    settings.backend = "{\"stack\":\"prod\"}";
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_KUBERNETES);
    settings.backend = "{\"stack\":\"gpu_pool\"}";
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    assert_int_equal(place.kind, STK_PLACE_LOCAL);
    assert_non_null(strstr(place.note, "'gpu_pool', but this project has no such stack"));
    assert_non_null(place.note_many);
}

static void test_without_a_store(void **state)
{
    bench *b = *state;
    stk_stack s;
    stk_place place;
    stk_settings settings = {.docker = "{\"parent_image\":\"x:1\"}"};
    unsetenv("STOKER_SHARE");
    unsetenv("METAFLOW_DATASTORE_SYSROOT_S3");
    assert_int_equal(find(b, "stacks: {}", "kubernetes", &s), 0);
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), STK_E_SPEC);
    assert_non_null(strstr(b->err.text, "no store"));
    assert_non_null(strstr(b->err.hint, "STOKER_SHARE"));
    setenv("METAFLOW_DATASTORE_SYSROOT_S3", "s3://m/f/", 1);
    assert_int_equal(find(b, "stacks: {}", "kubernetes", &s), 0);
    assert_string_equal(s.store, "s3://m/f/stoker");
    setenv("STOKER_SHARE", "/nfs/stoker", 1);
    assert_int_equal(find(b, "stacks: {}", "batch", &s), 0);
    assert_string_equal(s.store, "/nfs/stoker");
    assert_string_equal(s.carry, "store");
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
    settings.docker = NULL;
    assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), STK_E_SPEC);
    assert_non_null(strstr(b->err.text, "names no image"));
    setenv("STOKER_SHARE", "ssh://gpu1/~/store", 1); /* which only this user's ssh reaches */
    static const char *const places[] = {"kubernetes", "batch", "slurm"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        settings.docker = i < 2 ? "{\"parent_image\":\"i\"}" : NULL;
        assert_int_equal(find(b, "stacks: {}", places[i], &s), 0);
        assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err),
                         STK_E_SPEC);
        assert_names(b->err.text, "the store of stack '…' is ssh://gpu1/~/store, which your ssh…");
    }
    unsetenv("STOKER_SHARE");
    unsetenv("METAFLOW_DATASTORE_SYSROOT_S3");
}

/* Metaflow's settings apply where neither stack nor step sets an option, by any of its names. */
static void test_metaflows_settings(void **state)
{
    static const struct {
        const char *variable, *value, *stack, *step, *options;
    } cases[] = {
        {"NAMESPACE", "ml", "", "", "{\"namespace\":\"ml\"}"},
        {"NAMESPACE", "ml", "namespace: own", "", "{\"namespace\":\"own\"}"},
        {"NAMESPACE", "ml", "kubernetes_namespace: own", "", "{\"kubernetes_namespace\":\"own\"}"},
        {"SERVICE_ACCOUNT", "a", "", "\"service_account_name\":\"b\"",
         "{\"service_account_name\":\"b\"}"},
        {"CPU", "2", "", "", "{\"cpu\":\"2\"}"},
        {"IMAGE_PULL_SECRETS", "a,b", "", "", "{\"image_pull_secrets\":[\"a\",\"b\"]}"},
        {"IMAGE_PULL_SECRETS", "[\"a\"]", "", "", "{\"image_pull_secrets\":[\"a\"]}"},
        {"NODE_SELECTOR", "k=v,l=w=x", "", "", "{\"node_selector\":{\"k\":\"v\",\"l\":\"w=x\"}}"},
        {"NODE_SELECTOR", "k=v", "", "\"node_selector\":{\"l\":\"w\"}",
         "{\"node_selector\":{\"l\":\"w\"}}"}, /* the step's replaces it, as in Metaflow … */
        {"LABELS", "k=v,l", "labels: {a: b}", "\"labels\":{\"k\":\"w\"}",
         "{\"labels\":{\"k\":\"w\",\"l\":\"\",\"a\":\"b\"}}"}, /* … while these are added to it */
        {"SECRETS", "a", "", "\"secrets\":[\"b\"]", "{\"secrets\":[\"a\",\"b\"]}"},
        {"SECRETS", "a", "secrets: \"b,c\"", "", "{\"secrets\":[\"a\",\"b\",\"c\"]}"},
        {"TOLERATIONS", "[{\"key\": \"k\"}]", "", "", "{\"tolerations\":[{\"key\":\"k\"}]}"},
    };
    bench *b = *state;
    stk_stack s;
    stk_place place;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char variable[80], file[300], step[200];
        (void)snprintf(variable, sizeof variable, "METAFLOW_KUBERNETES_%s", cases[i].variable);
        (void)snprintf(file, sizeof file, "stacks: {kubernetes: {store: s3://b, options: {%s}}}",
                       cases[i].stack);
        (void)snprintf(step, sizeof step, "{\"kubernetes\":{\"image\":\"i\"%s%s}}",
                       *cases[i].step == '\0' ? "" : ",", cases[i].step);
        setenv(variable, cases[i].value, 1);
        stk_settings settings = {.backend = step};
        assert_int_equal(find(b, file, "kubernetes", &s), 0);
        assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
        stk_json got, wanted;
        static const stk_json_limits limits = {10000, 100, 16};
        assert_int_equal(stk_json_parse(place.options, strlen(place.options), NULL, &limits,
                                        b->arena, &got, &b->err),
                         0);
        assert_int_equal(stk_json_parse(cases[i].options, strlen(cases[i].options), NULL, &limits,
                                        b->arena, &wanted, &b->err),
                         0);
        for (uint32_t k = 0; k < wanted.n; k++) {
            const stk_json *value = stk_json_get(&got, stk_json_key(&wanted, k)->text);
            assert_non_null(value);
            assert_string_equal(stk_json_dump_in(value, b->arena),
                                stk_json_dump_in(stk_json_value(&wanted, k), b->arena));
        }
        assert_int_equal(got.n, wanted.n + 1); /* plus the image */
        unsetenv(variable);
    }
    setenv("METAFLOW_KUBERNETES_TOLERATIONS", "k=v", 1);
    assert_int_equal(find(b, "stacks: {}", "kubernetes", &s), STK_E_SPEC);
    assert_non_null(strstr(b->err.text, "METAFLOW_KUBERNETES_TOLERATIONS"));
    unsetenv("METAFLOW_KUBERNETES_TOLERATIONS");
}

/* Stoker doesn't guess which of two stacks to use. */
static void test_two_of_a_kind(void **state)
{
    bench *b = *state;
    stk_stack s;
    stk_settings asks = {.backend = "\"kubernetes\""};
    stk_place where;
    assert_int_equal(
        find(b, "stacks: {k1: {backend: kubernetes}, k2: {backend: kubernetes}}", NULL, &s), 0);
    assert_int_equal(stk_stack_place(&s, "fit", &asks, b->arena, &where, &b->err), 0);
    assert_int_equal(where.kind, STK_PLACE_LOCAL);
    assert_non_null(strstr(where.note, "several stacks with that backend ('k1', 'k2')"));
}

static void test_metaflows_images(void **state)
{
    bench *b = *state;
    stk_stack s;
    setenv("METAFLOW_DEFAULT_CONTAINER_IMAGE", "of-all:1", 1);
    setenv("METAFLOW_DEFAULT_CONTAINER_REGISTRY", "reg.x:5000/", 1);
    assert_int_equal(find(b, "stacks: {}", "batch", &s), 0);
    assert_string_equal(s.default_image, "of-all:1");
    assert_string_equal(stk_stack_map(&s, s.default_image, b->arena), "reg.x:5000/of-all:1");
    assert_string_equal(stk_stack_map(&s, "a/b:1.2", b->arena), "reg.x:5000/a/b:1.2");
    assert_string_equal(stk_stack_map(&s, "ghcr.io/a/b", b->arena), "ghcr.io/a/b");
    assert_string_equal(stk_stack_map(&s, "localhost/a", b->arena), "localhost/a");
    setenv("METAFLOW_BATCH_CONTAINER_IMAGE", "of-batch:1", 1);
    assert_int_equal(find(b, "stacks: {}", "batch", &s), 0);
    assert_string_equal(s.default_image, "of-batch:1");
    assert_int_equal(find(b, "stacks: {k: {backend: kubernetes, default_image: own}}", "k", &s), 0);
    assert_string_equal(s.default_image, "own");
    assert_int_equal(find(b, "stacks: {}", "docker", &s), 0); /* Metaflow's image: remote only */
    assert_true(s.default_image == NULL && s.image_registry == NULL);
    unsetenv("METAFLOW_DEFAULT_CONTAINER_IMAGE");
    unsetenv("METAFLOW_DEFAULT_CONTAINER_REGISTRY");
    unsetenv("METAFLOW_BATCH_CONTAINER_IMAGE");
}

static void test_fit(void **state)
{
    static const struct {
        int64_t cpu_milli, memory_bytes, gpus, nodes;
        const char *class, *pool, *words;
    } cases[] = {
        {-1, -1, -1, 1, NULL, "plain", NULL}, /* not a pool with devices */
        {16000, -1, 0, 1, NULL, "t4", NULL},  /* unless only such a pool is large enough */
        {-1, -1, 1, 1, NULL, "t4", NULL},     /* the cheapest pool with devices */
        {-1, -1, 1, 1, "A100", "a100", NULL},
        {-1, -1, -1, 1, "A100", "a100", NULL}, /* a class without a count means one */
        {-1, -1, 0, 1, "A100", "plain", NULL},
        {-1, -1, -1, 1, "Trainium", NULL, "a Trainium, it has"},
        {-1, -1, 8, 2, NULL, "a100", NULL},
        {-1, -1, 8, 3, NULL, NULL, "3 nodes of 2"},
        {-1, -1, 9, 1, NULL, NULL, "9 devices of 8"},
        {-1, -1, 1, 1, "H100", NULL, "a H100, it has"},
        {200000, -1, 0, 1, NULL, NULL, "200 CPUs of"},
        {-1, 500000000000, 0, 1, NULL, NULL, "allows: 500 GB of memory (it has 400 GB)"},
    };
    bench *b = *state;
    stk_stack s;
    assert_int_equal(find(b, cluster, "prod", &s), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const stk_pool *pool = NULL;
        const stk_resources r = {.cpu_milli = cases[i].cpu_milli,
                                 .memory_bytes = cases[i].memory_bytes,
                                 .base = {.gpu_count = cases[i].gpus,
                                          .gpu_memory_bytes = -1,
                                          .gpu_class = cases[i].class}};
        int rc = stk_stack_fit(&s, "t", &r, cases[i].nodes, b->arena, &pool, &b->err);
        assert_int_equal(rc, cases[i].words == NULL ? 0 : STK_E_RESOURCES);
        if (cases[i].words == NULL) {
            assert_string_equal(pool->name, cases[i].pool);
        } else if (strstr(b->err.text, cases[i].words) == NULL) {
            fail_msg("%s: %s", cases[i].words, b->err.text);
        }
    }
}

/* A stack's requests for devices apply to steps that make none. */
static void test_asked(void **state)
{
    static const struct {
        const char *stack;
        int64_t count;
        const char *class, *vendor;
        const char *asks; /* "2 x A100/nvidia" */
    } cases[] = {
        {"", -1, NULL, NULL, ""},
        {"resources: {gpu_count: 2}", -1, NULL, NULL, "2 x */*"},
        {"resources: {gpu_count: 2}", 0, NULL, NULL, ""},
        {"resources: {gpu_count: 2}", -1, "A100", NULL, "1 x A100/nvidia"}, /* its own class */
        {"resources: {gpu_class: T4}", -1, NULL, NULL, "1 x T4/nvidia"},
        {"resources: {gpu_class: T4}", 2, NULL, NULL, "2 x T4/nvidia"},
        {"resources: {gpu_class: T4}", 2, NULL, "amd", "2 x */amd"},
        {"resources: {gpu_class: T4, gpu_count: 4}", 0, NULL, NULL, ""},
        {"resources: {gpu_memory: 10GB}", -1, NULL, NULL, "1 x */*+10000000000"},
        {"resources: {gpu_memory: 10GB}", 2, NULL, NULL, "2 x */*"},
        {"options: {gpu: 2}", -1, NULL, NULL, "2 x */*"},
        {"options: {gpu: 2}", 0, NULL, NULL, ""},
        {"options: {gpu: 2}", 4, "A100", NULL, "4 x A100/nvidia"},
        {"options: {gpu_vendor: amd}", -1, NULL, NULL, ""},
        {"options: {gpu_vendor: amd}", -1, "Trainium", NULL, "1 x Trainium/aws"},
        {"pools: {p: {options: {trainium: 1}}}", -1, NULL, NULL, "1 x */aws"},
    };
    bench *b = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400], got[100] = "";
        stk_stack s;
        stk_place place;
        stk_alternative all[STK_LIMIT_ASKS];
        const stk_settings settings = {.resources = {.cpu_milli = -1,
                                                     .memory_bytes = -1,
                                                     .base = {.gpu_count = cases[i].count,
                                                              .gpu_memory_bytes = -1,
                                                              .gpu_class = cases[i].class,
                                                              .gpu_vendor = cases[i].vendor}}};
        (void)snprintf(text, sizeof text,
                       "stacks:\n  k:\n    backend: kubernetes\n    store: s3://b/p\n"
                       "    default_image: i:1\n    %s\n",
                       cases[i].stack);
        assert_int_equal(find(b, text, "k", &s), 0);
        assert_int_equal(stk_stack_place(&s, "t", &settings, b->arena, &place, &b->err), 0);
        if (stk_spec_alternatives(place.resources, all) > 0) {
            const char *vendor = stk_spec_vendor_of(&all[0]);
            int n = snprintf(got, sizeof got, "%lld x %s/%s", (long long)all[0].gpu_count,
                             all[0].gpu_class != NULL ? all[0].gpu_class : "*",
                             vendor != NULL ? vendor : "*");
            if (all[0].gpu_memory_bytes != -1) {
                (void)snprintf(got + n, sizeof got - (size_t)n, "+%lld",
                               (long long)all[0].gpu_memory_bytes);
            }
        }
        assert_string_equal(got, cases[i].asks);
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

/* How long a job may wait, where the file doesn't say. */
static void test_pending(void **state)
{
    bench *b = *state;
    stk_stack s;
    assert_int_equal(find(b, "stacks: {cl: {backend: slurm, store: /s}}", "cl", &s), 0);
    assert_int_equal(s.pending_ms, 0);
    assert_int_equal(find(b, "stacks: {k: {backend: kubernetes, store: /s}}", "k", &s), 0);
    assert_int_equal(s.pending_ms, 1800000);
}

/* Options behind a stack's name come before those of its file. */
static void test_given(void **state)
{
    static const char lab[] = "stacks: {lab: {backend: ssh, hosts: [a, b], options: {gpu: 1}},"
                              " odd:x: {backend: local}, cl: {backend: slurm, store: /s}}";
    static const struct given {
        const char *name, *options, *store;
    } cases[] = {
        {"lab:host=b", "{\"gpu\":1,\"hosts\":[\"a\",\"b\"],\"host\":\"b\"}",
         "ssh://a/~/.local/share/stoker"},
        {"ssh: gpu = 2", "{\"gpu\":2,\"hosts\":[\"a\",\"b\"]}", "ssh://a/~/.local/share/stoker"},
        {"lab:hosts=c", "{\"gpu\":1,\"hosts\":\"c\"}", "ssh://c/~/.local/share/stoker"},
        {"ssh:hosts=[\"c\"]", "{\"hosts\":[\"c\"]}", "ssh://c/~/.local/share/stoker"},
        {"cl:partition=a,b,exclusive=true,constraint=[x|y]",
         "{\"partition\":\"a,b\",\"exclusive\":true,\"constraint\":\"[x|y]\"}", "/s"},
    };
    static const char *const wrong[][2] = {{"lab:", "sets no option"},
                                           {"lab:host", "'host' sets no option"},
                                           {"docker:x=1", "has no options"},
                                           {"lab:hosts=3", "'hosts' must be a list of hosts"},
                                           {"lab:hosts=[]", "has no host in `hosts`"},
                                           {"nix:x=1", "unknown stack 'nix'"}};
    bench *b = *state;
    stk_stack s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(find(b, lab, cases[i].name, &s), 0);
        assert_string_equal(s.options, cases[i].options);
        assert_string_equal(s.store, cases[i].store);
    }
    assert_int_equal(find(b, lab, "odd:x", &s), 0);
    assert_string_equal(s.name, "odd:x");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_true(find(b, lab, wrong[i][0], &s) < 0);
        assert_non_null(strstr(b->err.text, wrong[i][1]));
    }
    /* the only host needs no list */
    assert_int_equal(find(b, "stacks: {}", "ssh:host=b", &s), 0);
    assert_string_equal(s.options, "{\"host\":\"b\",\"hosts\":[\"b\"]}");
    assert_string_equal(s.store, "ssh://b/~/.local/share/stoker");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pending, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_map_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mistakes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sources, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_elsewhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_a_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_of_a_kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_metaflows_settings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_metaflows_images, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fit, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
