/* Private to cli_hosts*.c. */
#ifndef STK_CLI_HOSTS_PRIVATE_H
#define STK_CLI_HOSTS_PRIVATE_H

#include <pthread.h>

#include "cli/cli_hosts.h"

enum {
    HOSTS_MAX = 256,
    ONLY_MS = 20000, /* to wait for a single picture, which may bring our program to new hosts */
    EACH_MS = 2000,  /* … for one of many */
    FRESH_MS = 5000, /* a picture is shown until it is so old */
    ANSWER_MS = 20000
};

typedef struct stk_hosts stk_hosts;

/* One host, with a thread that asks it. Its fields below `lock` are under that of `all`. */
typedef struct stk_seat {
    stk_hosts *all;
    const char *name;
    stk_link *link;
    pthread_t thread;
    bool has_thread;
    uint64_t answered; /* the round of the answer */
    int64_t heard_ms;  /* its time; 0: never */
    stk_buf text;
    stk_err why; /* with a code: instead of a text */
} stk_seat;

struct stk_hosts {
    const stk_cli *cli;
    const stk_cli_look *look;
    const char *stack;
    stk_seat seats[HOSTS_MAX];
    uint32_t n;
    stk_arena *arena;
    int cancel_fd;
    bool has_heard; /* from any */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t round; /* of the picture that is made; the rest belongs to it */
    bool has_ended;
    stk_buf ask;
};

/* Adds the pictures of all hosts. Needs the lock. */
void stk_hosts_put(stk_hosts *hosts, stk_buf *out);

#endif
