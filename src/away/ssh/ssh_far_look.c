/* How jobs of this host are, and what they printed. The kernel wakes us when something happens in
 * their folders, so that an end is known at once. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    PIECE = 64 << 10,
    WAIT_MAX_MS = 30000,
    WATCH = IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE
};

typedef struct asked {
    const stk_json *job;
    char folder[PATH_MAX];
    ssh_job_now now;
} asked;

/* Is it other than what the asker knows? */
static bool is_news(const asked *a)
{
    const char *known = stk_text_or(stk_json_get_text(a->job, "state"), "");
    return strcmp(known, stk_ssh_state_word(a->now.state)) != 0 ||
           a->now.is_held != stk_json_is_true(stk_json_get(a->job, "held")) ||
           a->now.log_bytes > stk_json_get_whole(a->job, "from", 0);
}

static int look_at_all(asked *all, uint32_t n, bool *ret_news, stk_err *err)
{
    *ret_news = false;
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_ssh_job_look(all[i].folder, &all[i].now, err));
        *ret_news = *ret_news || is_news(&all[i]);
    }
    return 0;
}

/* Until something happens in a folder, or for wait_ms. False: nobody waits for the answer. */
static bool await_news(int watch_fd, int64_t wait_ms)
{
    char events[4096];
    struct pollfd fds[2] = {{.fd = watch_fd, .events = POLLIN},
                            {.fd = stk_link_end_fd(), .events = POLLIN}};
    if (poll(fds, 2, (int)MAX(wait_ms, 0)) > 0 && fds[0].revents != 0) {
        (void)!read(watch_fd, events, sizeof events);
    }
    return fds[1].revents == 0;
}

/* Appends what the asker doesn't have yet; returns its size. */
static size_t add_log(const asked *a, stk_buf *body)
{
    char path[PATH_MAX], data[PIECE];
    int64_t from = stk_json_get_whole(a->job, "from", 0);
    if (a->now.log_bytes <= from || from < 0 || body->len + PIECE > STK_LINK_BODY_MAX) {
        return 0;
    }
    stk_ssh_job_path(a->folder, "out", path);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    ssize_t n = fd < 0 ? 0 : pread(fd, data, sizeof data, (off_t)from);
    if (n <= 0 || stk_buf_add(body, data, (size_t)n) < 0) {
        return 0;
    }
    return (size_t)n;
}

static void put_answer(const asked *all, uint32_t n, stk_buf *ret, stk_buf *body)
{
    stk_json_open(ret, "jobs", '[');
    for (uint32_t i = 0; i < n; i++) {
        const ssh_job_now *now = &all[i].now;
        stk_json_open(ret, NULL, '{');
        stk_json_put_text(ret, "name", stk_json_get_text(all[i].job, "name"));
        stk_json_put_text(ret, "state", stk_ssh_state_word(now->state));
        stk_json_put_bool(ret, "held", now->is_held);
        stk_json_put_whole(ret, "exit_status", now->exit_status);
        stk_json_put_whole(ret, "signal", now->signal);
        stk_json_put_text(ret, "text", now->text);
        stk_json_put_whole(ret, "log_bytes", now->log_bytes);
        stk_json_put_whole(ret, "piece", (int64_t)add_log(&all[i], body));
        stk_json_close(ret, '}');
    }
    stk_json_close(ret, ']');
}

int stk_ssh_far_look(const stk_json *ask, const void *body, size_t n_body, stk_buf *ret,
                     stk_buf *ret_body, stk_err *err)
{
    const stk_json *jobs = stk_json_get(ask, "jobs");
    uint32_t n = stk_json_n_items(jobs);
    int64_t wait = MIN(stk_json_get_whole(ask, "wait_ms", 0), WAIT_MAX_MS);
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + wait;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    asked *all = stk_arena_array(arena, (size_t)n + 1, sizeof *all);
    STK_FD_AUTO watch_fd = wait > 0 ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    bool is_new = false;
    (void)body, (void)n_body;
    STK_TRY(stk_err_if_null(all, err));
    for (uint32_t i = 0; i < n; i++) {
        all[i].job = stk_json_item(jobs, i);
        STK_TRY(stk_ssh_job_folder(stk_json_get_text(all[i].job, "name"), all[i].folder, err));
        if (watch_fd >= 0) {
            (void)inotify_add_watch(watch_fd, all[i].folder, WATCH);
        }
    }
    STK_TRY(look_at_all(all, n, &is_new, err));
    for (int64_t now = 0; !is_new && (now = stk_clock_mono_ms(&stk_clock_real)) < until;) {
        if (!await_news(watch_fd, until - now)) {
            return 0;
        }
        STK_TRY(look_at_all(all, n, &is_new, err));
    }
    if (n > 0 && !stk_ssh_has_room(all[0].folder)) {
        stk_json_put_text(ret, "full", all[0].folder);
    }
    put_answer(all, n, ret, ret_body);
    return 0;
}
