/* Lists that grow in an arena. */
#include <string.h>
#include <sys/param.h>

#include "base/arena.h"
#include "base/testing.h"

static void test_growing(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int *items = NULL;
    uint32_t cap = 0;
    uint32_t n_moves = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        int *now = stk_arena_grow(arena, items, i, sizeof *items, &cap);
        assert_non_null(now);
        assert_true(cap > i);
        n_moves += now != items;
        items = now;
        items[i] = (int)i * 3;
    }
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(items[i], i * 3);
    }
    assert_true(n_moves < 20);
}

static void test_what_there_was_stays(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(1000);
    uint32_t cap = 0;
    char *items = stk_arena_grow(arena, NULL, 0, 1, &cap);
    assert_non_null(items);
    uint32_t before = cap;
    assert_null(stk_arena_grow(arena, items, cap, 4096, &cap));
    assert_null(stk_arena_grow(arena, items, UINT32_MAX, 1, &cap));
    assert_int_equal(cap, before);
    assert_ptr_equal(stk_arena_grow(arena, items, cap - 1, 1, &cap), items);
}

/* Short texts are formatted on the stack, long ones directly in the arena. */
static void test_texts_of_any_length(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (int n = 0; n < 1100; n++) {
        char *text = stk_arena_printf(arena, "%0*d|%s", n, 7, "x");
        assert_non_null(text);
        assert_int_equal(strlen(text), MAX(n, 1) + 2);
        assert_string_equal(text + strlen(text) - 3, "7|x");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_growing),
                                       cmocka_unit_test(test_texts_of_any_length),
                                       cmocka_unit_test(test_what_there_was_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
