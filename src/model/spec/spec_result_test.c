#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/testing.h"
#include "model/spec/spec_result.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OK "{\"stoker\":1,\"status\":\"ok\""
#define OUT(fields) OK ",\"outputs\":{\"m\":{" fields "}}}"

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *expected;
    } cases[] = {
        {"", STK_E_SPEC,
         "r.json:1: not valid JSON: expected a value, found the end of the document"},
        {"[]", STK_E_SPEC, "r.json:1: a result must be a mapping, not a list"},
        {"{}", STK_E_SPEC, "r.json:1: the version of the format is missing: add \"stoker\": 1"},
        {"{\"stoker\":2}", STK_E_VERSION,
         "r.json:1: the result has format 2, but this Stoker reads format 1; upgrade Stoker"},
        {"{\"stoker\":1}", STK_E_SPEC, "r.json:1: 'status' is missing: ok or failed"},
        {"{\"stoker\":1,\n\"status\":\"good\"}", STK_E_SPEC,
         "r.json:2: 'status' must be ok or failed, not 'good'"},
        {OK ",\"metdata\":{}}", STK_E_SPEC,
         "r.json:1: unknown key 'metdata'; did you mean 'metadata'?"},
        {OK ",\"outputs\":[]}", STK_E_SPEC, "r.json:1: 'outputs' must be a mapping, not a list"},
        {OK ",\"outputs\":{\"../m\":{\"value\":1}}}", STK_E_SPEC,
         "r.json:1: output '../m': a name is made of letters, digits and _ . -"},
        {OUT(""), STK_E_SPEC,
         "r.json:1: output 'm' needs exactly one of 'path', 'value' and 'artifact'"},
        {OUT("\"path\":\"out/m\",\"value\":1"), STK_E_SPEC,
         "r.json:1: output 'm' needs exactly one of 'path', 'value' and 'artifact'"},
        {OUT("\"path\":\"/etc/passwd\""), STK_E_SPEC,
         "r.json:1: output 'm': path '/etc/passwd' must be relative to the task's directory and "
         "stay inside it, like out/m"},
        {OUT("\"path\":\"out/../../x\""), STK_E_SPEC,
         "r.json:1: output 'm': path 'out/../../x' must be relative to the task's directory and "
         "stay inside it, like out/m"},
        {OUT("\"path\":\"..\""), STK_E_SPEC,
         "r.json:1: output 'm': path '..' must be relative to the task's directory and stay inside "
         "it, like out/m"},
        {OUT("\"path\":\"./m\""), STK_E_SPEC,
         "r.json:1: output 'm': path './m' must be relative to the task's directory and stay "
         "inside it, like out/m"},
        {OUT("\"path\":\"out//m\""), STK_E_SPEC,
         "r.json:1: output 'm': path 'out//m' must be relative to the task's directory and stay "
         "inside it, like out/m"},
        {OUT("\"path\":\"out/\""), STK_E_SPEC,
         "r.json:1: output 'm': path 'out/' must be relative to the task's directory and stay "
         "inside it, like out/m"},
        {OUT("\"path\":\"\""), STK_E_SPEC,
         "r.json:1: 'path' must be a path of at most 4000 bytes, not ''"},
        {OUT("\"path\":\"a\\u0000b\""), STK_E_SPEC, "r.json:1: 'path' holds a NUL byte"},
        {OUT("\"path\":5"), STK_E_SPEC,
         "r.json:1: 'path' must be a path of at most 4000 bytes, not 5"},
        {OUT("\"value\":1,\"digest\":\"ABC\""), STK_E_SPEC,
         "r.json:1: 'digest' must be 64 lower-case hex digits, not 'ABC'"},
        {OUT("\"value\":1,\"meta\":[]"), STK_E_SPEC,
         "r.json:1: 'meta' must be a mapping, not a list"},
        {OUT("\"value\":1,\"formt\":\"x\""), STK_E_SPEC,
         "r.json:1: unknown key 'formt' in 'm'; did you mean 'format'?"},
        {OK ",\"output_tags\":{\"m\":[\"x\"]}}", STK_E_SPEC,
         "r.json:1: 'output_tags' names 'm', which isn't an output"},
        {OUT("\"artifact\":\"ab\""), STK_E_SPEC,
         "r.json:1: 'artifact' must be 64 lower-case hex digits, not 'ab'"},
        {OUT("\"artifact\":\"" HEX "\",\"value\":1"), STK_E_SPEC,
         "r.json:1: output 'm' needs exactly one of 'path', 'value' and 'artifact'"},
        {OK ",\"dropped\":[\"a/b\"]}", STK_E_SPEC,
         "r.json:1: output 'a/b': a name is made of letters, digits and _ . -"},
        {OK ",\"inputs\":{\"x\":\"ab\"}}", STK_E_SPEC,
         "r.json:1: 'digest' must be 64 lower-case hex digits, not 'ab'"},
        {OK ",\"next\":{\"n\":-1}}", STK_E_SPEC,
         "r.json:1: 'next.n' is -1; it must be between 0 and 2147483647"},
        {OK ",\"next\":{\"step\":[]}}", STK_E_SPEC,
         "r.json:1: unknown key 'step' in 'next'; did you mean 'steps'?"},
        {OK ",\"next\":{\"items\":{\"path\":\"/x\"}}}", STK_E_SPEC,
         "r.json:1: output 'next.items': path '/x' must be relative to the task's directory and "
         "stay inside it, like out/next.items"},
        {OK ",\"metadata\":5}", STK_E_SPEC, "r.json:1: 'metadata' must be a mapping, not 5"},
        {OK ",\"seen\":{\"/a\":\"xyz\"}}", STK_E_SPEC,
         "r.json:1: 'digest' must be 64 lower-case hex digits, not 'xyz'"},
        {OK ",\"seen\":{\"@a\":5}}", STK_E_SPEC,
         "r.json:1: 'digest' must be 64 lower-case hex digits, not 5"},
        {OK ",\"warnings\":\"w\"}", STK_E_SPEC,
         "r.json:1: 'warnings' must be a list of strings, not 'w'"},
        {"{\"stoker\":1,\"status\":\"failed\",\"error\":{\"class\":\"timeout\"}}", STK_E_SPEC,
         "r.json:1: 'error.class' must be exception, import, serialize, load, device_oom, "
         "resources, usage or preempted, or for a gang exit, signal, hang, lost, store or start, "
         "not 'timeout'"},
        {"{\"stoker\":1,\"status\":\"failed\",\"error\":\"no\"}", STK_E_SPEC,
         "r.json:1: 'error' must be a mapping, not 'no'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_result result = {.n_outputs = 77};
        stk_err err = {0};
        char message[1200];
        int rc =
            stk_result_parse(cases[i].text, strlen(cases[i].text), "r.json", arena, &result, &err);
        assert_string_equal(stk_err_format(&err, message, sizeof message), cases[i].expected);
        assert_int_equal(rc, cases[i].code);
        assert_int_equal(result.n_outputs, 77); /* written only on success */
    }
}

