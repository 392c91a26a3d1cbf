/* Which drivers run which CUDA versions. */
#include <stdlib.h>

#include "host/preflight/preflight.h"

typedef struct toolkit {
    int32_t major;
    const char *driver; /* the lowest driver */
} toolkit;

/* Newest first. */
static const toolkit toolkits[] = {
#define X(major, driver) {major, driver},
#include "tbl/cuda.def"
#undef X
};
enum { N_TOOLKITS = sizeof toolkits / sizeof toolkits[0] };

int stk_preflight_compare_versions(const char *a, const char *b)
{
    while (*a != '\0' || *b != '\0') {
        char *end_a, *end_b;
        long x = strtol(a, &end_a, 10), y = strtol(b, &end_b, 10);
        if (x != y) {
            return (x > y) - (x < y);
        }
        if (end_a == a && end_b == b) {
            return 0; /* the rest isn't numeric */
        }
        a = end_a + (*end_a == '.');
        b = end_b + (*end_b == '.');
    }
    return 0;
}

const char *stk_preflight_cuda_driver(int32_t major)
{
    for (uint32_t i = 0; i < N_TOOLKITS; i++) {
        if (toolkits[i].major == major) {
            return toolkits[i].driver;
        }
    }
    return NULL;
}

int32_t stk_preflight_cuda_newest(const char *driver, int32_t cuda)
{
    for (uint32_t i = 0; driver != NULL && i < N_TOOLKITS; i++) {
        if (stk_preflight_compare_versions(driver, toolkits[i].driver) >= 0) {
            return toolkits[i].major;
        }
    }
    return cuda > 0 ? cuda / 1000 : -1;
}
