/* The program's user, where it isn't who owns the task's files: the runner begins as the
 * container's root, gives the task's folders to that user, and back to their owner at the end. Part
 * of stk-runner: needs nothing but libc, /etc/passwd and /etc/group where they are. */
#ifndef STK_RUNNER_USER_H
#define STK_RUNNER_USER_H

#include <stdbool.h>
#include <sys/types.h>

enum { RUNNER_GROUPS_MAX = 256 };

typedef struct runner_user {
    bool is_set;
    uid_t uid, owner_uid;
    gid_t gid, owner_gid;
    gid_t groups[RUNNER_GROUPS_MAX];
    int n_groups;
    char home[1024];
} runner_user;

/* "name", "uid", "name:group", "uid:gid" … as `docker run --user` has it; `owner` "uid:gid". "" of
 * both: *ret isn't set. False: there is no such user or group. */
bool runner_user_find(const char *user, const char *owner, runner_user *ret);
/* Hands over what can be written ("wPATH") of `mounts`, and makes all of them reachable. */
void runner_user_give(const runner_user *user, char *const *mounts);
/* What lies there belongs to its owner again, who can remove it. False: some of it couldn't. */
bool runner_user_take_back(const runner_user *user, char *const *mounts);
/* This process becomes that user. 0 or an errno. */
int runner_user_become(const runner_user *user);

#endif