static void parse(const char *text, stk_arena *arena, stk_result *ret_result)
{
    stk_err err = {0};
    if (stk_result_parse(text, strlen(text), "r.json", arena, ret_result, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void test_everything(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_result r;
    parse(OK ",\"outputs\":{\"m\":{\"path\":\"out/m\",\"format\":\"npy\",\"type\":\"t\",\"meta\":"
             "{\"a\": 1},\"digest\":\"" HEX "\"},\"s\":{\"value\":null,\"type\":null}},"
             "\"metadata\":{\"acc\": 0.97},\"output_metadata\":{\"m\":{\"n\":1}},"
             "\"output_tags\":{\"s\":[\"x\",\"y\"]},"
             "\"output_names\":{\"m\":{\"name\":\"net\",\"version\":\"3\"}},"
             "\"seen\":{\"/u.py\":\"" HEX "\",\"numpy\":\"\"},\"warnings\":[\"w\"],"
             "\"hooks_run\":[\"on_success\"],\"cards\":[{\"k\":1}],"
             "\"accelerator\":{\"frameworks\":[{\"name\":\"torch\",\"version\":\"2.13.0\","
             "\"build\":\"cuda 12.8\",\"available\":true,\"initialized\":false,"
             "\"device_count\":2,\"peak_bytes\":[5,null]},{\"name\":\"jax\",\"available\":null,"
             "\"reason\":\"no\"}],\"masks\":{\"CUDA_VISIBLE_DEVICES\":\"0\"}}}",
          arena, &r);
    assert_true(r.ok);
    assert_false(r.has_error);
    assert_int_equal(r.n_outputs, 2);
    assert_string_equal(r.outputs[0].path, "out/m");
    assert_null(r.outputs[0].value);
    assert_string_equal(r.outputs[0].format, "npy");
    assert_string_equal(r.outputs[0].meta, "{\"a\":1}");
    assert_string_equal(r.outputs[0].digest, HEX);
    assert_string_equal(r.outputs[0].metadata, "{\"n\":1}");
    assert_string_equal(r.outputs[0].artifact_name, "net");
    assert_string_equal(r.outputs[0].artifact_version, "3");
    assert_string_equal(r.outputs[1].value, "null");
    assert_null(r.outputs[1].type);
    assert_int_equal(r.outputs[1].n_tags, 2);
    assert_string_equal(r.metadata, "{\"acc\":0.97}");
    assert_string_equal(r.seen[0].value, HEX);
    assert_string_equal(r.seen[1].value, "");
    assert_string_equal(r.warnings[0], "w");
    assert_string_equal(r.hooks_run[0], "on_success");
    assert_string_equal(r.cards, "[{\"k\":1}]");
    assert_int_equal(r.n_frameworks, 2);
    assert_true(r.mask_changed);
    assert_string_equal(r.frameworks[0].build, "cuda 12.8");
    assert_int_equal(r.frameworks[0].available, 1);
    assert_int_equal(r.frameworks[0].initialized, 0);
    assert_int_equal(r.frameworks[0].device_count, 2);
    assert_int_equal(r.frameworks[0].n_peak_bytes, 2);
    assert_int_equal(r.frameworks[0].peak_bytes[0], 5);
    assert_int_equal(r.frameworks[0].peak_bytes[1], -1);
    assert_int_equal(r.frameworks[1].available, -1);
    assert_int_equal(r.frameworks[1].device_count, -1);
    assert_string_equal(r.frameworks[1].reason, "no");
}

static void test_errors(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_result r;
    parse("{\"stoker\":1,\"status\":\"failed\"}", arena, &r);
    assert_false(r.ok);
    assert_true(r.has_error);
    assert_int_equal(r.error.class, STK_FAIL_EXCEPTION);
    assert_string_equal(r.error.message, "the task failed without a message");
    parse("{\"stoker\":1,\"status\":\"failed\",\"error\":{\"class\":\"import\",\"type\":"
          "\"ModuleNotFoundError\",\"message\":\"no\",\"module\":\"torch\",\"where\":\"t.py:1\"}}",
          arena, &r);
    assert_int_equal(r.error.class, STK_FAIL_IMPORT);
    assert_string_equal(r.error.module, "torch");
    assert_string_equal(r.error.where, "t.py:1");
    assert_null(r.error.traceback);
    /* Nothing hides an error: neither metadata of outputs that never came nor a NUL byte. */
    parse("{\"stoker\":1,\"status\":\"failed\",\"output_metadata\":{\"m\":{\"n\":1}},"
          "\"output_tags\":{\"m\":[\"x\"]},\"warnings\":[\"\",\"a\\u0000\"],"
          "\"error\":{\"message\":\"b\\u0000c\"}}",
          arena, &r);
    assert_string_equal(r.error.message, "b\xEF\xBF\xBD"
                                         "c");
    assert_string_equal(r.warnings[0], "");
    assert_string_equal(r.warnings[1], "a\xEF\xBF\xBD");
}

static void test_size(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t size = STK_LIMIT_RESULT_BYTES + 1u;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, OK "}", sizeof OK);
    stk_result r;
    stk_err err = {0};
    assert_int_equal(stk_result_parse(text, size - 1, NULL, arena, &r, &err), 0);
    assert_int_equal(stk_result_parse(text, size, NULL, arena, &r, &err), STK_E_LIMIT);
    free(text);
}

static void test_next(void **state)
{
    (void)state;
    static const char text[] = OK ",\"outputs\":{\"x\":{\"value\":1},\"y\":{\"artifact\":\"" HEX
                                  "\"}},\"dropped\":[\"z\"],\"inputs\":{\"w\":\"" HEX
                                  "\"},\"next\":{\"steps\":[\"work\"],\"n\":12,\"items\":{"
                                  "\"path\":\"out/.items\",\"format\":\"items\"}}}";
    stk_arena *arena = stk_arena_new(0);
    stk_result result;
    stk_err err = {0};
    if (stk_result_parse(text, strlen(text), "r.json", arena, &result, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(result.outputs[1].artifact, HEX);
    assert_null(result.outputs[0].artifact);
    assert_int_equal(result.n_dropped, 1);
    assert_string_equal(result.dropped[0], "z");
    assert_string_equal(result.inputs, "{\"w\":\"" HEX "\"}");
    assert_int_equal(result.n_next_steps, 1);
    assert_string_equal(result.next_steps[0], "work");
    assert_int_equal(result.next_n, 12);
    assert_string_equal(result.next_items->path, "out/.items");
    assert_return_code(stk_result_parse(OK "}", strlen(OK "}"), "r.json", arena, &result, &err), 0);
    assert_int_equal(result.next_n, -1);
    assert_int_equal(result.n_next_steps, 0);
    assert_null(result.next_items);
    stk_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_next), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_everything),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
