/* Uses OpenSSL's low-level SHA-256: it has the CPU's instructions, and avoids the provider's
 * start-up, which costs milliseconds. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/digest.h"

#include <openssl/sha.h>
#include <string.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(stk_sha256), "stk_sha256 must hold a SHA256_CTX");

void stk_sha256_init(stk_sha256 *sha)
{
    SHA256_Init((SHA256_CTX *)(void *)sha);
}

void stk_sha256_add(stk_sha256 *sha, const void *data, size_t len)
{
    SHA256_Update((SHA256_CTX *)(void *)sha, data, len);
}

void stk_sha256_done(stk_sha256 *sha, unsigned char ret_digest[STK_DIGEST_BYTES])
{
    SHA256_Final(ret_digest, (SHA256_CTX *)(void *)sha);
}

void stk_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                     unsigned char ret_digest[STK_DIGEST_BYTES])
{
    unsigned char pad[64] = {0}; /* one SHA-256 block */
    stk_sha256 sha;
    if (n_key <= sizeof pad) {
        memcpy(pad, key, n_key);
    } else {
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, key, n_key);
        stk_sha256_done(&sha, pad);
    }
    for (size_t i = 0; i < sizeof pad; i++) {
        pad[i] ^= 0x36;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, pad, sizeof pad);
    stk_sha256_add(&sha, data, n);
    stk_sha256_done(&sha, ret_digest);
    for (size_t i = 0; i < sizeof pad; i++) {
        pad[i] ^= 0x36 ^ 0x5c;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, pad, sizeof pad);
    stk_sha256_add(&sha, ret_digest, STK_DIGEST_BYTES);
    stk_sha256_done(&sha, ret_digest);
}

void stk_digest_hex(const unsigned char digest[STK_DIGEST_BYTES], char ret_hex[STK_DIGEST_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < STK_DIGEST_BYTES; i++) {
        ret_hex[2 * i] = digits[digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[digest[i] & 15];
    }
    ret_hex[STK_DIGEST_HEX] = '\0';
}

void stk_digest_of(const void *data, size_t len, char ret_hex[STK_DIGEST_HEX + 1])
{
    stk_sha256 sha;
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, data, len);
    stk_sha256_done(&sha, digest);
    stk_digest_hex(digest, ret_hex);
}

bool stk_digest_is_hex(const char *text)
{
    return strlen(text) == STK_DIGEST_HEX && strspn(text, "0123456789abcdef") == STK_DIGEST_HEX;
}
