/* Private to cli_hosts*.c. */
#ifndef STK_CLI_HOSTS_PRIVATE_H
#define STK_CLI_HOSTS_PRIVATE_H

#include <pthread.h>

#include "cli/cli_hosts.h"
#include "show/show_text.h"

enum {
    HOSTS_MAX = 256,
    HOSTS_KEYS = 64, /* that wait for one host */
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
    uint64_t wanted;   /* counts the questions … */
    uint64_t answered; /* … of which this one has been answered */
    stk_buf ask;
    int64_t heard_ms; /* its time; 0: never */
    stk_buf text;
    stk_err why;  /* with a code: instead of a text */
    bool is_late; /* it kept a picture waiting, and still hasn't answered */
    /* of a screen */
    bool quits, types;
    bool looks; /* the next question is for a new look at the host, too */
    int keys[HOSTS_KEYS];
    uint32_t n_keys;  /* not sent yet */
    uint32_t n_sent;  /* sent, but without an answer yet */
    bool said_yes;    /* a key that confirms was among them */
    char cancel[128]; /* the run that this machine is asked to cancel; "": none */
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
    bool has_ended;
};

/* Adds the pictures of all hosts. Needs the lock. */
void stk_hosts_put(stk_hosts *hosts, stk_buf *out);
/* Adds the host's screen in exactly `rows` lines. Needs the lock. */
void stk_hosts_put_screen(const stk_seat *seat, const stk_style *style, int rows, stk_buf *out);
/* Why a host has no picture, or NULL if it has one. Needs the lock. */
const char *stk_hosts_say_away(const stk_seat *seat, char *buf, size_t size);
/* What is asked of a host: `ask` without its last brace. Needs the lock. */
void stk_hosts_begin_ask(stk_seat *seat, const char *op, int columns, int rows);
/* Asks the host; stk_hosts_wait waits for the answers of all, or of one. Both need the lock. */
void stk_hosts_end_ask(stk_seat *seat);
void stk_hosts_wait(stk_hosts *hosts, stk_seat *only, int64_t patience_ms);

typedef struct stk_screen_ask {
    int columns, rows;
    bool processes;
    bool looks; /* anew at the host */
    int key;    /* below 0: none */
} stk_screen_ask;

/* Asks the host for its screen. Keys that it hasn't got yet go with the question, in their order;
 * one more than HOSTS_KEYS is dropped. Needs the lock. */
void stk_hosts_ask_screen(stk_seat *seat, const stk_screen_ask *ask);
bool stk_hosts_is_yes(int key);
void *stk_hosts_serve(void *seat); /* a thread's function: asks, until all has ended */
/* Opens the stack's hosts, with a thread each; to be closed even after an error. */
int stk_hosts_open(const stk_cli *cli, const char *stack, const stk_cli_look *look, stk_hosts **ret,
                   stk_err *err);
void stk_hosts_close(stk_hosts *hosts);

#endif
