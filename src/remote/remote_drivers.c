/* The table of drivers. */
#include <stdlib.h>
#include <string.h>

#include "remote/remote.h"

static const stk_driver_kind *const kinds[] = {
    &stk_driver_kubernetes,
    &stk_driver_batch,
    NULL,
};

const stk_driver_kind *stk_remote_kind(const char *name)
{
    if (getenv("STOKER_REMOTE_FAKE") != NULL) {
        return &stk_driver_fake;
    }
    for (size_t i = 0; kinds[i] != NULL; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}
