/* nodes: which other machines may this one start parts of a gang on, and how?
 *
 * A file says so: $STOKER_NODES, else ~/.config/stoker/nodes. Its first line is the address by
 * which the others reach this machine; each line after it a node's name and the words before a
 * shell there:
 *
 *     192.168.1.10
 *     ws2   ssh -o BatchMode=yes ws2
 *
 * A node is any place where `WORDS sh` runs what it reads: another machine, a container, a network
 * namespace. "#" begins a remark. */
#ifndef STK_SYS_NODES_H
#define STK_SYS_NODES_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_node {
    const char *name;
    const char *const *words; /* NULL-terminated, at least one */
} stk_node;

typedef struct stk_nodes {
    const char *path;    /* of the file, there or not */
    const char *address; /* of this machine */
    const stk_node *others;
    uint32_t n_others; /* 0: there is no such file */
} stk_nodes;

/* In `arena`. STK_E_SPEC: a line that makes no sense. */
int stk_nodes_read(stk_arena *arena, stk_nodes *ret_nodes, stk_err *err);

#endif
