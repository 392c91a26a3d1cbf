/* gpus: every device at one moment, with its state, its lease and the processes on it. */
#ifndef STK_SHOW_GPUS_H
#define STK_SHOW_GPUS_H

#include "base/buf.h"
#include "base/limits.h"
#include "host/accel/accel.h"
#include "show/show_text.h"

enum { STK_GPUS_PROCESSES = 64 };

typedef struct stk_gpus_process {
    stk_device_process on; /* pid, memory */
    const char *name;      /* the program's name, or NULL */
    const char *user;      /* its owner, or NULL */
} stk_gpus_process;

typedef struct stk_gpus_row {
    const stk_device *device;
    stk_device_state state; /* every field is -1 if the query failed */
    const char *holder;     /* who leases it, or NULL */
    const char *claim;      /* who has waited for it longest and gets it next, or NULL */
    const char *outside;    /* who uses it without a lease, or NULL */
    const char *trouble;    /* why it can't be used, or why the query failed; or NULL */
    stk_gpus_process *processes;
    int n_processes; /* -1: the vendor's library doesn't report them */
    int32_t xid;     /* last Xid of this boot in logs that we may read; -1: none */
} stk_gpus_row;

typedef struct stk_gpus {
    stk_accel *accel;
    stk_arena *arena; /* of the current snapshot */
    stk_gpus_row *rows;
    int32_t xids[STK_LIMIT_DEVICES]; /* the last of each device, or -1 */
    uint32_t n;
    int64_t time_ms; /* wall clock */
} stk_gpus;

/* Finds this host's devices, and their last Xids. Close it also after an error. */
int stk_gpus_open(stk_gpus *ret, stk_err *err);
void stk_gpus_close(stk_gpus *gpus);
/* Takes a snapshot of all devices. Its texts live until the next snapshot. */
int stk_gpus_look(stk_gpus *gpus, stk_err *err);
/* The link as in JSON: "same" "fabric" "switch" "host" "node" "system", or NULL if unknown. */
const char *stk_gpus_link_word(stk_closeness link);
/* "free", "leased", "claimed" (not leased, but reserved for the claimant), "in use", "split" or
 * "unusable". */
const char *stk_gpus_status(const stk_gpus_row *row);
/* The newest CUDA that the driver runs, such as "13.0", or NULL. */
const char *stk_gpus_cuda(const stk_gpus *gpus);

void stk_gpus_table(const stk_gpus *gpus, const stk_style *style, stk_buf *out);
void stk_gpus_topology(const stk_gpus *gpus, stk_buf *out);
/* One line per device, for a log. */
void stk_gpus_lines(const stk_gpus *gpus, stk_buf *out);
/* One line, as docs/formats/engine-command-line.md describes it. */
void stk_gpus_json(const stk_gpus *gpus, stk_buf *out);
/* Prometheus' text exposition, with dcgm-exporter's names. */
void stk_gpus_prometheus(const stk_gpus *gpus, stk_buf *out);

#endif
