/* Private to link: frames, ssh, and the requests of a connection. */
#ifndef STK_LINK_PRIVATE_H
#define STK_LINK_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "away/link/link.h"

#define LINK_HELLO "stoker-far "
#define LINK_VERSION 1

/* --- frames: u32 bytes of head, u32 bytes of body, u64 id, all little-endian; head; body --- */

enum { LINK_PREFIX = 16 };

typedef struct link_frame {
    uint64_t id;
    uint32_t n_head, n_body;
    char *data; /* malloc'd: the head, a NUL, the body */
} link_frame;

static inline const char *stk_link_frame_body(const link_frame *f)
{
    return f->data + f->n_head + 1;
}
void stk_link_frame_done(link_frame *f);
#define LINK_FRAME_AUTO __attribute__((cleanup(stk_link_frame_done))) link_frame

/* A frame that arrives in pieces. */
typedef struct link_reader {
    unsigned char prefix[LINK_PREFIX];
    size_t n_prefix; /* bytes of it that are there */
    size_t at;       /* bytes of head and body */
    link_frame frame;
    bool blocks; /* its descriptor does: it is read once a call, when it is ready */
} link_reader;

/* Reads what there is, at most to the end of a frame. 1: *ret is a frame; 0: later; else an error:
 * STK_E_NOT_FOUND at the end of the stream, STK_E_PROTOCOL: no frame. */
int stk_link_reader_read(link_reader *r, int fd, link_frame *ret, stk_err *err);
void stk_link_reader_done(link_reader *r);

void stk_link_frame_prefix(uint64_t id, size_t n_head, size_t n_body,
                           unsigned char ret[LINK_PREFIX]);
/* A whole frame, malloc'd; NULL: no memory. */
char *stk_link_frame_make(uint64_t id, const char *head, size_t n_head, const void *body,
                          size_t n_body, size_t *ret_n);

/* --- ssh --- */

enum { LINK_WORDS = 4096 };

typedef struct link_ssh {
    pid_t pid;              /* 0: none */
    int to, from, wrong;    /* its standard input, output and error; ours don't block */
    char words[LINK_WORDS]; /* the end of what it said on standard error */
    size_t n_words;
} link_ssh;

/* Starts ssh and, by it, our program there: until its first line has come. `stop_fd`: readable:
 * give up (STK_E_CANCELLED). On failure ssh has ended. */
int stk_link_ssh_start(const char *host, int stop_fd, link_ssh *ret, stk_err *err);
/* Keeps the end of what is there to be read from its standard error. */
void stk_link_ssh_listen(link_ssh *ssh);
/* Ends it, if it hasn't ended by itself, and closes all. Returns what waitpid says. */
int stk_link_ssh_end(link_ssh *ssh);
/* The error of a connection that ended, by what ssh said. `was_up`: our program had answered. */
int stk_link_ssh_explain(const link_ssh *ssh, const char *host, bool was_up, int status,
                         stk_err *err);
/* STK_E_ENV with this errno, whose own words say nothing. Returns STK_E_ENV. */
int stk_link_env(stk_err *err, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The words of ssh, without what says nothing: at most the last three lines, as one. */
const char *stk_link_ssh_words(const link_ssh *ssh, char *ret, size_t size);
/* Options by which an unknown host key isn't accepted unseen for good, where the user's
 * configuration says so. Adds at most 4 words to `argv`. */
void stk_link_ssh_strict(const char *program, const char *host, stk_arena *arena, const char **argv,
                         size_t *n);
/* The script that starts our program there, for any login shell. NULL: no memory. */
const char *stk_link_script(const char *digest, int64_t bytes, stk_arena *arena);

/* --- the near end's connection --- */

typedef struct link_out {
    struct link_out *next;
    uint64_t id;
    char *data;
    size_t n, at; /* bytes in all, and sent */
} link_out;

/* Lies on its caller's stack. */
typedef struct link_request {
    struct link_request *next;
    uint64_t id;
    int64_t timeout_ms;
    int64_t deadline_ms; /* 0: not yet, because there is no connection */
    int done_fd;         /* readable once it is done */
    bool is_sent;        /* the first byte is on its way */
    bool is_done;
    int rc;
    stk_err err;
    link_frame answer;
} link_request;

struct stk_link {
    char *host;
    struct stk_link *next; /* of the open ones */
    uint32_t n_users;      /* guarded by the list's lock */
    int wake_fd;           /* tells the thread that there is something new */
    int stop_fd;           /* readable once the link is closed */
    pthread_t thread;
    _Atomic uint64_t round;
    pthread_mutex_t lock; /* of what follows */
    bool has_thread;
    uint64_t last_id;
    link_request *requests;
    link_out *outs, **outs_end;
};

/* The thread that makes the connection and keeps it as long as the link is open. */
void *stk_link_io(void *arg);
void stk_link_wake(const struct stk_link *link);

#endif
