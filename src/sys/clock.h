/* Clocks behind function pointers, so that tests and the simulator can bring their own. */
#ifndef STK_SYS_CLOCK_H
#define STK_SYS_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

typedef struct stk_clock {
    int64_t (*wall_ms)(void *self); /* Unix time */
    int64_t (*mono_ms)(void *self); /* never jumps */
    void *self;
} stk_clock;

extern const stk_clock stk_clock_real;

static inline int64_t stk_clock_wall_ms(const stk_clock *clock)
{
    return clock->wall_ms(clock->self);
}
static inline int64_t stk_clock_mono_ms(const stk_clock *clock)
{
    return clock->mono_ms(clock->self);
}
/* A condition whose timed waits use the monotonic clock, and the time `ms` from now on it. */
void stk_clock_cond_init(pthread_cond_t *cond);
struct timespec stk_clock_after(int64_t ms);
/* Milliseconds since boot, including time asleep. */
int64_t stk_clock_boot_ms(void);

/* A wall clock that never jumps: a wall time read once, plus the time since then. All times of one
 * run use the same anchor, so their differences are durations. */
typedef struct stk_clock_anchor {
    int64_t wall_ms, boot_ms;
} stk_clock_anchor;
stk_clock_anchor stk_clock_anchor_now(void);
int64_t stk_clock_anchored_ms(const stk_clock_anchor *anchor);
stk_clock
stk_clock_anchored(stk_clock_anchor *anchor); /* `anchor` must live as long as the clock */

/* This boot's id (/proc/sys/kernel/random/boot_id), "" if unknown. Static storage. */
const char *stk_clock_boot_id(void);

#endif
