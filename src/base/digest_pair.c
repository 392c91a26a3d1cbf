/* Two SHA-256 sums in one thread. The CPU's SHA instructions wait for their own results half of the
 * time, and a second sum uses that time. The digests equal OpenSSL's; both sums together take
 * little longer than one. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "base/digest.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>

enum { N_LANES = 2, BLOCK = 64 };

/* FIPS 180-4, section 4.2.2. */
static const uint32_t k_round[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* The instructions expect the eight words as (a b e f) and (c d g h), high to low. */
typedef struct lane {
    __m128i abef;
    __m128i cdgh;
    const unsigned char *data;
} lane;

static bool has_sha(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_1) != 0 && (c & bit_SSSE3) != 0 &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

static lane lane_of(const SHA256_CTX *ctx, const unsigned char *data)
{
    const SHA_LONG *h = ctx->h;
    return (lane){.abef = _mm_set_epi32((int)h[0], (int)h[1], (int)h[4], (int)h[5]),
                  .cdgh = _mm_set_epi32((int)h[2], (int)h[3], (int)h[6], (int)h[7]),
                  .data = data};
}

static void lane_done(const lane *l, size_t len, SHA256_CTX *ctx)
{
    uint32_t w[8];
    _mm_storeu_si128((__m128i *)(void *)w, l->abef);
    _mm_storeu_si128((__m128i *)(void *)(w + 4), l->cdgh);
    const uint32_t h[8] = {w[3], w[2], w[7], w[6], w[1], w[0], w[5], w[4]};
    for (int i = 0; i < 8; i++) {
        ctx->h[i] = h[i];
    }
    uint64_t bits = ((uint64_t)ctx->Nh << 32 | ctx->Nl) + ((uint64_t)len << 3);
    ctx->Nl = (SHA_LONG)bits;
    ctx->Nh = (SHA_LONG)(bits >> 32);
}

/* All loops over lanes and rounds unroll, so that the state stays in registers. */
__attribute__((target("sha,sse4.1"))) static void add_blocks(lane *lanes, size_t n_blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    for (; n_blocks > 0; n_blocks--) {
        __m128i a[N_LANES];
        __m128i c[N_LANES];
        __m128i w[N_LANES][4]; /* the last 16 words of the message schedule */
#pragma GCC unroll 2
        for (int l = 0; l < N_LANES; l++) {
            a[l] = lanes[l].abef;
            c[l] = lanes[l].cdgh;
        }
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) { /* four rounds each */
#pragma GCC unroll 2
            for (int l = 0; l < N_LANES; l++) {
                __m128i x;
                if (r < 4) {
                    const void *at = lanes[l].data + 16 * (size_t)r;
                    x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)at), big_endian);
                } else {
                    x = _mm_sha256msg1_epu32(w[l][r & 3], w[l][(r + 1) & 3]);
                    x = _mm_add_epi32(x, _mm_alignr_epi8(w[l][(r + 3) & 3], w[l][(r + 2) & 3], 4));
                    x = _mm_sha256msg2_epu32(x, w[l][(r + 3) & 3]);
                }
                w[l][r & 3] = x;
                const void *k = k_round + 4 * (size_t)r;
                x = _mm_add_epi32(x, _mm_load_si128((const __m128i *)k));
                c[l] = _mm_sha256rnds2_epu32(c[l], a[l], x);
                a[l] = _mm_sha256rnds2_epu32(a[l], c[l], _mm_shuffle_epi32(x, 0x0e));
            }
        }
#pragma GCC unroll 2
        for (int l = 0; l < N_LANES; l++) {
            lanes[l].abef = _mm_add_epi32(lanes[l].abef, a[l]);
            lanes[l].cdgh = _mm_add_epi32(lanes[l].cdgh, c[l]);
            lanes[l].data += BLOCK;
        }
    }
}

/* Hashes whole blocks of both sums together; the caller adds the rest one by one. Returns the bytes
 * added to each. */
static size_t add_together(SHA256_CTX *a, const void *data_a, SHA256_CTX *b, const void *data_b,
                           size_t len)
{
    size_t n_blocks = len / BLOCK;
    if (n_blocks == 0 || a->num != 0 || b->num != 0 || !has_sha()) {
        return 0;
    }
    lane lanes[N_LANES] = {lane_of(a, data_a), lane_of(b, data_b)};
    add_blocks(lanes, n_blocks);
    lane_done(&lanes[0], n_blocks * BLOCK, a);
    lane_done(&lanes[1], n_blocks * BLOCK, b);
    return n_blocks * BLOCK;
}
#else
static size_t add_together(SHA256_CTX *a, const void *data_a, SHA256_CTX *b, const void *data_b,
                           size_t len)
{
    (void)a;
    (void)data_a;
    (void)b;
    (void)data_b;
    (void)len;
    return 0;
}
#endif

void stk_sha256_add_pair(stk_sha256 *a, const void *data_a, stk_sha256 *b, const void *data_b,
                         size_t len)
{
    size_t done =
        add_together((SHA256_CTX *)(void *)a, data_a, (SHA256_CTX *)(void *)b, data_b, len);
    stk_sha256_add(a, (const char *)data_a + done, len - done);
    stk_sha256_add(b, (const char *)data_b + done, len - done);
}
