/* preflight: does everything fit together before the first task starts? Driver, CUDA and the
 * frameworks of the step's environment; the devices' health; what the host lacks.
 *
 * Used before a run that asks for devices, by `stoker doctor`, and later inside an image. Reads
 * files and asks accel; imports and starts nothing. */
#ifndef STK_PREFLIGHT_H
#define STK_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "host/accel/accel.h"

typedef enum {
    STK_CHECK_OK,
    STK_CHECK_NOTE,    /* good to know */
    STK_CHECK_WARNING, /* some runs will suffer */
    STK_CHECK_ERROR,   /* has to be mended first */
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

/* Zero-initialise with an arena. One finding; subject and remedy may be NULL, everything is copied.
 * 0 or STK_E_NOMEM. */
int stk_preflight_add(stk_findings *findings, stk_check_level level, const char *check,
                      const char *subject, const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* Each of the following appends; 0 or STK_E_NOMEM. */

/* Devices in `devices` (NULL: all): ECC, row remapping, retired pages, Xids of this boot,
 * throttling, PCIe width, leftover processes, compute mode, quarantine. Only what is to be said: a
 * device in order adds nothing. An ERROR with a device's uuid as its subject means that this device
 * must not be given to a step. */
int stk_preflight_devices(stk_accel *accel, const stk_devset *devices, stk_findings *findings,
                          stk_err *err);
/* CPUs, memory, /dev/shm, ulimits (files, processes, memlock, stack, core), the disk of `folder`, a
 * free port on loopback. */
int stk_preflight_host(const char *folder, stk_findings *findings, stk_err *err);

/* --- drivers and CUDA (tbl/cuda.def), for images, too --- */

/* "580.65.06" against "525.60.13", number by number: < 0, 0, > 0. */
int stk_preflight_compare_versions(const char *a, const char *b);
/* The lowest driver that runs every toolkit of this major (minor-version compatibility); NULL: a
 * major that isn't known. */
const char *stk_preflight_cuda_driver(int32_t major);
/* The newest major that this driver runs, else that of `cuda` (13000, as the driver says); -1. */
int32_t stk_preflight_cuda_newest(const char *driver, int32_t cuda);

/* An installed framework, read from its files without importing it. */
typedef struct stk_framework {
    const char *name;    /* "torch", "tensorflow", "jax", "cupy" */
    const char *version; /* "2.13.0+cpu"; NULL unknown */
    const char *folder;  /* of its package, or of what says how it was built */
    enum {
        STK_BUILD_UNKNOWN,
        STK_BUILD_CPU,
        STK_BUILD_CUDA,
        STK_BUILD_ROCM,
        STK_BUILD_OTHER
    } build;
    const char *serves[6]; /* vendors whose devices it can use ("nvidia"), NULL-terminated; plugins
                              count. Meaningless where `build` is unknown. */
    int32_t cuda;          /* it was built for: 12080 for 12.8; -1 */
    bool cuda_minor_known; /* jax and cupy say the major only: then 12000 means 12.x */
    uint64_t arch_bits;    /* machine code for compute capability: bit tbl/arches.def; 0 unknown */
    bool has_ptx;          /* and PTX, which newer devices can compile */
    int32_t ptx_arch;      /* the oldest of that: 90 for compute_90; -1 */
    bool lacks_cudnn; /* it loads cuDNN from elsewhere, and it lies in none of the usual places */
} stk_framework;

enum { STK_PREFLIGHT_FRAMEWORKS = 8 }; /* no more than that are ever found */

/* What an environment holds. */
typedef struct stk_environment {
    const char *python;          /* as given, looked up in PATH; NULL: sys_path was given */
    const char *version;         /* "3.11", of the interpreter; NULL unknown */
    const char *const *sys_path; /* NULL-terminated */
} stk_environment;
/* sys.path of an interpreter as site.py makes it (pyvenv.cfg, site-packages and dist-packages, .pth
 * files, PYTHONPATH, the user's own folder), without starting it. `python` may be a word of PATH.
 * STK_E_NOT_FOUND: there is none, or it is a script (a version manager's) that hides which it is.
 */
int stk_preflight_environment(const char *python, stk_arena *arena, stk_environment *ret,
                              stk_err *err);
/* Where `package` (a folder) lies in sys_path; NULL: nowhere. */
const char *stk_preflight_package(const char *const *sys_path, const char *package,
                                  stk_arena *arena);
/* `__version__ = "…"` of the __init__.py in a package's folder; NULL: it isn't written so. */
const char *stk_preflight_version(const char *folder, stk_arena *arena);
/* In the folders of sys_path (NULL-terminated), or, where that is NULL, of the interpreter
 * `python`. */
int stk_preflight_find(const char *python, const char *const *sys_path, stk_arena *arena,
                       stk_framework *ret, uint32_t n_max, uint32_t *ret_n, stk_err *err);
/* Which compute capabilities the CUDA code of a shared library (or any ELF file) is for, from the
 * headers in its .nv_fatbin section; bounded in time. False: it has none, or can't be read. */
bool stk_preflight_fatbin(const char *path, uint64_t *ret_arch_bits, int32_t *ret_ptx_arch);

/* driver × CUDA × build × compute capability. `uses`: names that the steps use (n_uses 0: all that
 * are found). What keeps a used framework from the devices is an ERROR, unless another of the used
 * ones can work with them (a data loader's torch beside jax); for unnamed ones it is a WARNING, or
 * a NOTE where another works. `devices`: those that the steps may get (NULL: all); unusable ones
 * don't count. Frameworks in order are reported as OK. */
int stk_preflight_frameworks(stk_accel *accel, const stk_devset *devices,
                             const stk_framework *frameworks, uint32_t n_frameworks,
                             const char *const *uses, uint32_t n_uses, stk_findings *findings,
                             stk_err *err);

#endif
