/* pack: which devices of a host for a request? Pure: same input, same answer.
 *
 * Used by the scheduler for the run's own host and by `stoker simulate` for whole clusters. */
#ifndef STK_PACK_H
#define STK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/devset.h"

typedef struct stk_pack_device {
    int32_t total_mib; /* of memory; 0: unknown, given out whole only */
    int32_t free_mib;  /* == total_mib: nobody has any of it */
    int32_t numa;      /* -1 unknown */
    bool taken;        /* whole, or out of the pool (also where total_mib is 0) */
} stk_pack_device;

typedef struct stk_pack_host {
    const stk_pack_device *devices;
    uint32_t n;
    const uint8_t *links; /* n × n, more is nearer (accel's stk_link); NULL: unknown */
} stk_pack_host;

typedef struct stk_pack_ask {
    uint32_t n;        /* devices */
    int32_t share_mib; /* of each; 0: whole devices */
    stk_devset wanted; /* only of these */
    bool contiguous;   /* TPU chips: neighbours in the list, aligned to n */
} stk_pack_ask;

typedef enum {
    STK_PACK_STOKER, /* ours: near neighbours; shares where the gap fits best; whole ones kept whole
                      */
    STK_PACK_BEST_FIT, /* the fullest that still fits */
    STK_PACK_RANDOM,   /* `seed` */
    STK_PACK_FRAGMENT  /* least growth of fragmentation (Weng et al., ATC '23), for typical asks */
} stk_pack_policy;

/* A mix of what is usually asked, for STK_PACK_FRAGMENT: weights sum to anything > 0. */
typedef struct stk_pack_typical {
    stk_pack_ask ask;
    double weight;
} stk_pack_typical;

typedef struct stk_pack_config {
    stk_pack_policy policy;
    uint64_t seed;
    const stk_pack_typical *typical;
    uint32_t n_typical;
} stk_pack_config;

/* False: it doesn't fit now. config NULL: STK_PACK_STOKER. */
bool stk_pack_choose(const stk_pack_host *host, const stk_pack_ask *ask,
                     const stk_pack_config *config, stk_devset *ret_chosen);
/* What is free on this host but of no use to the typical asks, in devices, as their weighted mean.
 */
double stk_pack_fragments(const stk_pack_host *host, const stk_pack_typical *typical,
                          uint32_t n_typical);
/* Could it ever, with everything free that isn't out of the pool? */
bool stk_pack_is_possible(const stk_pack_host *empty_host, const stk_pack_ask *ask);

#endif
