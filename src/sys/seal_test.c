/* A sealed text opens with the same key and name only, and its key is the user's alone. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/file.h"
#include "sys/seal.h"

static char dir[] = "/tmp/stoker-seal-XXXXXX";

static char *key_path(void)
{
    return stk_file_join(dir, "stoker/secrets.key");
}

static void test_opens(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "a", "{\"password\": \"p\xc3\xa4ss\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        STK_BUF_AUTO sealed = STK_BUF_INIT(4096);
        STK_BUF_AUTO again = STK_BUF_INIT(4096);
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        assert_int_equal(stk_seal("secret/a", texts[i], strlen(texts[i]), &sealed, NULL), 0);
        assert_int_equal(stk_seal("secret/a", texts[i], strlen(texts[i]), &again, NULL), 0);
        assert_string_not_equal(sealed.data, again.data);
        assert_int_equal(sealed.len, 2 * (12 + strlen(texts[i]) + 16));
        assert_int_equal(stk_seal_open("secret/a", sealed.data, &text, NULL), 0);
        assert_int_equal(text.len, strlen(texts[i]));
        assert_memory_equal(text.len == 0 ? "" : text.data, texts[i], text.len);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    STK_BUF_AUTO sealed = STK_BUF_INIT(4096);
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    assert_int_equal(stk_seal("secret/a", "value", 5, &sealed, NULL), 0);
    assert_int_equal(stk_seal_open("secret/b", sealed.data, &text, NULL), STK_E_USAGE);
    for (size_t i = 0; i < sealed.len; i++) {
        char was = sealed.data[i];
        sealed.data[i] = "10"[was == '1'];
        assert_int_equal(stk_seal_open("secret/a", sealed.data, &text, NULL), STK_E_USAGE);
        sealed.data[i] = was;
    }
    assert_int_equal(stk_seal_open("secret/a", "", &text, NULL), STK_E_USAGE);
    assert_int_equal(stk_seal_open("secret/a", "zz", &text, NULL), STK_E_USAGE);
    assert_int_equal(text.len, 0);
}

static void test_key(void **state)
{
    (void)state;
    stk_err err;
    struct stat st;
    STK_TEXT_AUTO path = key_path();
    STK_BUF_AUTO sealed = STK_BUF_INIT(4096);
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    assert_int_equal(stk_seal("x", "value", 5, &sealed, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(stk_seal_open("x", sealed.data, &text, &err), STK_E_UNTRUSTED);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(stk_seal_open("x", sealed.data, &text, NULL), 0);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(stk_seal_open("x", sealed.data, &text, NULL), STK_E_ENV);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(stk_seal_open("x", sealed.data, &text, NULL), STK_E_USAGE); /* a new key */
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL ? -1 : setenv("XDG_CONFIG_HOME", dir, 1);
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_opens), cmocka_unit_test(test_refuses),
                                       cmocka_unit_test(test_key)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
