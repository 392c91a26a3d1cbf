/* Shared by the files of the preflight room: rules on values that were read before, so that tests
 * need no real devices or files. */
#ifndef STK_PREFLIGHT_PRIVATE_H
#define STK_PREFLIGHT_PRIVATE_H

#include <limits.h>

#include "host/preflight/preflight.h"

/* One kind of machine code: a row of tbl/arches.def. */
typedef struct stk_arch {
    int32_t arch; /* 90 */
    enum { STK_ARCH_PLAIN, STK_ARCH_FAMILY, STK_ARCH_EXACT } kind;
} stk_arch;
extern const stk_arch stk_preflight_arches[];
extern const uint32_t stk_preflight_n_arches;

/* Whether machine code for these architectures runs on a device of capability `cc` (90 for 9.0),
 * without PTX. */
bool stk_preflight_arch_runs(uint64_t arch_bits, int32_t cc);
/* "7.5, 8.0, 9.0 and PTX of 9.0". */
const char *stk_preflight_arch_text(uint64_t arch_bits, bool has_ptx, int32_t ptx_arch,
                                    stk_arena *arena);

/* The devices and driver that the frameworks are checked against. */
typedef struct stk_gpus {
    const stk_device *const *devices; /* usable ones that the steps may get */
    uint32_t n;
    const char *driver; /* NVIDIA's, or NULL */
    int32_t cuda;       /* newest CUDA that the driver runs, -1 unknown */
    bool compat;        /* NVIDIA's forward compatibility package is installed */
} stk_gpus;
void stk_preflight_judge(const stk_gpus *gpus, const stk_framework *frameworks, uint32_t n,
                         const char *const *uses, uint32_t n_uses, stk_findings *findings);

/* Copies the next folder of a list like PATH into ret, skipping empty ones; false: end of the
 * list. */
bool stk_preflight_next_folder(const char **list, char ret[PATH_MAX]);

/* Adds findings about the state of one device. */
void stk_preflight_judge_device(const stk_device *device, const stk_device_state *state,
                                stk_findings *findings);
#endif
