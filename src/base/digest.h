/* SHA-256, streaming and in one call. Reads no files (store/store_digest.h does). */
#ifndef STK_BASE_DIGEST_H
#define STK_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STK_DIGEST_BYTES = 32, STK_DIGEST_HEX = 64 };

typedef struct stk_sha256 {
    uint64_t opaque[16];
} stk_sha256;

void stk_sha256_init(stk_sha256 *sha);
void stk_sha256_add(stk_sha256 *sha, const void *data, size_t len);
/* Adds `len` bytes to each of two independent sums. With the CPU's SHA instructions this takes
 * about as long as one sum. */
void stk_sha256_add_pair(stk_sha256 *a, const void *data_a, stk_sha256 *b, const void *data_b,
                         size_t len);
void stk_sha256_done(stk_sha256 *sha, unsigned char ret_digest[STK_DIGEST_BYTES]);

/* HMAC (RFC 2104); `ret_digest` may be the data or the key. */
void stk_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                     unsigned char ret_digest[STK_DIGEST_BYTES]);

/* 64 lower-case hex digits and a NUL. */
void stk_digest_hex(const unsigned char digest[STK_DIGEST_BYTES], char ret_hex[STK_DIGEST_HEX + 1]);
void stk_digest_of(const void *data, size_t len, char ret_hex[STK_DIGEST_HEX + 1]);
bool stk_digest_is_hex(const char *text); /* exactly STK_DIGEST_HEX lowercase digits */

#endif
