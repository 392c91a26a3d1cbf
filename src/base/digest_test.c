/* Computing two digests at once gives the same results as computing each alone. */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/testing.h"

enum { SIZE = 70000 };

static void hex_of(stk_sha256 *sha, char *hex)
{
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256_done(sha, digest);
    stk_digest_hex(digest, hex);
}

/* Adds pieces of many lengths, to cover whole blocks, remainders and partly filled blocks. One of
 * the inputs is unaligned. */
static void test_pair_is_two(void **state)
{
    (void)state;
    unsigned char *data = malloc(2 * SIZE);
    assert_non_null(data);
    for (size_t i = 0; i < 2 * SIZE; i++) {
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    }
    static const size_t steps[] = {0, 1, 63, 64, 65, 128, 1000, 4096, 30000, SIZE};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
            const size_t lens[] = {steps[i], steps[k], steps[i]};
            stk_sha256 a;
            stk_sha256 b;
            size_t at = 0;
            stk_sha256_init(&a);
            stk_sha256_init(&b);
            for (size_t j = 0; j < 3 && at + lens[j] <= SIZE; j++) {
                stk_sha256_add_pair(&a, data + at, &b, data + SIZE - 1 + at, lens[j]);
                at += lens[j];
            }
            char got[2][STK_DIGEST_HEX + 1];
            char want[2][STK_DIGEST_HEX + 1];
            hex_of(&a, got[0]);
            hex_of(&b, got[1]);
            stk_digest_of(data, at, want[0]);
            stk_digest_of(data + SIZE - 1, at, want[1]);
            assert_string_equal(got[0], want[0]);
            assert_string_equal(got[1], want[1]);
        }
    }
    free(data);
}

/* Test cases 1 and 6 of RFC 4231: a short key, and one that is longer than a block. */
static void test_hmac(void **state)
{
    static const char long_data[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    unsigned char key[131], sum[STK_DIGEST_BYTES];
    char hex[STK_DIGEST_HEX + 1];
    (void)state;
    memset(key, 0x0b, 20);
    stk_hmac_sha256(key, 20, "Hi There", 8, sum);
    stk_digest_hex(sum, hex);
    assert_string_equal(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key, 0xaa, sizeof key);
    stk_hmac_sha256(key, sizeof key, long_data, sizeof long_data - 1, sum);
    stk_digest_hex(sum, hex);
    assert_string_equal(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pair_is_two),
                                       cmocka_unit_test(test_hmac)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
