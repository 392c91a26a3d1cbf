/* The last include of a file in which tests can make every open(2) and read(2) fail: failpoints
 * "sys.open" and "sys.read" (base/failpoint.h), one per place. tools/lint_rooms.py lists the rooms
 * that must include it. */
#ifndef STK_SYS_FAULTS_H
#define STK_SYS_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/failpoint.h"

static inline bool stk_fault_set(int sys)
{
    if (sys != 0) {
        errno = sys;
    }
    return sys != 0;
}

#define STK_FAULT(name) (stk_fault_set(STK_FAILPOINT_AT(name)))
#define open(...) (STK_FAULT("sys.open") ? -1 : (open)(__VA_ARGS__))
#define openat(...) (STK_FAULT("sys.open") ? -1 : (openat)(__VA_ARGS__))
#define fopen(...) (STK_FAULT("sys.open") ? NULL : (fopen)(__VA_ARGS__))
#define read(...) (STK_FAULT("sys.read") ? -1 : (read)(__VA_ARGS__))
#define pread(...) (STK_FAULT("sys.read") ? -1 : (pread)(__VA_ARGS__))

#endif
