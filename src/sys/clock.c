#include "sys/clock.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t); /* can't fail for these two clocks */
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t real_wall_ms(void *self)
{
    (void)self;
    return now_ms(CLOCK_REALTIME);
}

static int64_t real_mono_ms(void *self)
{
    (void)self;
    return now_ms(CLOCK_MONOTONIC);
}

const stk_clock stk_clock_real = {.wall_ms = real_wall_ms, .mono_ms = real_mono_ms};

void stk_clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

struct timespec stk_clock_after(int64_t ms)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + ms % 1000 * 1000000;
    t.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

int64_t stk_clock_boot_ms(void)
{
    return now_ms(CLOCK_BOOTTIME);
}

stk_clock_anchor stk_clock_anchor_now(void)
{
    return (stk_clock_anchor){.wall_ms = now_ms(CLOCK_REALTIME), .boot_ms = stk_clock_boot_ms()};
}

int64_t stk_clock_anchored_ms(const stk_clock_anchor *anchor)
{
    return anchor->wall_ms + stk_clock_boot_ms() - anchor->boot_ms;
}

static int64_t anchored_wall_ms(void *self)
{
    return stk_clock_anchored_ms(self);
}

stk_clock stk_clock_anchored(stk_clock_anchor *anchor)
{
    return (stk_clock){.wall_ms = anchored_wall_ms, .mono_ms = real_mono_ms, .self = anchor};
}

const char *stk_clock_boot_id(void)
{
    static char id[40];
    static bool read_already;
    if (!read_already) {
        int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = 0;
        if (fd >= 0) {
            n = read(fd, id, sizeof id - 1);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
        while (n > 0 && id[n - 1] == '\n') {
            n--;
        }
        id[MAX(n, 0)] = '\0';
        read_already = true;
    }
    return id;
}
