/* Which attempts run in pilots, and how large a pilot is for them. Pure. */
#include <sys/param.h>

#include "away/slurm/slurm_private.h"

enum { CPU_MILLI = 1000 }; /* of an attempt whose step asks for none */

stk_slurm_load stk_slurm_load_of(const stk_remote_job *job)
{
    const stk_resources *r = job->resources;
    stk_alternative wants[STK_LIMIT_ASKS];
    stk_slurm_load load = {.cpu_milli = r->cpu_milli > 0 ? r->cpu_milli : CPU_MILLI,
                           .memory_bytes = MAX(r->memory_bytes, 0)};
    if (stk_spec_alternatives(r, wants) > 0) { /* all ask for the same (slurm_ask.c) */
        load.gpus = (uint32_t)wants[0].gpu_count;
        load.gpu_bytes = MAX(wants[0].gpu_memory_bytes, 0);
    }
    return load;
}

bool stk_slurm_may_fly(const stk_remote_job *job, const stk_slurm_options *options)
{
    return job->nodes == 1 && job->key != NULL && job->image == NULL &&
           stk_slurm_number(options, "pilot", 0) > 0 &&
           stk_slurm_option(options, "licenses") == NULL &&
           stk_slurm_option(options, "gres") == NULL;
}

stk_slurm_flight stk_slurm_flight_of(const stk_remote_job *first, const stk_slurm_options *options,
                                     uint32_t wanted, uint32_t most)
{
    const stk_slurm_load each = stk_slurm_load_of(first);
    int64_t all = MAX((int64_t)stk_slurm_number(options, "pilot", 1) * 1000, each.cpu_milli);
    int64_t n = all / each.cpu_milli;
    stk_slurm_flight flight = {.cpu_milli = all};
    if (each.gpus > 0) {
        int64_t gpus = MIN((int64_t)wanted, n * each.gpus);
        if (gpus > most) { /* the rest of the last one would be of no use */
            gpus = most - most % each.gpus;
        }
        flight.gpus = (uint32_t)MAX(gpus, (int64_t)each.gpus);
    }
    if (flight.gpus > 0 && each.gpu_bytes == 0) {
        n = flight.gpus / each.gpus;
    }
    flight.memory_bytes = each.memory_bytes * n;
    return flight;
}
