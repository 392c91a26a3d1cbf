#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/testing.h"
#include "model/plan/plan.h"

#define D1 "1111111111111111111111111111111111111111111111111111111111111111"
#define D2 "2222222222222222222222222222222222222222222222222222222222222222"

/* Every field that goes into a key, so that a case can change one. */
typedef struct variant {
    const char *folder, *top, *step, *digest, *file, *lr, *image, *how;
} variant;

static const variant plain = {
    "/p",
    "parameters: {lr: 0.1}",
    "run: ./train --fast, cwd: sub, outputs: {b: {type: json}, a: }, code: "
    "{f: d1}, environment: {X: x, A: a}, docker: {parent_image: i}, "
    "inputs: {d: {from: s.o}, lr: {param: lr}, n: 5, t: {file: t.csv}}, "
    "cache: {files: [f.txt], salt: z}",
    D1,
    D1,
    NULL};

static void key_of(const variant *v, stk_arena *arena, stk_key *ret_key)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    stk_buf_printf(
        &text,
        "stoker: 1\nname: p\n%s\norigin: {cwd: %s, python: 3.11.2}\nsteps:\n  s: {run: x, "
        "outputs: [o]}\n  t: {%s}\n",
        v->top, v->folder, v->step);
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    stk_err err = {0};
    char message[1200];
    const char *digests[] = {v->digest, NULL, NULL, v->digest};
    int rc = stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.yaml"}, &spec, &err);
    rc = rc < 0 || v->lr == NULL ? rc : stk_spec_set_param(spec, "lr", v->lr, &err);
    rc = rc < 0 ? rc : stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, &err);
    rc = rc < 0 || v->image == NULL ? rc : stk_plan_set_image(plan, 1, v->image, v->how, &err);
    rc = rc < 0 ? rc : stk_plan_key(plan, 1, digests, &v->file, arena, ret_key, &err);
    if (rc < 0) {
        fail_msg("%s", stk_err_format(&err, message, sizeof message));
    }
    /* The key outlives its plan only as text. */
    const char *json = stk_plan_key_json(ret_key, arena);
    assert_non_null(json);
    for (uint32_t i = 0; i < ret_key->n_parts; i++) {
        ret_key->parts[i].name = stk_arena_dup(arena, ret_key->parts[i].name);
        ret_key->parts[i].value = stk_arena_dup(arena, ret_key->parts[i].value);
    }
    stk_plan_free(plan);
    stk_spec_free(spec);
}

/* `stoker run m.py` and `stoker run m.py:pipeline` share their cache; a module of another file has
 * its own. */
