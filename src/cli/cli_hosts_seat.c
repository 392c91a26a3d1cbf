/* One host that is asked: its thread, its questions, and the keys that wait for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_hosts_private.h"
#include "cli/cli_read.h"
#include "sys/clock.h"

/* A host names its runs only; nothing else becomes an argument of `stoker cancel`. */
static bool is_run(const char *text)
{
    return text[0] >= '0' && text[0] <= '9' && text[strspn(text, "0123456789abcdef-")] == '\0';
}

/* Asks for one picture. Takes the lock only to put the answer down. */
static void ask_host(stk_seat *s, uint64_t question, const char *head)
{
    stk_arena *arena = stk_arena_new(0);
    stk_buf text = STK_BUF_INIT(STK_LINK_BODY_MAX);
    stk_err why = {0};
    stk_json answer;
    const stk_link_ask ask = {
        .head = head, .cancel_fd = s->all->cancel_fd, .timeout_ms = ANSWER_MS};
    int rc = stk_err_if_null(arena, &why);
    if (rc == 0) {
        rc = stk_link_call(s->link, &ask, arena, &answer, &text, &why);
    }
    (void)pthread_mutex_lock(&s->all->lock);
    stk_buf_done(&s->text);
    s->text = text;
    s->why = why;
    s->answered = question;
    s->is_late = false;
    s->n_sent = 0;
    if (rc < 0) {
        s->n_keys = 0; /* the screen that they were for is gone */
    } else {
        s->quits = s->quits || stk_json_is_true(stk_json_get(&answer, "quit"));
        s->types = stk_json_is_true(stk_json_get(&answer, "types"));
        const char *cancel = stk_text_or(stk_json_get_text(&answer, "cancel"), "");
        if (is_run(cancel)) { /* what nobody has taken yet stays */
            (void)snprintf(s->cancel, sizeof s->cancel, "%s", cancel);
        }
        s->heard_ms = stk_clock_mono_ms(&stk_clock_real);
    }
    (void)pthread_cond_broadcast(&s->all->changed);
    (void)pthread_mutex_unlock(&s->all->lock);
    stk_arena_free(arena);
}

bool stk_hosts_is_yes(int key)
{
    return key == 'y' || key == 'Y';
}

/* Adds the keys to the question. The answer names one run to cancel, so a yes is the last one. */
static void take_keys(stk_seat *s, stk_buf *head)
{
    bool ends = false;
    stk_json_open(head, "keys", '[');
    for (s->n_sent = 0; s->n_sent < s->n_keys && !ends; s->n_sent++) {
        stk_json_put_int(head, NULL, s->keys[s->n_sent]);
        ends = stk_hosts_is_yes(s->keys[s->n_sent]);
    }
    stk_json_close(head, ']');
    s->n_keys -= s->n_sent;
    memmove(s->keys, s->keys + s->n_sent, s->n_keys * sizeof *s->keys);
    s->looks = false;
}

void *stk_hosts_serve(void *arg)
{
    stk_seat *s = arg;
    stk_hosts *all = s->all;
    (void)pthread_mutex_lock(&all->lock);
    while (!all->has_ended) {
        if (s->answered == s->wanted && s->n_keys == 0) {
            (void)pthread_cond_wait(&all->changed, &all->lock);
            continue;
        }
        uint64_t question = s->wanted;
        STK_BUF_AUTO head = STK_BUF_INIT(1 << 16);
        stk_buf_add(&head, s->ask.data, s->ask.len);
        take_keys(s, &head);
        stk_json_close(&head, '}');
        (void)pthread_mutex_unlock(&all->lock);
        ask_host(s, question, stk_text_or(head.data, "{}"));
        (void)pthread_mutex_lock(&all->lock);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* --- a picture --- */

void stk_hosts_begin_ask(stk_seat *s, const char *op, int columns, int rows)
{
    const stk_style style = stk_cli_style(stdout);
    stk_buf_clear(&s->ask);
    stk_json_open(&s->ask, NULL, '{');
    stk_json_put_text(&s->ask, "op", op);
    stk_json_put_bool(&s->ask, "colour", style.colour);
    stk_json_put_bool(&s->ask, "utf8", style.utf8);
    stk_json_put_whole(&s->ask, "columns", columns);
    stk_json_put_whole(&s->ask, "rows", rows);
}

void stk_hosts_end_ask(stk_seat *s)
{
    s->wanted++;
    (void)pthread_cond_broadcast(&s->all->changed);
}

void stk_hosts_ask_screen(stk_seat *s, const stk_screen_ask *ask)
{
    s->looks = s->looks || ask->looks;
    if (ask->key >= 0 && s->n_keys < HOSTS_KEYS) {
        s->keys[s->n_keys++] = ask->key;
    }
    stk_hosts_begin_ask(s, "screen", ask->columns, ask->rows);
    stk_json_put_bool(&s->ask, "processes", ask->processes);
    stk_json_put_bool(&s->ask, "look", s->looks);
    stk_hosts_end_ask(s);
}

/* A host that is away, or that has kept us waiting before, holds up no picture. */
static bool is_awaited(const stk_seat *s)
{
    return s->answered != s->wanted && s->why.code == 0 && !s->is_late;
}

static bool is_any_awaited(const stk_hosts *h)
{
    bool any = false;
    for (uint32_t i = 0; i < h->n && !any; i++) {
        any = is_awaited(&h->seats[i]);
    }
    return any;
}

void stk_hosts_wait(stk_hosts *h, stk_seat *only, int64_t patience_ms)
{
    const struct timespec until = stk_clock_after(patience_ms);
    while ((only != NULL ? is_awaited(only) : is_any_awaited(h)) &&
           pthread_cond_timedwait(&h->changed, &h->lock, &until) != ETIMEDOUT) {
    }
    for (uint32_t i = 0; i < h->n; i++) {
        stk_seat *s = &h->seats[i];
        s->is_late = s->is_late || ((only == NULL || s == only) && is_awaited(s));
    }
}
