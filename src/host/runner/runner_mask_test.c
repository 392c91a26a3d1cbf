/* Values become stars in any pieces, line by line and escaped; data in documents stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/testing.h"
#include "host/runner/runner_mask.h"
#include "sys/file.h"

#define VALUES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Masks `text` in pieces of `size` bytes. */
static char *in_pieces(const stk_mask *mask, const char *text, size_t n, size_t size)
{
    stk_mask_stream stream = {.mask = mask};
    stk_buf out = STK_BUF_INIT(SIZE_MAX / 4);
    for (size_t at = 0; at < n; at += size) {
        size_t len = MIN(n - at, size);
        assert_int_equal(stk_mask_push(&stream, text + at, len, &out), 0);
    }
    stk_mask_end(&stream, &out);
    char *copy = strndup(out.data != NULL ? out.data : "", out.len);
    stk_buf_done(&out);
    return copy;
}

static void test_texts(void **state)
{
    static const struct {
        const char *values[4];
        const char *text, *shown;
    } cases[] = {
        {{"hunter2"}, "it is hunter2, hunter2", "it is *******, *******"},
        {{"hunter2"}, "hunter hunter", "hunter hunter"},
        {{"abc"}, "abcabc", "abcabc"}, /* too short to hide */
        {{"aaaa"}, "baaaaaab", "b******b"},
        {{"abab"}, "xabababx", "x******x"},
        {{"abcd", "cdef"}, "abcdef", "******"},
        {{"secret", "secretive"}, "secretive secret", "********* ******"},
        {{"tail\n"}, "a tail.", "a ****."},
        {{"line number one\nline two is here\nx"},
         "line number one|line two is here|x",
         "***************|****************|x"},
        {{"line number one\nline two is here\nx"},
         "line number one\nline two is here\nx",
         "**********************************"},
        {{"say \"yes\""}, "{\"k\": \"say \\\"yes\\\"\"}", "{\"k\": \"***********\"}"},
        {{"paß-wört"}, "das paß-wört!", "das **********!"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_mask *mask = NULL;
        STK_ARENA_AUTO arena = stk_arena_new(0);
        assert_int_equal(stk_mask_new(cases[i].values, &mask, NULL), 0);
        assert_string_equal(stk_mask_text(mask, cases[i].text, arena), cases[i].shown);
        for (size_t size = 1; size < 9; size++) {
            char *shown = in_pieces(mask, cases[i].text, strlen(cases[i].text), size);
            assert_string_equal(shown, cases[i].shown);
            free(shown);
        }
        stk_mask_free(mask);
    }
}

/* Compares with a slow search that stars every place of every value. */
static void test_random_texts(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 3000; round++) {
        char values[3][8] = {{0}};
        char text[64] = {0}, slow[64];
        for (int v = 0; v < 3; v++) {
            int n = 4 + rand() % 4;
            for (int i = 0; i < n; i++) {
                values[v][i] = (char)('a' + rand() % 2);
            }
        }
        for (size_t i = 0; i + 1 < sizeof text; i++) {
            text[i] = (char)('a' + rand() % (round % 2 + 2));
        }
        memcpy(slow, text, sizeof slow);
        for (int v = 0; v < 3; v++) {
            for (const char *at = text; (at = strstr(at, values[v])) != NULL; at++) {
                memset(slow + (at - text), '*', strlen(values[v]));
            }
        }
        stk_mask *mask = NULL;
        assert_int_equal(stk_mask_new(VALUES(values[0], values[1], values[2]), &mask, NULL), 0);
        char *shown = in_pieces(mask, text, strlen(text), 1 + (size_t)rand() % 9);
        assert_string_equal(shown, slow);
        free(shown);
        stk_mask_free(mask);
    }
}

