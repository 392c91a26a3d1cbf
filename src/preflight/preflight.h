/* preflight: does everything fit together before the first task starts? Driver, CUDA and the
 * frameworks of the step's environment; the devices' health; what the host lacks.
 *
 * Used before a run that asks for devices, by `stoker doctor`, and later inside an image. Reads
 * files and asks accel; imports and starts nothing. */
#ifndef STK_PREFLIGHT_H
#define STK_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "accel/accel.h"
#include "base/arena.h"
#include "base/err.h"

typedef enum { STK_CHECK_OK, STK_CHECK_NOTE, STK_CHECK_WARNING, STK_CHECK_ERROR } stk_check_level;

typedef struct stk_finding {
    stk_check_level level;
    const char
        *check; /* "driver", "torch", "ecc", "xid", "pcie", "shm", "ulimit", "disk", "port" … */
    const char *subject; /* a device's uuid, a distribution, a path; or NULL */
    const char *text;    /* one sentence */
    const char *remedy;  /* what to do, or NULL */
} stk_finding;

typedef struct stk_findings {
    stk_arena *arena; /* owns the texts */
    stk_finding *items;
    uint32_t n, cap;
} stk_findings;

/* Each appends; 0 or STK_E_NOMEM. */

/* Devices in `devices` (NULL: all): ECC, row remapping, retired pages, Xids of this boot,
 * throttling, PCIe width, leftover processes, compute mode, quarantine. */
int stk_preflight_devices(stk_accel *accel, const stk_devset *devices, stk_findings *findings,
                          stk_err *err);
/* /dev/shm, ulimits (memlock, nofile, stack), disk below `folder`, a free port on loopback. */
int stk_preflight_host(const char *folder, stk_findings *findings, stk_err *err);

/* An installed framework, read from its files without importing it. */
typedef struct stk_framework {
    const char *name;    /* "torch", "tensorflow", "jax", "cupy" */
    const char *version; /* "2.13.0+cpu" */
    const char *folder;  /* of its package */
    enum {
        STK_BUILD_UNKNOWN,
        STK_BUILD_CPU,
        STK_BUILD_CUDA,
        STK_BUILD_ROCM,
        STK_BUILD_OTHER
    } build;
    int32_t cuda;       /* it was built for: 12080 for 12.8; -1 */
    uint64_t arch_bits; /* machine code for compute capability: bit tbl/arches.def; 0 unknown */
    bool has_ptx;       /* and PTX, which newer devices can compile */
    int32_t ptx_arch;   /* of that: 90 for compute_90; -1 */
} stk_framework;
/* In the folders of sys_path (NULL-terminated), or, where that is NULL, of the interpreter `python`
 * (its site-packages, found by its prefix and pyvenv.cfg). */
int stk_preflight_find(const char *python, const char *const *sys_path, stk_arena *arena,
                       stk_framework *ret, uint32_t n_max, uint32_t *ret_n, stk_err *err);
/* driver × CUDA × build × compute capability. `uses`: names that the steps use (n_uses 0: all that
 * are found, and then a CPU-only build is a warning; else an error). `devices`: those that the
 * steps may get. */
int stk_preflight_frameworks(stk_accel *accel, const stk_devset *devices,
                             const stk_framework *frameworks, uint32_t n_frameworks,
                             const char *const *uses, uint32_t n_uses, stk_findings *findings,
                             stk_err *err);

#endif
