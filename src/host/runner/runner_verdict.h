/* Verdict: did the task use the devices that it was granted, and if not, why? "granted 2 GPUs, used
 * 1: GPU-… never had a context; …". Pure functions. */
#ifndef STK_RUNNER_VERDICT_H
#define STK_RUNNER_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "host/runner/runner.h"

typedef enum {
#define X(name, word, text) STK_CAUSE_##name,
#include "tbl/causes.def"
#undef X
    STK_CAUSE_N
} stk_cause;
const char *stk_cause_word(stk_cause cause);

/* A framework's report at the task's end (result.json: accelerator.frameworks). */
typedef struct stk_framework_report {
    const char *name;          /* "torch" */
    const char *version;       /* or NULL */
    const char *build;         /* "cuda 12.8", "cpu", or NULL */
    int available;             /* it can use a device: 1, 0, -1 unknown */
    int initialized;           /* it has initialized its devices: 1, 0, -1 */
    int device_count;          /* devices that it sees, or -1 */
    const char *reason;        /* its own message why it can't, or NULL */
    const int64_t *peak_bytes; /* of its allocator, per device that it sees; -1 unknown */
    uint32_t n_peak_bytes;
} stk_framework_report;

typedef struct stk_verdict {
    uint32_t granted;
    int32_t used; /* -1: unknown */
    stk_cause cause;
    const char *text; /* one sentence */
} stk_verdict;

/* `outcome` has the observed device use. Without `frameworks` the mapped libraries
 * (outcome->libraries) decide. `noun`: the word for a device ("GPU"). Text in `arena`. False: no
 * device was granted, or out of memory. */
bool stk_runner_verdict(const stk_outcome *outcome, const stk_framework_report *frameworks,
                        uint32_t n_frameworks, const char *noun, stk_arena *arena,
                        stk_verdict *ret_verdict);

#endif