static void test_own_file(void **state)
{
    (void)state;
    static const struct {
        const char *cwd_and_file, *step, *command;
    } cases[] = {
        {"/p, file: /p/m.py", "python: 'm:f'", "python __main__:f"},
        {"/p, file: m.py", "python: 'm:f'", "python __main__:f"},
        {"/p, file: /p/m.py", "python: '__main__:f'", "python __main__:f"},
        {"/p, file: /p/m.py", "python: 'p.m:f'", "python p.m:f"},
        {"/p, file: /p/my.py", "python: 'm:f'", "python m:f"},
        {"/p, file: /p/m.py.py", "python: 'm:f'", "python m:f"},
        {"/p", "python: 'm:f'", "python m:f"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_key key;
        variant v = plain;
        v.folder = cases[i].cwd_and_file;
        v.step = cases[i].step;
        key_of(&v, arena, &key);
        assert_string_equal(key.parts[0].name, "command");
        assert_string_equal(key.parts[0].value, cases[i].command);
    }
}

static void test_parts(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key key;
    key_of(&plain, arena, &key);
    assert_string_equal(
        stk_plan_key_json(&key, arena),
        "{\"command\":\"[\\\"/bin/sh\\\",\\\"-c\\\",\\\"./train --fast\\\"]\",\"step\":\"t\","
        "\"cwd\":\"sub\","
        "\"code:f\":\"d1\",\"input:d\":\"" D1 "\",\"param:lr\":\"0.1\",\"param:n\":\"5\","
        "\"input:t\":\"" D1 "\",\"file:f.txt\":\"" D1 "\","
        "\"env:A\":\"sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\","
        "\"env:X\":\"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\","
        "\"outputs\":\"a b=\\\"json\\\"\",\"image\":\"{\\\"parent_image\\\":\\\"i\\\"}\","
        "\"salt\":\"z\"}");
    variant python = plain;
    python.step = "python: 'm:f', inputs: {d: {from: s.o}}";
    key_of(&python, arena, &key);
    assert_string_equal(stk_plan_key_json(&key, arena),
                        "{\"command\":\"python m:f\",\"input:d\":\"" D1 "\",\"outputs\":\"\","
                        "\"runtime\":\"3.11.2\"}");
}

/* Which changes change the key, and how Stoker explains the cache miss. */
static void test_changes(void **state)
{
    (void)state;
    static const struct {
        variant changed;       /* NULL: same as in plain */
        const char *from, *to; /* in the step's text */
        const char *miss;      /* NULL: still a hit */
    } cases[] = {
        {{.folder = "/elsewhere"}, "", "", NULL},
        {{0}, "cwd: sub", "cwd: sub, resources: {gpu_count: 1, cpu_count: 7}", NULL},
        {{0}, "cwd: sub", "cwd: sub, timeout: 5, retry: {max_retries: 3}, tags: [x]", NULL},
        {{0}, "{X: x, A: a}", "{A: a, X: x}", NULL},
        {{0}, "{b: {type: json}, a: }", "{a: , b: {type: json}}", NULL},
        {{.lr = "0.10"}, "", "", NULL},
        {{.lr = "0.2"}, "", "", "parameter lr changed from 0.1 to 0.2"},
        {{0}, "n: 5", "n: 6", "parameter n changed from 5 to 6"},
        {{0}, "--fast", "--slow", "command changed"},
        {{0}, "cwd: sub", "cwd: other", "working directory changed from sub to other"},
        {{0}, "{f: d1}", "{f: d2}", "code of 'f' changed"},
        {{0}, "{f: d1}", "{f: d1, g: d3}", "code of 'g' is new"},
        {{0}, "{f: d1}", "{}", "code of 'f' is gone"},
        {{.digest = D2}, "", "", "input 'd' changed, input 't' changed"},
        {{.file = D2}, "", "", "file 'f.txt' changed"},
        {{0}, "X: x", "X: y", "environment variable X changed"},
        {{0}, "type: json", "type: text", "list of outputs changed"},
        {{0}, "parent_image: i", "parent_image: j", "image changed"},
        {{.image = "sha256:" D1}, "", "", "image changed"},
        {{0}, "salt: z", "salt: y", "cache salt changed"},
        {{.digest = D2, .file = D2, .lr = "1"},
         "n: 5",
         "n: 7",
         "input 'd' changed, parameter lr changed from 0.1 to 1.0, parameter n changed from 5 to 7 "
         "and 2 more changes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_key before;
        stk_key now;
        variant v = plain;
        v.folder = cases[i].changed.folder != NULL ? cases[i].changed.folder : v.folder;
        v.digest = cases[i].changed.digest != NULL ? cases[i].changed.digest : v.digest;
        v.file = cases[i].changed.file != NULL ? cases[i].changed.file : v.file;
        v.lr = cases[i].changed.lr;
        v.image = cases[i].changed.image;
        const char *at = strstr(v.step, cases[i].from);
        assert_non_null(at);
        v.step = stk_arena_printf(arena, "%.*s%s%s", (int)(at - v.step), v.step, cases[i].to,
                                  at + strlen(cases[i].from));
        key_of(&plain, arena, &before);
        key_of(&v, arena, &now);
        const char *miss = stk_plan_miss(&now, stk_plan_key_json(&before, arena), arena);
        if (cases[i].miss == NULL) {
            assert_string_equal(now.hex, before.hex);
            assert_string_equal(miss, "its stored result has expired or was removed");
        } else {
            assert_string_not_equal(now.hex, before.hex);
            assert_string_equal(miss, cases[i].miss);
        }
    }
}

/* The key of a step in an image has the image's id, not its name or this machine's Python. */
static void test_image(void **state)
{
    (void)state;
    static const char *const steps[] = {"python: \"m:f\", docker: {parent_image: i}",
                                        "python: \"m:f\", docker: {parent_image: j}",
                                        "python: \"m:f\""};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key first, other;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        variant v = plain;
        v.step = steps[i];
        v.image = "sha256:" D1;
        key_of(&v, arena, i == 0 ? &first : &other);
        assert_string_equal(i == 0 ? first.hex : other.hex, first.hex);
        for (uint32_t k = 0; k < first.n_parts; k++) {
            assert_string_not_equal(first.parts[k].name, "runtime");
        }
        v.how = "{\"user\":\"1\"}";
        key_of(&v, arena, &other);
        assert_string_equal(stk_plan_miss(&other, stk_plan_key_json(&first, arena), arena),
                            "configuration of its container is new");
        v.how = NULL;
        v.image = "sha256:" D2;
        key_of(&v, arena, &other);
        assert_string_equal(stk_plan_miss(&other, stk_plan_key_json(&first, arena), arena),
                            "image changed");
    }
}

static void test_ignored_inputs(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key one;
    stk_key two;
    variant v = plain;
    v.step = "run: x, inputs: {d: {from: s.o}, n: 1, k: 2, t: {file: f}}, cache: {ignore_inputs: "
             "[d, n, t]}";
    key_of(&v, arena, &one);
    v.digest = NULL;
    v.step = "run: x, inputs: {d: {from: s.o}, n: 2, k: 2, t: {file: g}}, cache: {ignore_inputs: "
             "[d, n, t]}";
    key_of(&v, arena, &two);
    assert_string_equal(one.hex, two.hex);
    v.step = "run: x, inputs: {d: {from: s.o}, n: 2, k: 3, t: {file: g}}, cache: {ignore_inputs: "
             "[d, n, t]}";
    key_of(&v, arena, &two);
    assert_string_not_equal(one.hex, two.hex);
}

/* The key keeps long values as digests; different steps never get the same text. */
static void test_long_values(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key one;
    stk_key two;
    char step[2000];
    char text[700];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    variant v = plain;
    (void)snprintf(step, sizeof step, "run: %s1", text);
    v.step = step;
    key_of(&v, arena, &one);
    (void)snprintf(step, sizeof step, "run: %s2", text);
    key_of(&v, arena, &two);
    assert_int_equal(strncmp(one.parts[0].value, "sha256:", 7), 0);
    assert_string_not_equal(one.hex, two.hex);
    assert_string_equal(stk_plan_miss(&two, stk_plan_key_json(&one, arena), arena),
                        "command changed");
}

/* The user of a Python step never sees its command, so the miss names its function. */
static void test_another_function(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key one, two;
    variant v = plain;
    v.step = "python: 'm:f'";
    key_of(&v, arena, &one);
    v.step = "python: 'm:g'";
    key_of(&v, arena, &two);
    assert_string_equal(stk_plan_miss(&two, stk_plan_key_json(&one, arena), arena),
                        "function changed from m:f to m:g");
}

static void test_missing(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_key key;
    key_of(&plain, arena, &key);
    assert_string_equal(stk_plan_miss(&key, NULL, arena), "never ran before");
    assert_string_equal(stk_plan_miss(&key, "{\"a\"", arena), "its stored cache key can't be read");
    assert_string_equal(stk_plan_miss(&key, "[]", arena), "its stored cache key can't be read");
    assert_string_equal(stk_plan_miss(&key, "{\"a\":1}", arena),
                        "command is new, name of the step is new, working directory is new and 12 "
                        "more changes");
}

static void test_list_digest(void **state)
{
    (void)state;
    const char *ab[] = {D1, D2};
    const char *ba[] = {D2, D1};
    char one[STK_DIGEST_HEX + 1];
    char two[STK_DIGEST_HEX + 1];
    char none[STK_DIGEST_HEX + 1];
    stk_plan_list_digest(ab, 2, one);
    stk_plan_list_digest(ba, 2, two);
    stk_plan_list_digest(NULL, 0, none);
    assert_string_not_equal(one, two);
    /* printf 'stoker-list-1\n' | sha256sum */
    assert_string_equal(none, "586f62c34409b6c825abff0fe5f14c02b73f39311abecc30ec0d2e91c43d7446");
}

static void test_errors(void **state)
{
    (void)state;
    static const char text[] = "stoker: 1\nname: p\nparameters: {n: {type: int}}\nsteps:\n"
                               "  a: {run: x, outputs: [o], inputs: {n: {param: n}}}\n"
                               "  b: {run: x, inputs: {i: {from: a.o}}}\n";
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    stk_key key;
    stk_err err = {0};
    assert_int_equal(stk_spec_parse(text, sizeof text - 1, &(stk_spec_place){0}, &spec, NULL), 0);
    assert_int_equal(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, NULL), 0);
    assert_int_equal(stk_plan_key(plan, 0, NULL, NULL, arena, &key, &err), STK_E_USAGE);
    assert_string_equal(err.text, "step 'a': parameter 'n' has no value yet");
    assert_int_equal(stk_plan_key(plan, 1, NULL, NULL, arena, &key, &err), STK_E_BUG);
    assert_string_equal(err.text, "step 'b': input 'i' has no digest yet");
    stk_plan_free(plan);
    stk_spec_free(spec);
}

