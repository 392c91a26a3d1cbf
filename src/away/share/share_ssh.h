/* Private to share: a folder of another host, and one request to it. */
#ifndef STK_SHARE_SSH_H
#define STK_SHARE_SSH_H

#include <pthread.h>

#include "away/link/link.h"
#include "away/share/share_private.h"

enum { STK_SHARE_DONE = 32 };

struct stk_share_ssh {
    stk_link *link;
    char *folder;         /* as the URL has it: "/abs", "~", "~/x" */
    pthread_mutex_t lock; /* of what follows */
    /* Second names of objects that this end has created only once, to be removed there. */
    char done[STK_SHARE_DONE][40];
    uint32_t n_done;
};

typedef struct stk_share_ask {
    stk_buf head; /* the request's JSON, still open */
    const void *body;
    size_t n;
    stk_arena *arena;  /* of the answer */
    stk_json answer;   /* its head */
    stk_buf *ret_body; /* or NULL */
} stk_share_ask;

void stk_share_ask_done(stk_share_ask *ask);
#define STK_SHARE_ASK_AUTO __attribute__((cleanup(stk_share_ask_done))) stk_share_ask

/* Begins a request; `key` may be NULL. Its further members are put into ask->head. */
void stk_share_ask_begin(stk_share *share, const char *op, const char *key, stk_share_ask *ask);
/* Sends it, again if the connection broke: at least one try that was carried out may have lost its
 * answer. */
int stk_share_ask_send(stk_share *share, stk_share_ask *ask, stk_err *err);
/* Notes a second name. */
void stk_share_ssh_done(stk_share *share, const char *name);

int stk_share_ssh_put_file(stk_share *share, const char *key, const char *path, const char *digest,
                           stk_err *err);
int stk_share_ssh_get_file(stk_share *share, const char *key, const char *path, const char *digest,
                           int64_t size, stk_err *err);
/* Content in memory that is too large for one request. */
int stk_share_ssh_put_large(stk_share *share, const char *key, const void *data, size_t n,
                            bool only_new, stk_err *err);

#endif
