#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_hosts_private.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "image/stack/stack.h"
#include "sys/clock.h"
#include "sys/file.h"

/* Asks all hosts, and waits for their answers. */
static void ask_all_hosts(stk_hosts *h, int rows)
{
    int64_t patience_ms = EACH_MS;
    if (h->look->n_times == 1) {
        patience_ms = ONLY_MS;
    }
    int rows_each = 0, columns = 1075; /* a file has no width to fit */
    if (rows > 0) {
        rows_each = MAX(rows / (int)h->n - 2, 1); /* beside the host's name and a blank line */
    }
    if (isatty(STDOUT_FILENO)) {
        columns = stk_cli_style(stdout).columns;
    }
    for (uint32_t i = 0; i < h->n; i++) {
        stk_seat *s = &h->seats[i];
        stk_hosts_begin_ask(s, h->look->op, columns, rows_each);
        stk_json_put_text(&s->ask, "form", h->look->form);
        stk_json_put_text(&s->ask, "topology", h->look->topology);
        stk_hosts_end_ask(s);
    }
    stk_hosts_wait(h, NULL, patience_ms);
}

static int draw_hosts(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    stk_hosts *h = arg;
    (void)err;
    (void)pthread_mutex_lock(&h->lock);
    if (frame->is_due) {
        ask_all_hosts(h, frame->rows);
    }
    stk_hosts_put(h, out);
    (void)pthread_mutex_unlock(&h->lock);
    return 0;
}

static int read_hosts(stk_hosts *h, const char *name, stk_err *err)
{
    stk_stack stack;
    const stk_json *list = NULL;
    STK_TRY(stk_err_if_null(h->arena, err));
    STK_TRY(stk_stack_find(".", name, h->arena, &stack, err));
    if (stack.kind != STK_PLACE_SSH) {
        return stk_err_set(err, STK_E_USAGE,
                           "stack '%s' has backend %s; --stack takes one of backend ssh, whose "
                           "hosts are machines of its own",
                           name, stk_place_word(stack.kind));
    }
    const stk_json *options = stk_json_read(h->arena, stack.options);
    uint32_t n = stk_json_as_list(stk_json_get(options, "hosts"), &list);
    if (n == 0 || n > HOSTS_MAX) {
        return stk_err_set(err, STK_E_USAGE,
                           "stack '%s' has %u hosts; add `hosts: [HOST]` to it in stoker.yaml, at "
                           "most %d",
                           name, n, HOSTS_MAX);
    }
    for (uint32_t i = 0; i < n; i++) {
        h->seats[i] = (stk_seat){.all = h,
                                 .name = stk_text_or(stk_json_text(&list[i]), ""),
                                 .ask = STK_BUF_INIT(1 << 16)};
        h->n = i + 1;
        STK_TRY(stk_link_open(h->seats[i].name, &h->seats[i].link, err));
    }
    return 0;
}

static int start_threads(stk_hosts *h, stk_err *err)
{
    h->cancel_fd = eventfd(0, EFD_CLOEXEC);
    if (h->cancel_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "threads for the hosts");
    }
    for (uint32_t i = 0; i < h->n; i++) {
        int failed = pthread_create(&h->seats[i].thread, NULL, stk_hosts_serve, &h->seats[i]);
        if (failed != 0) {
            return stk_err_sys(err, STK_E_SYS, failed, "threads for the hosts");
        }
        h->seats[i].has_thread = true;
    }
    return 0;
}

void stk_hosts_close(stk_hosts *h)
{
    const uint64_t one = 1;
    if (h == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&h->lock);
    h->has_ended = true;
    (void)pthread_cond_broadcast(&h->changed);
    (void)pthread_mutex_unlock(&h->lock);
    if (h->cancel_fd >= 0) {
        (void)!write(h->cancel_fd, &one, sizeof one);
    }
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->seats[i].has_thread) {
            (void)pthread_join(h->seats[i].thread, NULL);
        }
    }
    for (uint32_t i = 0; i < h->n; i++) {
        stk_link_close(h->seats[i].link);
        stk_buf_done(&h->seats[i].text);
        stk_buf_done(&h->seats[i].ask);
    }
    stk_file_close(&h->cancel_fd);
    stk_arena_free(h->arena);
    free(h);
}

int stk_hosts_open(const stk_cli *cli, const char *stack, const stk_cli_look *look, stk_hosts **ret,
                   stk_err *err)
{
    stk_hosts *h = *ret = calloc(1, sizeof *h);
    STK_TRY(stk_err_if_null(h, err));
    h->cli = cli;
    h->look = look;
    h->stack = stack;
    h->cancel_fd = -1;
    h->arena = stk_arena_new(0);
    (void)pthread_mutex_init(&h->lock, NULL);
    stk_clock_cond_init(&h->changed);
    STK_TRY(read_hosts(h, stack, err));
    return start_threads(h, err);
}

int stk_cli_hosts(const stk_cli *cli, const char *name, const stk_cli_look *look, stk_err *err)
{
    stk_hosts *h = NULL;
    int rc = stk_hosts_open(cli, name, look, &h, err);
    if (rc == 0) {
        const stk_cli_picture picture = {.draw = draw_hosts, .arg = h};
        rc = stk_cli_redraw(cli, look->period_ms, look->n_times, &picture, err);
    }
    if (rc == 0 && !h->has_heard) {
        rc = 3;
    }
    stk_hosts_close(h);
    return rc;
}
