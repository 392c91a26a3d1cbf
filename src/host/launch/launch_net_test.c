/* Addresses as users write them, and proofs with the test vectors of RFC 4231. */
#include <string.h>

#include "base/testing.h"
#include "host/launch/launch_nodes.h"

static void test_split(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host; /* host NULL: refused */
        int port;
    } cases[] = {
        {"10.0.0.1:29401", "10.0.0.1", 29401},
        {"ws1", "ws1", 29400},
        {"fd00::1", "fd00::1", 29400},
        {"[fd00::1]:7", "fd00::1", 7},
        {"[fd00::1]", "fd00::1", 29400},
        {"", NULL, 0},
        {":29400", NULL, 0},
        {"[]:1", NULL, 0},
        {"ws1:", NULL, 0},
        {"ws1:0", NULL, 0},
        {"ws1:65536", NULL, 0},
        {"ws1:12x", NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[256] = "";
        int32_t port = 0;
        stk_err err = {0};
        int rc = stk_launch_net_split(cases[i].text, host, sizeof host, &port, &err);
        assert_int_equal(rc, cases[i].host == NULL ? STK_E_USAGE : 0);
        if (rc == 0) {
            assert_string_equal(host, cases[i].host);
            assert_int_equal(port, cases[i].port);
        }
    }
}

static void test_proof(void **state)
{
    (void)state;
    char hex[65];
    char long_key[132];
    stk_launch_net_proof("Jefe", "what do ya want for nothing?", hex);
    assert_string_equal(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(long_key, 0xaa, sizeof long_key - 1);
    long_key[131] = '\0'; /* longer than a block */
    stk_launch_net_proof(long_key, "Test Using Larger Than Block-Size Key - Hash Key First", hex);
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split), cmocka_unit_test(test_proof)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
