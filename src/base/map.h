/* A hash map from text to a 64-bit number (an index, or a pointer cast to uintptr_t). Keys are
 * borrowed and must outlive the map. Open addressing, no removal; 12 bytes of overhead per slot, at
 * most 75 % full. */
#ifndef STK_BASE_MAP_H
#define STK_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stk_map {
    struct stk_map_slot *slots;
    size_t n; /* number of keys */
    size_t cap;
} stk_map;

void stk_map_done(stk_map *map);
/* 0, or STK_E_NOMEM. An existing key gets the new value. */
int stk_map_put(stk_map *map, const char *key, uint64_t value);
bool stk_map_get(const stk_map *map, const char *key, uint64_t *ret_value);
bool stk_map_getn(const stk_map *map, const char *key, size_t len, uint64_t *ret_value);

#define STK_MAP_AUTO __attribute__((cleanup(stk_map_done))) stk_map

uint64_t stk_hash_bytes(const void *data, size_t len, uint64_t seed);

#endif
