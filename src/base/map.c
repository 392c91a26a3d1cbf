#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/err.h"

struct stk_map_slot {
    const char *key; /* NULL: free slot */
    uint32_t len;
    uint32_t hash; /* low half, compared before the text */
    uint64_t value;
};

/* FNV-1a over 8-byte words with a final mix. Keys are names that our own users chose, so an
 * attacker's flood is no concern. */
uint64_t stk_hash_bytes(const void *data, size_t len, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ 0xcbf29ce484222325u;
    while (len >= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = (h ^ w) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
        p += 8;
        len -= 8;
    }
    while (len-- > 0) {
        h = (h ^ *p++) * 0x100000001b3u;
    }
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ (h >> 32);
}

void stk_map_done(stk_map *map)
{
    free(map->slots);
    *map = (stk_map){0};
}

static struct stk_map_slot *find(const stk_map *map, const char *key, size_t len, uint64_t hash)
{
    size_t mask = map->cap - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct stk_map_slot *slot = &map->slots[i];
        if (slot->key == NULL || (slot->hash == (uint32_t)hash && slot->len == len &&
                                  memcmp(slot->key, key, len) == 0)) {
            return slot;
        }
    }
}

static int grow_table(stk_map *map)
{
    stk_map bigger = {.cap = MAX(16, map->cap * 2), .n = map->n};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (bigger.slots == NULL) {
        return STK_E_NOMEM;
    }
    for (size_t i = 0; i < map->cap; i++) {
        const struct stk_map_slot *old = &map->slots[i];
        if (old->key != NULL) {
            *find(&bigger, old->key, old->len, stk_hash_bytes(old->key, old->len, 0)) = *old;
        }
    }
    free(map->slots);
    *map = bigger;
    return 0;
}

int stk_map_put(stk_map *map, const char *key, uint64_t value)
{
    if ((map->n + 1) * 4 > map->cap * 3 && grow_table(map) < 0) {
        return STK_E_NOMEM;
    }
    size_t len = strlen(key);
    uint64_t hash = stk_hash_bytes(key, len, 0);
    struct stk_map_slot *slot = find(map, key, len, hash);
    if (slot->key == NULL) {
        *slot = (struct stk_map_slot){.key = key, .len = (uint32_t)len, .hash = (uint32_t)hash};
        map->n++;
    }
    slot->value = value;
    return 0;
}

bool stk_map_getn(const stk_map *map, const char *key, size_t len, uint64_t *ret_value)
{
    if (map->cap == 0) {
        return false;
    }
    const struct stk_map_slot *slot = find(map, key, len, stk_hash_bytes(key, len, 0));
    if (slot->key == NULL) {
        return false;
    }
    if (ret_value != NULL) {
        *ret_value = slot->value;
    }
    return true;
}

bool stk_map_get(const stk_map *map, const char *key, uint64_t *ret_value)
{
    return stk_map_getn(map, key, strlen(key), ret_value);
}
