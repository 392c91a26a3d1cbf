#include "cli/cli_live.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "show/top/top.h"
#include "sys/file.h"

enum { SAID = 300 };

typedef struct live {
    stk_top *top;
    stk_top_screen *screen;
    pid_t cancelling; /* 0: nothing is being cancelled */
    int said_fd;      /* what that says */
} live;

/* --- cancelling: this program itself does it, with the words that a user would type --- */

static int spawn_cancel(live *l, const char *store, const char *run, stk_err *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all;
    char program[] = "stoker", word[] = "cancel";
    STK_TEXT_AUTO name = strdup(run);
    char *const argv[] = {program, word, name, NULL};
    STK_TRY(stk_err_if_null(name, err));
    l->said_fd = memfd_create("said", MFD_CLOEXEC);
    if (l->said_fd < 0 || setenv("STOKER_STORE", store, 1) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making a file for an answer");
    }
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, l->said_fd, 1);
    (void)posix_spawn_file_actions_adddup2(&files, l->said_fd, 2);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setsigdefault(&how, &all);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    int rc = posix_spawn(&l->cancelling, "/proc/self/exe", &files, &how, argv, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    if (rc != 0) {
        l->cancelling = 0;
        return stk_err_sys(err, STK_E_SYS, rc, "starting 'stoker cancel'");
    }
    return 0;
}

static void begin_cancel(live *l)
{
    const char *store = NULL, *run = NULL;
    char text[SAID];
    stk_err err = {0};
    stk_top_screen_asked(l->screen, &store, &run);
    if (l->cancelling != 0) {
        stk_top_screen_say(l->screen, "another run is being cancelled; try again", true);
    } else if (spawn_cancel(l, store, run, &err) < 0) {
        stk_file_close(&l->said_fd);
        stk_top_screen_say(l->screen, err.text, true);
    } else {
        (void)snprintf(text, sizeof text, "cancelling run %s", run);
        stk_top_screen_say(l->screen, text, false);
    }
}

static void hear_cancel(live *l)
{
    int status = 0;
    if (l->cancelling == 0 || waitpid(l->cancelling, &status, WNOHANG) != l->cancelling) {
        return;
    }
    char text[SAID];
    bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ssize_t n = pread(l->said_fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    const char *said =
        stk_text_or(stk_text_if_any(text), is_done ? "done" : "this was not possible");
    stk_top_screen_say(l->screen, said, !is_done);
    stk_file_close(&l->said_fd);
    l->cancelling = 0;
}

/* --- the loop's calls --- */

static int draw_live(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    live *l = arg;
    stk_style style = stk_cli_style(stdout);
    style.columns = frame->columns;
    if (frame->is_due) {
        STK_TRY(stk_top_look(l->top, err));
    }
    hear_cancel(l);
    return stk_top_screen_draw(l->screen, &style, frame->rows, out, err);
}

static bool press_key(void *arg, int key)
{
    live *l = arg;
    switch (stk_top_screen_key(l->screen, key)) {
    case STK_TOP_QUIT:
        return true;
    case STK_TOP_CANCEL:
        begin_cancel(l);
        break;
    case STK_TOP_STAY:
        break;
    }
    return false;
}

int stk_cli_live(const stk_cli *cli, bool processes, int64_t period_ms, int64_t n_times,
                 stk_err *err)
{
    live l = {.said_fd = -1};
    const stk_cli_picture picture = {.draw = draw_live, .key = press_key, .arg = &l};
    int rc = stk_top_open(&l.top, err);
    if (rc == 0) {
        l.screen = stk_top_screen_new(l.top, processes);
        rc = stk_err_if_null(l.screen, err);
    }
    if (rc == 0) {
        rc = stk_cli_redraw(cli, period_ms, n_times, &picture, err);
    }
    stk_top_screen_free(l.screen);
    stk_top_close(l.top);
    stk_file_close(&l.said_fd);
    return rc;
}