/* A task of a graph that grows: its key includes `next` and everything that the task sees. */
static void test_seeing(void **state)
{
    (void)state;
    static const struct {
        const char *next;
        stk_pair seen[3];
        uint32_t n_seen;
        const char *why; /* compared with the first case */
    } cases[] = {
        {"next: b, foreach: xs",
         {{"artifact:x", D1}, {"item", D1}, {"index", "0"}},
         3,
         "its stored result has expired or was removed"},
        {"next: b, foreach: xs",
         {{"index", "0"}, {"item", D1}, {"artifact:x", D1}},
         3,
         "its stored result has expired or was removed"},
        {"next: b, foreach: ys",
         {{"artifact:x", D1}, {"item", D1}, {"index", "0"}},
         3,
         "list of next steps changed"},
        {"next: b, foreach: xs",
         {{"artifact:x", D2}, {"item", D1}, {"index", "0"}},
         3,
         "artifact 'x' changed"},
        {"next: b, foreach: xs",
         {{"artifact:x", D1}, {"item", D2}, {"index", "1"}},
         3,
         "position in the foreach changed from 0 to 1, item of the foreach changed"},
        {"next: b, foreach: xs",
         {{"item", D1}, {"index", "0"}, {"joined", D1}},
         3,
         "set of branches that it joins is new, artifact 'x' is gone"},
    };
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *first = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        stk_spec *spec = NULL;
        stk_plan *plan = NULL;
        stk_err err = {0};
        stk_key key;
        (void)snprintf(text, sizeof text,
                       "stoker: 1\nname: p\nsteps:\n  a: {python: 'm:f', %s}\n  b: {run: x, next: "
                       "j}\n  j: {run: x, join: true}\n",
                       cases[i].next);
        assert_return_code(
            stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err),
            0);
        assert_return_code(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, &err), 0);
        assert_return_code(stk_plan_key_seeing(plan, 0, NULL, NULL, cases[i].seen, cases[i].n_seen,
                                               arena, &key, &err),
                           0);
        if (i == 0) {
            first = stk_plan_key_json(&key, arena);
        }
        assert_string_equal(stk_plan_miss(&key, first, arena), cases[i].why);
        stk_plan_free(plan);
        stk_spec_free(spec);
    }
}

