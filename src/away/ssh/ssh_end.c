/* The end of a job: its results are brought to the store, it is reported, and at last forgotten. */
#include <stdio.h>
#include <string.h>

#include "away/ssh/ssh_driver.h"

enum { TOLD_MS = 30000 };

void stk_ssh_report_end(ssh_driver *d, ssh_task *t)
{
    const ssh_part *worst = &t->parts[0];
    for (uint32_t p = 1; p < t->n_parts; p++) {
        bool is_good = worst->now.state == SSH_JOB_ENDED && worst->now.exit_status == 0;
        if (is_good || (t->parts[p].now.state == SSH_JOB_LOST && !is_good)) {
            worst = &t->parts[p];
        }
    }
    stk_remote_report r = {.state = STK_REMOTE_ENDED,
                           .id = t->id,
                           .attempt = t->attempt,
                           .exit_status = worst->now.exit_status,
                           .signal = worst->now.signal};
    (void)snprintf(r.text, sizeof r.text, "%s", worst->now.text);
    if (t->is_stopped) {
        r.state = STK_REMOTE_FAILED;
        r.failure = t->why;
        r.text[0] = '\0';
    } else if (worst->now.state == SSH_JOB_LOST) {
        r.state = STK_REMOTE_FAILED;
        r.failure = STK_FAIL_LOST;
        (void)snprintf(r.text, sizeof r.text, "its job on %s is gone: %.800s",
                       d->hosts[worst->host].name, worst->now.text);
    }
    stk_ssh_release(d, t, true);
    t->phase = SSH_OVER;
    d->base.say(d->base.say_arg, &r);
}

static void run_bring(ssh_driver *d, ssh_work *w)
{
    for (uint32_t p = 0; p < w->n_parts && w->rc == 0; p++) {
        if (stk_ssh_is_mirror(d, w->parts[p].host)) {
            w->rc = stk_ssh_mirror_out(d, w->parts[p].host, p, w->key, &w->err);
        }
    }
}

static void brought(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = stk_ssh_task(d, w->id, w->attempt);
    if (t == NULL) {
        return;
    }
    t->is_at_work = false;
    if (w->rc < 0 && (stk_link_may_pass(&w->err) || stk_share_may_pass(&w->err))) {
        t->again_ms = stk_ssh_now_ms() + SSH_AGAIN_MS;
        stk_ssh_waits(d, t, w->err.text);
        return;
    }
    if (w->rc < 0 && w->rc != STK_E_CANCELLED) {
        char text[1000];
        (void)snprintf(text, sizeof text, "its results can't be brought to the store: %s",
                       w->err.text);
        stk_ssh_say(d, t, STK_REMOTE_NOTE, text);
    }
    stk_ssh_report_end(d, t);
}

void stk_ssh_bring_results(ssh_driver *d, ssh_task *t)
{
    bool is_mirrored = false;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        is_mirrored = is_mirrored || stk_ssh_is_mirror(d, t->parts[p].host);
    }
    if (!is_mirrored || t->spec->reads) {
        stk_ssh_report_end(d, t);
        return;
    }
    ssh_work *w = stk_ssh_work_new(run_bring, brought, -1);
    if (w == NULL || (w->parts = stk_arena_array(w->arena, t->n_parts, sizeof *w->parts)) == NULL) {
        stk_ssh_work_free(w);
        return;
    }
    for (uint32_t p = 0; p < t->n_parts; p++) {
        w->parts[w->n_parts++] = t->parts[p];
    }
    w->key = stk_arena_dup(w->arena, t->key);
    w->id = t->id;
    w->attempt = t->attempt;
    t->is_at_work = stk_ssh_work_begin(d, w);
}

/* --- its remains --- */

static void run_forget(ssh_driver *d, ssh_work *w)
{
    stk_ssh_ask(d, w);
    if (w->key != NULL) {
        stk_ssh_mirror_drop(d, (uint32_t)w->host, w->key);
    }
}

static void forgotten(ssh_driver *d, ssh_work *w)
{
    (void)w;
    pthread_mutex_lock(&d->lock);
    d->n_forgets--;
    pthread_mutex_unlock(&d->lock);
}

void stk_ssh_forget(ssh_driver *d, ssh_task *t, uint32_t part)
{
    const ssh_part *p = &t->parts[part];
    STK_BUF_AUTO out = STK_BUF_INIT(4096);
    ssh_work *w = stk_ssh_work_new(run_forget, forgotten, (int)p->host);
    if (w == NULL) {
        return;
    }
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "op", "ssh.forget");
    stk_json_put_text(&out, "name", stk_ssh_part_name(t, part, w->arena));
    stk_json_close(&out, '}');
    w->head = stk_buf_keep(&out, w->arena);
    w->timeout_ms = TOLD_MS;
    if (stk_ssh_is_mirror(d, p->host)) {
        w->key = stk_arena_dup(w->arena, t->key);
    }
    pthread_mutex_lock(&d->lock);
    d->n_forgets++;
    pthread_mutex_unlock(&d->lock);
    (void)stk_ssh_work_begin(d, w);
}
