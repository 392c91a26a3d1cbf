/* gpus: every device with its state, who leases it and who else is
 * on it, as seen at one moment. */
#ifndef STK_SHOW_GPUS_H
#define STK_SHOW_GPUS_H

#include "base/buf.h"
#include "base/limits.h"
#include "host/accel/accel.h"
#include "show/show_text.h"

enum { STK_GPUS_PROCESSES = 64 };

typedef struct stk_gpus_process {
    stk_device_process on; /* pid, memory */
    const char *name;      /* of its program, or NULL */
    const char *user;      /* or NULL */
} stk_gpus_process;

typedef struct stk_gpus_row {
    const stk_device *device;
    stk_device_state state; /* -1 throughout where it couldn't be asked */
    const char *holder;     /* who leases it, or NULL */
    const char *claim;      /* who has waited long for it and is next, or NULL */
    const char *outside;    /* who has it without a lease, or NULL */
    const char *trouble;    /* why it can't be used, or why it couldn't be asked; or NULL */
    stk_gpus_process *processes;
    int n_processes; /* -1: the vendor doesn't tell */
    int32_t xid;     /* the last of this boot that we may read of, or -1 */
} stk_gpus_row;

typedef struct stk_gpus {
    stk_accel *accel;
    stk_arena *arena; /* of this look */
    stk_gpus_row *rows;
    int32_t xids[STK_LIMIT_DEVICES]; /* the last of each, or -1 */
    uint32_t n;
    int64_t time_ms; /* wall clock */
} stk_gpus;

/* One look at everything; the texts live until the next. */
int stk_gpus_look(stk_gpus *gpus, stk_err *err);
/* For stk_accel_history; `arg` is the stk_gpus. */
void stk_gpus_note_xid(void *arg, const stk_device_event *event);
/* "link" words, as in JSON: "same" "fabric" "switch" "host" "node" "system", NULL unknown. */
const char *stk_gpus_link_word(stk_link link);
/* "free" "leased" "claimed" (nobody has it, and nobody else gets it) "in use" "split" "unusable" */
const char *stk_gpus_status(const stk_gpus_row *row);
/* "580.65.06"-like text of the newest CUDA that the driver runs ("13.0"), or NULL. */
const char *stk_gpus_cuda(const stk_gpus *gpus);

void stk_gpus_table(const stk_gpus *gpus, const stk_style *style, stk_buf *out);
void stk_gpus_topology(const stk_gpus *gpus, stk_buf *out);
/* One line a device, for a log. */
void stk_gpus_lines(const stk_gpus *gpus, stk_buf *out);
/* As docs/formats/engine-command-line.md says; one line. */
void stk_gpus_json(const stk_gpus *gpus, stk_buf *out);
/* Prometheus' text exposition, with dcgm-exporter's names. */
void stk_gpus_prometheus(const stk_gpus *gpus, stk_buf *out);

#endif