/* Keys that an earlier Stoker (commit c5795f5) made: they must still find its stored results. */
static void test_keys_of_former_versions(void **state)
{
    static const struct {
        const char *text;
        const char *keys[16]; /* first 16 digits: each step's, then the same in an image */
    } docs[] = {
        {"stoker: 1\nname: p\nparameters: {lr: 0.10, n: 5, e: 1e3, t: \"a\\r\\tb\\u00e9\\u007f\", "
         "l: [1, 2.50, null, true, {k: v}], f: {type: float, default: 1}}\n"
         "environment: {A: '1', B: x}\norigin: {cwd: /w, python: 3.11.2, file: /w/m.py}\nsteps:\n"
         "  a: {run: 'echo \"hi\" \\ > x', outputs: [o, b]}\n"
         "  b: {run: [python, t.py, 1, 2.0], cwd: sub, outputs: {z: {type: json}, y: }, code: {f: "
         "d1, e: d2}, environment: {C: 1.50, D: true},\n"
         "      inputs: {d: {from: a.o}, lr: {param: lr}, n: 5, big: "
         "123456789012345678901234567890, t: {file: t.csv}, v: {value: {x: [1.0, 1e5, "
         "\"\\r\\n\\b\"]}}, e: {param: e}, tt: {param: t}, l: {param: l}, f: {param: f}},\n"
         "      cache: {files: [f.txt], salt: z}}\n"
         "  c: {python: 'm:f', inputs: {x: {from: [a.o, a.b]}}, outputs: [q], gang: {ranks: 2, "
         "nodes: 2}, docker: {parent_image: i}}\n"
         "  d: {python: 'other:g', cache: {ignore_inputs: [k]}, inputs: {k: 1, j: 2, art: "
         "{artifact: d111111111111111111111111111111111111111111111111111111111111111, format: "
         "npy, meta: {a: 1.50}}}, gang: {ranks: gpus}}\n",
         {"705fd8c91277356a", "a620b5bbecfc06d6", "6d7875389d4fd1db", "06d41176d2ac44b3",
          "d79fadb20b25d6d7", "970569b3fa672769", "2c4aa8cd6964f2e3", "7fd81144d42244a0"}},
        {"stoker: 1\nname: g\norigin: {cwd: /w, python: 3.11.2}\ncache: true\nsteps:\n"
         "  start: {python: 'm:s', outputs: [items], next: [body], foreach: items}\n"
         "  body: {python: 'm:b', inputs: {i: {item: true}}, outputs: [r], next: [done]}\n"
         "  done: {python: 'm:d', join: true, next: [w]}\n"
         "  w: {python: 'm:w', outputs: [c], switch: c, cases: {a: x, b: y}}\n"
         "  x: {python: 'm:x'}\n  y: {python: 'm:y'}\n",
         {"fe0d01ac38067872", "4ca964609ba12e30", "09e92043c070f696", "a8b83c2d87a9653a",
          "27ca83ad360fe296", "da136842c6bf47bf", "a2f89cc9fa680e17", "756079d9129e65f6",
          "3729c641422cadb2", "772a43587df3dd37", "f5d2102ad6e11bfb", "f0d9298e2b73b61b"}},
        {"{\"stoker\": 1, \"name\": \"j\", \"origin\": {\"cwd\": \"/w\"}, \"parameters\": {\"p\": "
         "1.10, \"q\": -0, \"r\": 1E5, \"s\": \"\\u2028\\ud83d\\ude00\\/\"}, \"steps\": {\"a\": "
         "{\"run\": \"x\", \"inputs\": {\"p\": {\"param\": \"p\"}, \"q\": {\"param\": \"q\"}, "
         "\"r\": {\"param\": \"r\"}, \"s\": {\"param\": \"s\"}, \"long\": "
         "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}"
         ", \"cache\": {\"expires\": \"2h\"}, \"environment\": {\"N\": 1e-7}}}}",
         {"39dca0ea7af578f5", "2813be5d5d488af6"}}};
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *given[16];
    for (int i = 0; i < 16; i++) {
        given[i] = D1;
    }
    for (size_t i = 0; i < sizeof docs / sizeof *docs; i++) {
        stk_spec *spec = NULL;
        stk_plan *plan = NULL;
        stk_key key;
        assert_int_equal(stk_spec_parse(docs[i].text, strlen(docs[i].text),
                                        &(stk_spec_place){.path = "p.yaml"}, &spec, NULL),
                         0);
        assert_int_equal(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, NULL), 0);
        for (uint32_t k = 0; k < 2 * stk_spec_n_steps(spec); k++) {
            if (k % 2 == 1) {
                assert_int_equal(
                    stk_plan_set_image(plan, k / 2, "sha256:abc", "{\"user\":1}", NULL), 0);
            }
            assert_int_equal(stk_plan_key(plan, k / 2, given, given, arena, &key, NULL), 0);
            assert_memory_equal(key.hex, docs[i].keys[k], 16);
        }
        stk_plan_free(plan);
        stk_spec_free(spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys_of_former_versions),
                                       cmocka_unit_test(test_own_file),
                                       cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_changes),
                                       cmocka_unit_test(test_image),
                                       cmocka_unit_test(test_ignored_inputs),
                                       cmocka_unit_test(test_long_values),
                                       cmocka_unit_test(test_another_function),
                                       cmocka_unit_test(test_missing),
                                       cmocka_unit_test(test_list_digest),
                                       cmocka_unit_test(test_seeing),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
