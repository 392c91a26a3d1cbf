/* preflight: checks before the first task starts that driver, CUDA and the frameworks of the step's
 * environment fit together, that the devices are healthy, and that the host has what runs need.
 *
 * Used before a run that requests devices, by `stoker doctor`, and for images. Reads files and
 * queries accel; imports and starts nothing. */
#ifndef STK_PREFLIGHT_H
#define STK_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "host/accel/accel.h"

typedef enum {
    STK_CHECK_OK,
    STK_CHECK_NOTE,    /* information */
    STK_CHECK_WARNING, /* some runs will suffer */
    STK_CHECK_ERROR,   /* must be fixed before a run */
    STK_CHECK_N
} stk_check_level;
const char *stk_check_word(stk_check_level level); /* "ok", "note", "warning", "problem" */

typedef struct stk_finding {
    stk_check_level level;
    const char *check;   /* "torch", "ecc", "xid", "pcie", "shm", "ulimit", "disk", "port" … */
    const char *subject; /* a device's uuid, a distribution, a path; or NULL */
    const char *text;    /* one sentence */
    const char *remedy;  /* what to do, or NULL */
} stk_finding;

typedef struct stk_findings {
    stk_arena *arena; /* owns the texts */
    stk_finding *items;
    uint32_t n, cap;
} stk_findings;

/* Adds one finding. Initialize stk_findings to zero with an arena. subject and remedy may be NULL;
 * all texts are copied. 0 or STK_E_NOMEM. */
int stk_preflight_add(stk_findings *findings, stk_check_level level, const char *check,
                      const char *subject, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* Each of the following functions appends findings and returns 0 or STK_E_NOMEM. */

/* Checks `devices` (NULL: all): ECC, row remapping, retired pages, Xids of this boot, throttling,
 * PCIe width, leftover processes, compute mode, quarantine. A healthy device adds no finding. An
 * ERROR with a device's uuid as its subject means that no step may get this device. */
int stk_preflight_devices(stk_accel *accel, const stk_devset *devices, stk_findings *findings,
                          stk_err *err);
/* Checks CPUs, memory, /dev/shm, ulimits (files, processes, memlock, stack, core), the disk of
 * `folder`, and a free port on loopback. */
int stk_preflight_host(const char *folder, stk_findings *findings, stk_err *err);

/* --- drivers and CUDA (tbl/cuda.def), also used for images --- */

/* Compares versions such as "580.65.06" and "525.60.13" number by number: < 0, 0, > 0. */
int stk_preflight_compare_versions(const char *a, const char *b);
/* The lowest driver that runs every toolkit of this major (minor-version compatibility); NULL:
 * unknown major. */
const char *stk_preflight_cuda_driver(int32_t major);
/* The newest major that this driver runs; if that is unknown, the major of `cuda` (13000, as the
 * driver reports it); else -1. */
int32_t stk_preflight_cuda_newest(const char *driver, int32_t cuda);

/* An installed framework, read from its files without importing it. */
typedef struct stk_framework {
    const char *name;    /* "torch", "tensorflow", "jax", "cupy" */
    const char *version; /* "2.13.0+cpu"; NULL unknown */
    const char *folder;  /* of its package, or of the files that describe its build */
    enum {
        STK_BUILD_UNKNOWN,
        STK_BUILD_CPU,
        STK_BUILD_CUDA,
        STK_BUILD_ROCM,
        STK_BUILD_OTHER
    } build;
    const char *serves[6]; /* vendors whose devices it can use ("nvidia"), NULL-terminated;
                              including plugins. Meaningless if `build` is unknown. */
    int32_t cuda;          /* CUDA version of the build: 12080 for 12.8; -1 */
    bool cuda_minor_known; /* false: only the major is known (jax, cupy), 12000 means 12.x */
    uint64_t arch_bits; /* machine code by compute capability: bits by tbl/arches.def; 0 unknown */
    bool has_ptx;       /* it has PTX, too, which the driver compiles for newer devices */
    int32_t ptx_arch;   /* the oldest PTX: 90 for compute_90; -1 */
    bool lacks_cudnn;   /* it needs an external cuDNN, and none is in the usual places */
} stk_framework;

enum { STK_PREFLIGHT_FRAMEWORKS = 8 }; /* upper bound of what stk_preflight_find returns */

/* A Python environment. */
typedef struct stk_environment {
    const char *python;          /* found in PATH if need be; NULL: sys_path was given */
    const char *version;         /* "3.11", of the interpreter; NULL unknown */
    const char *const *sys_path; /* NULL-terminated */
} stk_environment;
/* Computes an interpreter's sys.path without starting it, as site.py does (pyvenv.cfg,
 * site-packages and dist-packages, .pth files, PYTHONPATH, the user's site folder). `python` may be
 * a name in PATH. STK_E_NOT_FOUND: there is none, or it is a version manager's script that hides
 * the real interpreter.
 */
int stk_preflight_environment(const char *python, stk_arena *arena, stk_environment *ret,
                              stk_err *err);
/* The folder of `package` in sys_path; NULL: not found. */
const char *stk_preflight_package(const char *const *sys_path, const char *package,
                                  stk_arena *arena);
/* `__version__ = "…"` in the __init__.py of a package's folder; NULL: no such line. */
const char *stk_preflight_version(const char *folder, stk_arena *arena);
/* Finds the frameworks in the folders of sys_path (NULL-terminated); if that is NULL, in those of
 * the interpreter `python`. */
int stk_preflight_find(const char *python, const char *const *sys_path, stk_arena *arena,
                       stk_framework *ret, uint32_t n_max, uint32_t *ret_n, stk_err *err);
/* The compute capabilities of the CUDA code in a shared library (or any ELF file), from the headers
 * in its .nv_fatbin section; takes limited time. False: no CUDA code, or unreadable. */
bool stk_preflight_fatbin(const char *path, uint64_t *ret_arch_bits, int32_t *ret_ptx_arch);

/* Checks driver × CUDA × build × compute capability. `uses`: the frameworks that the steps use
 * (n_uses 0: all that were found). A problem of a used framework with the devices is an ERROR,
 * unless another used framework can use them (jax beside a data loader's torch). For an unused
 * framework it is a WARNING, or a NOTE if another one works. `devices`: those that the steps may
 * get (NULL: all); unusable ones don't count. Frameworks without problems are reported as OK. */
int stk_preflight_frameworks(stk_accel *accel, const stk_devset *devices,
                             const stk_framework *frameworks, uint32_t n_frameworks,
                             const char *const *uses, uint32_t n_uses, stk_findings *findings,
                             stk_err *err);

#endif
