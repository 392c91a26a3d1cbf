/* The drivers of other machines that runs can use. */
#include <stdlib.h>
#include <string.h>

#include "away/batch/batch.h"
#include "away/kubernetes/kubernetes.h"
#include "away/slurm/slurm.h"
#include "away/ssh/ssh.h"
#include "cli/cli_run.h"

const stk_driver_kind *stk_cli_driver(const char *name)
{
    static const stk_driver_kind *const kinds[] = {&stk_driver_kubernetes, &stk_driver_batch,
                                                   &stk_driver_slurm, &stk_driver_ssh};
    if (getenv("STOKER_REMOTE_FAKE") != NULL) { /* tests only; for every name */
        return &stk_driver_fake;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i]->name, name) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}
