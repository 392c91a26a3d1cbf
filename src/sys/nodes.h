/* nodes: the other machines on which this one may start parts of a gang.
 *
 * A file lists them: $STOKER_NODES, else ~/.config/stoker/nodes. Its first line is the address by
 * which the others reach this machine. Each line after it has a node's name and the command prefix
 * that runs a shell there:
 *
 *     192.168.1.10
 *     ws2   ssh -o BatchMode=yes ws2
 *
 * A node is any place where `WORDS sh` runs its standard input: another machine, a container, a
 * network namespace. "#" begins a comment. */
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
    const char *path;    /* of the file, even if it doesn't exist */
    const char *address; /* of this machine */
    const stk_node *others;
    uint32_t n_others; /* 0: no such file */
} stk_nodes;

/* Allocates in `arena`. STK_E_SPEC: an invalid line. */
int stk_nodes_read(stk_arena *arena, stk_nodes *ret_nodes, stk_err *err);

#endif
