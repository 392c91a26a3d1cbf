/* Time behind a table, so that tests and the simulator bring their own. */
#ifndef STK_SYS_CLOCK_H
#define STK_SYS_CLOCK_H

#include <stdint.h>

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
/* This boot's id (/proc/sys/kernel/random/boot_id), "" if unknown. Static storage. */
const char *stk_clock_boot_id(void);

#endif
