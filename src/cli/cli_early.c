#include "cli/cli_early.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "sys/file.h"

static void *listen_for_signals(void *arg)
{
    stk_cli_early *e = arg;
    struct pollfd on[] = {{.fd = e->stop_fd, .events = POLLIN},
                          {.fd = e->signal_fd, .events = POLLIN}};
    while (poll(on, 2, -1) >= 0 || errno == EINTR) {
        struct signalfd_siginfo info;
        if (on[0].revents != 0) {
            break;
        }
        if (on[1].revents != 0 && read(e->signal_fd, &info, sizeof info) == sizeof info) {
            e->report(e->arg, (int)info.ssi_signo);
            _exit(128 + (info.ssi_signo == SIGINT ? SIGINT : SIGTERM));
        }
    }
    return NULL;
}

void stk_cli_early_begin(stk_cli_early *early, int signal_fd, void (*report)(void *arg, int number),
                         void *arg)
{
    *early = (stk_cli_early){
        .signal_fd = signal_fd, .stop_fd = eventfd(0, EFD_CLOEXEC), .report = report, .arg = arg};
    early->is_on = signal_fd >= 0 && early->stop_fd >= 0 &&
                   pthread_create(&early->thread, NULL, listen_for_signals, early) == 0;
}

void stk_cli_early_end(stk_cli_early *early)
{
    uint64_t one = 1;
    if (early->is_on) {
        (void)!write(early->stop_fd, &one, sizeof one);
        (void)pthread_join(early->thread, NULL);
        early->is_on = false;
    }
    stk_file_close(&early->stop_fd);
}

int stk_cli_block_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN) {
            sigaddset(&set, numbers[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
