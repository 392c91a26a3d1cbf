/* Signals before the first task: a signal ends the command at once, whatever it waits for (an
 * engine, a registry, a share). It leaves no more behind than SIGKILL would, which is harmless. */
#ifndef STK_CLI_EARLY_H
#define STK_CLI_EARLY_H

#include <pthread.h>
#include <stdbool.h>

typedef struct stk_cli_early {
    int signal_fd, stop_fd;
    void (*report)(void *arg, int number); /* reports the signal; called by another thread */
    void *arg;
    pthread_t thread;
    bool is_on;
} stk_cli_early;

/* From here on, a signal that `signal_fd` reads ends the process with 130 for SIGINT, else 143. If
 * no thread can be started, signals wait until stk_cli_early_end. */
void stk_cli_early_begin(stk_cli_early *early, int signal_fd, void (*report)(void *arg, int number),
                         void *arg);
void stk_cli_early_end(stk_cli_early *early);

/* Blocks the signals that we handle, before any thread or child exists. Ctrl-C reaches the whole
 * foreground group: we decide for all of it. Signals that our parent made us ignore (nohup, a
 * shell's background job) stay unblocked, as the kernel would queue them for us if they were
 * blocked. */
/* Returns the signalfd. */
int stk_cli_block_signals(void);

#endif
