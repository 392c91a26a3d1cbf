/* The program's user, if that user doesn't own the task's files: the runner starts as the
 * container's root, gives the task's folders to the user, and back to their owner at the end. Part
 * of stk-runner: needs only libc, and /etc/passwd and /etc/group if they exist. */
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

/* `user`: "name", "uid", "name:group", "uid:gid" … as in `docker run --user`; `owner`: "uid:gid".
 * If both are "", *ret isn't set. Returns false if there is no such user or group. */
bool runner_user_find(const char *user, const char *owner, runner_user *ret);
/* Gives the writable ones ("wPATH") of `mounts` to the user, and makes all of them reachable. */
void runner_user_give(const runner_user *user, char *const *mounts);
/* Returns the files there to their owner, who can then remove them. Returns false if some
 * stayed. */
bool runner_user_take_back(const runner_user *user, char *const *mounts);
/* Makes this process run as that user. Returns 0 or an errno. */
int runner_user_become(const runner_user *user);

#endif
