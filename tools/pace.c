/* Preloaded into a test's programs by tools/pace.py: each sleep takes STK_PACE times as long. One
 * of a minute and more stays: it is ended, not waited for. Waits for descriptors and the engine's
 * own timers stay, too: they wait for events. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LONG_S = 60, NS_PER_S = 1000000000 };

static struct timespec scaled(const struct timespec *t)
{
    const char *pace = getenv("STK_PACE");
    double s = (double)t->tv_sec + (double)t->tv_nsec / NS_PER_S;
    s *= pace != NULL && s < LONG_S ? atof(pace) : 1.0;
    return (struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * NS_PER_S)};
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *rest)
{
    struct timespec left = *t;
    if ((flags & TIMER_ABSTIME) != 0) {
        struct timespec now;
        (void)clock_gettime(clock, &now);
        left.tv_sec -= now.tv_sec;
        left.tv_nsec -= now.tv_nsec;
        if (left.tv_nsec < 0) {
            left.tv_sec--;
            left.tv_nsec += NS_PER_S;
        }
        if (left.tv_sec < 0) {
            return 0;
        }
    }
    left = scaled(&left);
    return syscall(SYS_clock_nanosleep, clock, 0, &left, rest) == 0 ? 0 : errno;
}

int nanosleep(const struct timespec *t, struct timespec *rest)
{
    struct timespec left = scaled(t);
    return (int)syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, &left, rest);
}

int usleep(useconds_t us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};
    return nanosleep(&t, NULL);
}

unsigned sleep(unsigned s)
{
    struct timespec t = {s, 0}, rest = {0, 0};
    return nanosleep(&t, &rest) == 0 ? 0 : (unsigned)rest.tv_sec;
}
