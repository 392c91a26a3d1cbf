#include "base/turn.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of the first thread. */
static int64_t done;
static bool has_begun;

static bool is_first(void)
{
    return syscall(SYS_gettid) == getpid();
}

void stk_turn_begin(void)
{
    done = 0;
    has_begun = true;
}

void stk_turn_count(int64_t bytes)
{
    if (!is_first() || !has_begun) {
        return;
    }
    done += bytes;
    if (done > STK_TURN_BYTES) {
        STK_FAILPOINT("turn.long");
        done = 0;
    }
}
