/* ssh: steps on machines that ssh reaches (docs/ssh.md). The near end is a driver; the far end, in
 * our program on the host (away/link), keeps a folder and a keeper process for each job. */
#ifndef STK_SSH_H
#define STK_SSH_H

#include "away/link/link.h"
#include "away/remote/remote.h"

extern const stk_driver_kind stk_driver_ssh;

/* What a host answers (ssh_far.c):
 *   ssh.host    what the host has, and whether it can hold requests, now or ever
 *   ssh.start   make a job's folder and its keeper, if it hasn't them yet
 *   ssh.look    how jobs are, and what they printed; waits for news if asked to
 *   ssh.go      let a gang's agent pass its gate
 *   ssh.stop    SIGTERM, after a grace SIGKILL
 *   ssh.forget  remove what is left of a job that has ended */
extern const stk_link_op stk_ssh_far_ops[];

/* The keeper of the job in this folder: starts its agent, ends what is left of it, and writes down
 * how it ended. `ready_fd` is told once the keeper has begun. Returns an exit status. */
int stk_ssh_keep(const char *folder, int ready_fd);

#endif
