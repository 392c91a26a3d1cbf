/* Signals before the first task: whatever a command waits for then (an engine, a registry, a
 * share), it ends at once. What it leaves behind is what a kill leaves, and that is nothing that
 * harms. */
#ifndef STK_CLI_EARLY_H
#define STK_CLI_EARLY_H

#include <pthread.h>
#include <stdbool.h>

typedef struct stk_cli_early {
    int signal_fd, stop_fd;
    void (*tell)(void *arg, int number); /* says so; by another thread */
    void *arg;
    pthread_t thread;
    bool is_on;
} stk_cli_early;

/* From here on a signal that `signal_fd` reads ends the process: 130 for SIGINT, else 143. Where no
 * thread can be had signals wait until the end of this. */
void stk_cli_early_begin(stk_cli_early *early, int signal_fd, void (*tell)(void *arg, int number),
                         void *arg);
void stk_cli_early_end(stk_cli_early *early);

/* The signals we answer, before any thread or child exists. Ctrl-C reaches the whole foreground
 * group: we decide for all. What whoever started us ignores (nohup, a shell's background) stays so:
 * a blocked signal would be kept for us even then. */
/* Returns their signalfd. */
int stk_cli_block_signals(void);

#endif