static void test_only_the_beginning_of_a_value_is_held_back(void **state)
{
    (void)state;
    stk_mask *mask = NULL;
    stk_buf out = STK_BUF_INIT(1000);
    assert_int_equal(stk_mask_new(VALUES("hunter2-hunter2"), &mask, NULL), 0);
    stk_mask_stream stream = {.mask = mask};
    assert_int_equal(stk_mask_push(&stream, "a prompt> ", 10, &out), 0);
    assert_string_equal(out.data, "a prompt> ");
    assert_int_equal(stk_mask_push(&stream, "hunter", 6, &out), 0);
    assert_string_equal(out.data, "a prompt> ");
    assert_int_equal(stk_mask_push(&stream, "s", 1, &out), 0);
    assert_string_equal(out.data, "a prompt> hunters");
    stk_mask_end(&stream, &out);
    stk_buf_done(&out);
    stk_mask_free(mask);
}

static void test_nothing_to_hide(void **state)
{
    (void)state;
    stk_mask *mask = (void *)1;
    assert_int_equal(stk_mask_new(NULL, &mask, NULL), 0);
    assert_null(mask);
    assert_int_equal(stk_mask_new(VALUES("abc", "", "  \n"), &mask, NULL), 0);
    assert_null(mask);
    assert_string_equal(stk_mask_text(NULL, "text", NULL), "text");
    stk_mask_free(NULL);
}

static void test_a_result_keeps_its_data(void **state)
{
    static const char text[] = "{\"stoker\":1,\"outputs\":{\"latest\":{\"value\":\"test\"}},"
                               "\"error\":{\"message\":\"no test\",\"class\":\"usage\"},"
                               "\"warnings\":[\"a test\"],\"metadata\":{\"test\":\"test\"}}";
    char path[] = "/tmp/stoker-mask-XXXXXX";
    STK_TEXT_AUTO now = NULL;
    size_t len = 0;
    stk_mask *mask = NULL;
    (void)state;
    close(mkstemp(path));
    assert_int_equal(stk_file_write(path, text, strlen(text), 0600, NULL), 0);
    assert_int_equal(stk_mask_new(VALUES("test"), &mask, NULL), 0);
    stk_mask_in_errors(mask, path);
    assert_int_equal(stk_file_read(path, 1000, &now, &len, NULL), 0);
    assert_string_equal(now, "{\"stoker\":1,\"outputs\":{\"latest\":{\"value\":\"test\"}},"
                             "\"error\":{\"message\":\"no ****\",\"class\":\"usage\"},"
                             "\"warnings\":[\"a ****\"],\"metadata\":{\"test\":\"test\"}}");
    stk_mask_free(mask);
    (void)unlink(path);
}

/* A NUL byte doesn't end the search, and a masked tree can still grow. */
static void test_a_text_with_a_nul(void **state)
{
    static const char text[] = "[\"a\\u0000hunter2\",{\"k\":\"hunter2\"}]";
    stk_mask *mask = NULL;
    STK_BUF_AUTO out = STK_BUF_INIT(1000);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    (void)state;
    assert_int_equal(stk_mask_new(VALUES("hunter2"), &mask, NULL), 0);
    assert_true(stk_mask_json(mask, text, strlen(text), &out));
    assert_string_equal(out.data, "[\"a\\u0000*******\",{\"k\":\"*******\"}]");
    stk_json map = stk_json_of_map();
    assert_non_null(stk_json_set(arena, &map, "a", stk_json_of_text("hunter2")));
    assert_int_equal(stk_mask_node(mask, &map, arena), 0);
    assert_non_null(stk_json_set(arena, &map, "b", stk_json_of_text("plain")));
    assert_string_equal(stk_json_dump_in(&map, arena), "{\"a\":\"*******\",\"b\":\"plain\"}");
    stk_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_only_the_beginning_of_a_value_is_held_back),
        cmocka_unit_test(test_nothing_to_hide),
        cmocka_unit_test(test_a_result_keeps_its_data),
        cmocka_unit_test(test_a_text_with_a_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
