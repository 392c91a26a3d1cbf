/* The metadata that a named artifact is shown with. */
#include <string.h>

#include "base/testing.h"
#include "store/view/view.h"

static void test_metadata_is_a_mapping_or_unknown(void **state)
{
    static const struct {
        const char *ref, *metadata, *meta;
    } cases[] = {{"{\"metadata\":{\"a\":1},\"meta\":{\"b\":2}}", "{\"a\":1}", "{\"b\":2}"},
                 {"{\"metadata\":null,\"meta\":null}", NULL, "null"},
                 {"{\"metadata\":5}", NULL, NULL},
                 {"{}", NULL, NULL},
                 {"damaged", NULL, NULL},
                 {NULL, NULL, NULL}};
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const stk_named_row row = {.name = "n", .version = "1", .ref = cases[i].ref};
        stk_view_ref ref = stk_view_named_ref(&row, arena);
        assert_string_equal(ref.metadata != NULL ? ref.metadata : "none",
                            cases[i].metadata != NULL ? cases[i].metadata : "none");
        assert_string_equal(ref.meta != NULL ? ref.meta : "none",
                            cases[i].meta != NULL ? cases[i].meta : "none");
        assert_int_equal(ref.size, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_metadata_is_a_mapping_or_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
