/* runner: supervision of one task. Starts it (or is handed its pid), samples it, enforces limits
 * and timeouts, ends it, says how it ended.
 *
 * A library with an event loop of its caller: descriptors to poll and a tick. Used by the local
 * backend; later by stk-runner.
 */
#ifndef STK_RUNNER_H
#define STK_RUNNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/event.h"

/* How an attempt ended, and what it used. Text is one true sentence without the step's name ("exit
 * status 3", "killed by signal 9 (SIGKILL)", "host OOM: used 1.3 GB of its 1 GB"). */
typedef struct stk_outcome {
    bool ok;
    stk_failure failure;
    int exit_status; /* -1: not known or by signal */
    int signal;      /* 0: none */
    char text[512];
    int64_t wall_ms;
    int64_t cpu_us;            /* -1 unknown */
    int64_t peak_memory_bytes; /* -1 unknown */
    struct {
        const char *uuid;
        double busy_percent_mean;  /* -1 unknown */
        int64_t peak_memory_bytes; /* -1 unknown */
    } devices[64];
    uint32_t n_devices;
} stk_outcome;

#endif
