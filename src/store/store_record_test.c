/* Records: written whole, changed only by who has read the latest, and seen by other processes. */
#include "store/store_testing.h"

static int put(fixture *f, const char *name, const char *body, int64_t expected, int64_t *revision)
{
    stk_record record = {.kind = "model", .name = name, .body = body, .updated_ms = 7};
    return stk_store_put_record(f->store, &record, expected, revision, &f->err);
}

static void test_put_and_list(void **state)
{
    fixture *f = *state;
    stk_record *found = NULL;
    uint32_t n = 0;
    int64_t revision = 0;
    OK(put(f, "b", "{\"x\":1}", STK_RECORD_NEW, &revision));
    assert_int_equal(revision, 1);
    OK(put(f, "a", "{}", STK_RECORD_ANY, &revision));
    OK(put(f, "b", "{\"x\":2}", 1, &revision));
    assert_int_equal(revision, 2);
    reopen(f, STK_STORE_READONLY);
    OK(stk_store_list_records(f->store, "model", NULL, f->arena, &found, &n, &f->err));
    assert_int_equal(n, 2);
    assert_string_equal(found[0].name, "b"); /* in order of creation */
    assert_string_equal(found[0].body, "{\"x\":2}");
    assert_int_equal(found[0].revision, 2);
    OK(stk_store_list_records(f->store, "model", "a", f->arena, &found, &n, &f->err));
    assert_int_equal(n, 1);
    OK(stk_store_list_records(f->store, "tag", NULL, f->arena, &found, &n, &f->err));
    assert_int_equal(n, 0);
}

static void test_who_comes_late_is_told(void **state)
{
    fixture *f = *state;
    int64_t revision = 0;
    assert_int_equal(put(f, "b", "{}", 1, &revision), STK_E_BUSY); /* there is none to replace */
    OK(put(f, "b", "{}", STK_RECORD_NEW, &revision));
    assert_int_equal(put(f, "b", "{}", STK_RECORD_NEW, &revision), STK_E_BUSY);
    assert_string_equal(f->err.text, "model 'b' exists already");
    OK(put(f, "b", "{}", 1, &revision));
    assert_int_equal(put(f, "b", "{}", 1, &revision), STK_E_BUSY);
    OK(put(f, "b", "{}", STK_RECORD_ANY, &revision));
    assert_int_equal(revision, 3);
}

static void test_remove(void **state)
{
    fixture *f = *state;
    int64_t revision = 0;
    OK(put(f, "b", "{}", STK_RECORD_NEW, &revision));
    OK(stk_store_remove_record(f->store, "model", "b", &f->err));
    assert_int_equal(stk_store_remove_record(f->store, "model", "b", &f->err), STK_E_NOT_FOUND);
    reopen(f, STK_STORE_READONLY);
    assert_int_equal(put(f, "c", "{}", STK_RECORD_NEW, &revision), STK_E_STORE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_put_and_list), TEST(test_who_comes_late_is_told),
                                       TEST(test_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
