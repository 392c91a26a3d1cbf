/* pack: chooses devices of a host for a request. Pure: same input, same result.
 *
 * The scheduler uses it for the run's host, and `stoker simulate` for whole clusters. */
#ifndef STK_PACK_H
#define STK_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/devset.h"

typedef struct stk_pack_device {
    int32_t total_mib; /* memory; 0: unknown, given out only as a whole */
    int32_t free_mib;  /* == total_mib: unused */
    int32_t numa;      /* -1 unknown */
    bool taken;        /* held as a whole, or out of the pool (also if total_mib is 0) */
} stk_pack_device;

typedef struct stk_pack_host {
    const stk_pack_device *devices;
    uint32_t n;
    const uint8_t *links; /* n × n, more is nearer (accel's stk_closeness); NULL: unknown */
} stk_pack_host;

typedef struct stk_pack_ask {
    uint32_t n;        /* number of devices */
    int32_t share_mib; /* of each device; 0: whole devices */
    stk_devset wanted; /* choose only among these */
    bool contiguous;   /* TPU chips: adjacent in the list, aligned to n */
} stk_pack_ask;

typedef enum {
    STK_PACK_STOKER,   /* Stoker's: near neighbours; shares where they leave the smallest gap; keeps
                          whole devices whole */
    STK_PACK_BEST_FIT, /* the fullest device that still fits */
    STK_PACK_RANDOM,   /* random, from `seed` */
    STK_PACK_FRAGMENT  /* least growth of fragmentation (Weng et al., ATC '23), for typical asks */
} stk_pack_policy;

/* The mix of usual requests, for STK_PACK_FRAGMENT; weights may sum to anything > 0. */
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

/* False: it doesn't fit now. `config` NULL: STK_PACK_STOKER. */
bool stk_pack_choose(const stk_pack_host *host, const stk_pack_ask *ask,
                     const stk_pack_config *config, stk_devset *ret_chosen);
/* Free capacity of this host that the typical asks can't use: their weighted mean, in devices. */
double stk_pack_fragments(const stk_pack_host *host, const stk_pack_typical *typical,
                          uint32_t n_typical);
/* True if the ask fits with everything free that isn't out of the pool. */
bool stk_pack_is_possible(const stk_pack_host *empty_host, const stk_pack_ask *ask);

#endif
