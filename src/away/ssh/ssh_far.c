/* The far end's small handlers, and the table of all. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "sys/file.h"

enum { LOCK_TRIES = 1000 };

/* A file in the job's folder is the message, so that it is there whenever the keeper looks: also
 * one that is only on its way, and then makes no difference to a job that has ended. */
static int tell_keeper(const stk_json *ask, const char *name, const char *text, stk_err *err)
{
    char folder[PATH_MAX], path[PATH_MAX];
    STK_TRY(stk_ssh_job_folder(stk_json_get_text(ask, "name"), folder, err));
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_ENV, errno, "making %s", folder);
    }
    stk_ssh_job_path(folder, name, path);
    return stk_file_write_atomic(path, text, strlen(text), 0600, err);
}

static int let_go(const stk_json *ask, const void *body, size_t n, stk_buf *ret, stk_buf *ret_body,
                  stk_err *err)
{
    (void)body, (void)n, (void)ret, (void)ret_body;
    return tell_keeper(ask, "go", "", err);
}

static int stop_job(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                    stk_buf *ret_body, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(256);
    (void)body, (void)n, (void)ret, (void)ret_body;
    stk_json_open(&text, NULL, '{');
    stk_json_put_whole(&text, "grace_ms", stk_json_get_whole(ask, "grace_ms", 0));
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    return tell_keeper(ask, "stop", text.data, err);
}

/* A keeper that has written the end down is about to go. */
static int lock_ended(const char *folder, int *ret_fd, stk_err *err)
{
    int rc = stk_ssh_job_lock(folder, ret_fd, err);
    for (int i = 0; i < LOCK_TRIES && rc == STK_E_BUSY; i++) {
        const struct timespec tick = {.tv_nsec = 10 * 1000000};
        (void)nanosleep(&tick, NULL);
        rc = stk_ssh_job_lock(folder, ret_fd, err);
    }
    return rc;
}

/* Only what has ended goes, under a lock that keeps another keeper from beginning. */
static int forget_job(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    char folder[PATH_MAX];
    STK_FD_AUTO lock = -1;
    ssh_job_now now;
    (void)body, (void)n, (void)ret, (void)ret_body;
    STK_TRY(stk_ssh_job_folder(stk_json_get_text(ask, "name"), folder, err));
    STK_TRY(stk_ssh_job_look(folder, &now, err));
    if (now.state == SSH_JOB_NONE) {
        return 0;
    }
    if (now.state == SSH_JOB_ENDED) {
        STK_TRY(lock_ended(folder, &lock, err));
    } else {
        STK_TRY(stk_ssh_job_lock(folder, &lock, err));
    }
    return stk_file_remove_tree(folder, err);
}

const stk_link_op stk_ssh_far_ops[] = {{"ssh.host", stk_ssh_far_host},
                                       {"ssh.start", stk_ssh_far_start},
                                       {"ssh.look", stk_ssh_far_look},
                                       {"ssh.go", let_go},
                                       {"ssh.stop", stop_job},
                                       {"ssh.forget", forget_job},
                                       {NULL, NULL}};
