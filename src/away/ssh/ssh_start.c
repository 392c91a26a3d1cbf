/* Finds jobs that an earlier engine gave to hosts, and gives new ones to theirs. The store has the
 * names of a job's hosts before any of them is asked, so that an engine that is killed in between
 * leaves no job that nobody knows of. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/ssh/ssh_driver.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "sys/clock.h"

enum { RECORD_BYTES = 64 << 10, START_MS = 60000, GANG_PORTS = 20000 };

/* --- which hosts have it --- */

static int note_end(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    (void)key, (void)size, (void)mtime_ms;
    *(bool *)arg = true;
    return 1;
}

static void run_find(ssh_driver *d, ssh_work *w)
{
    STK_BUF_AUTO text = STK_BUF_INIT(RECORD_BYTES);
    const char *key = stk_arena_printf(w->arena, "%s/host", w->key);
    bool has_ended = false;
    w->rc = stk_share_get(d->share, key, &text, &w->err);
    if (w->rc < 0) {
        return;
    }
    const char *kept = stk_buf_keep(&text, w->arena);
    const stk_json *record = kept == NULL ? NULL : stk_json_read(w->arena, kept);
    const char *end = stk_arena_printf(w->arena, "%s/end.json", w->key);
    if (record != NULL) {
        w->answer = *record;
    }
    if (end != NULL && stk_share_list(d->share, end, NULL, note_end, &has_ended, &w->err) < 0 &&
        !has_ended) {
        w->rc = w->err.code;
    }
    w->round = has_ended;
}

static bool read_record(const ssh_driver *d, ssh_task *t, const stk_json *record)
{
    const stk_json *hosts = stk_json_get(record, "hosts");
    if (stk_json_n_items(hosts) != t->n_parts) {
        return false;
    }
    for (uint32_t p = 0; p < t->n_parts; p++) {
        const char *name = stk_text_or(stk_json_text(stk_json_item(hosts, p)), "");
        int host = stk_ssh_find_host(&d->options, name, strlen(name));
        if (host < 0) {
            return false;
        }
        t->parts[p] = (ssh_part){.host = (uint32_t)host, .is_known = true};
    }
    return true;
}

static void not_found(ssh_driver *d, ssh_task *t)
{
    if (t->is_stopped) {
        stk_ssh_fail(d, t, t->why, false, "stopped before its submission");
    } else if (t->spec->attach || t->spec->reads) {
        stk_ssh_fail(d, t, STK_FAIL_LOST, false, "no host was given its job");
    } else {
        t->phase = SSH_WAITS;
    }
}

static void found(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = stk_ssh_task(d, w->id, w->attempt);
    if (t == NULL) {
        return;
    }
    t->is_at_work = false;
    if (w->rc == STK_E_NOT_FOUND) {
        not_found(d, t);
    } else if (w->rc < 0 && (stk_share_may_pass(&w->err) || stk_link_may_pass(&w->err))) {
        t->again_ms = stk_ssh_now_ms() + SSH_AGAIN_MS;
        stk_ssh_waits(d, t, w->err.text);
    } else if (w->rc < 0) {
        stk_ssh_fail(d, t, STK_FAIL_STORE, false, w->err.text);
    } else if (!read_record(d, t, &w->answer)) {
        stk_ssh_fail(d, t, STK_FAIL_LOST, false, "its hosts aren't in the stack any more");
    } else {
        t->was_recorded = t->may_be_there = true;
        t->has_end = w->round != 0;
        t->phase = SSH_LIVES;
    }
}

void stk_ssh_find(ssh_driver *d, ssh_task *t)
{
    ssh_work *w = stk_ssh_work_new(run_find, found, -1);
    if (w != NULL) {
        w->id = t->id;
        w->attempt = t->attempt;
        w->key = stk_arena_dup(w->arena, t->key);
    }
    t->is_at_work = w != NULL && w->key != NULL && stk_ssh_work_begin(d, w);
}

/* --- a start --- */

static uint32_t port_of(const char *name)
{
    uint32_t sum = 2166136261u;
    for (; *name != '\0'; name++) {
        sum = (sum ^ (unsigned char)*name) * 16777619u;
    }
    return GANG_PORTS + sum % GANG_PORTS;
}

static const char *address_of(const ssh_host *h)
{
    return stk_text_or(h->address, stk_text_or(stk_text_if_any(h->own_address), h->name));
}

/* The order of one part: what all have, its number and CPUs, and where node 0 listens. */
static const char *order_of(ssh_driver *d, const ssh_task *t, uint32_t part, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LINK_HEAD_MAX);
    char rdzv[300];
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "op", "ssh.start");
    stk_json_put_text(&out, "name", stk_ssh_part_name(t, part, arena));
    stk_json_open(&out, "order", '{');
    for (uint32_t i = 0; i < t->order.n; i++) {
        stk_json_put(&out, stk_json_key(&t->order, i)->text, stk_json_value(&t->order, i));
    }
    stk_json_put_int(&out, "node", part);
    if (t->n_parts > 1) {
        (void)snprintf(rdzv, sizeof rdzv, "%s:%u", address_of(&d->hosts[t->parts[0].host]),
                       port_of(t->name));
        stk_json_put_text(&out, "rdzv", rdzv);
    }
    stk_json_open(&out, "cpus", '[');
    for (uint32_t i = 0; i < t->parts[part].n_cpus; i++) {
        char cpu[16];
        (void)snprintf(cpu, sizeof cpu, "%u", t->parts[part].cpus[i]);
        stk_json_put_text(&out, NULL, cpu);
    }
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    stk_json_put_texts(&out, "secrets", t->spec->secret);
    stk_json_close(&out, '}');
    return stk_buf_keep(&out, arena);
}

static const char *record_of(ssh_driver *d, const ssh_task *t, stk_arena *arena)
{
    STK_BUF_AUTO out = STK_BUF_INIT(RECORD_BYTES);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "name", t->name);
    stk_json_open(&out, "hosts", '[');
    for (uint32_t p = 0; p < t->n_parts; p++) {
        stk_json_put_text(&out, NULL, d->hosts[t->parts[p].host].name);
    }
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    return stk_buf_keep(&out, arena);
}

/* What must be in the store and on the hosts before the first of them is asked. */
static int prepare_hosts(ssh_driver *d, ssh_work *w)
{
    const char *key = stk_arena_printf(w->arena, "%s/host", w->key);
    STK_TRY(stk_share_put(d->share, key, w->text, strlen(w->text), false, &w->err));
    for (uint32_t p = 0; p < w->n_parts; p++) {
        if (stk_ssh_is_mirror(d, w->parts[p].host)) {
            STK_TRY(stk_ssh_mirror_in(d, w->parts[p].host, w->key, &w->err));
        }
    }
    return 0;
}

/* w->round: how many of the hosts were asked. */
static void run_start(ssh_driver *d, ssh_work *w)
{
    w->rc = prepare_hosts(d, w);
    STK_FAILPOINT("ssh.start.before");
    for (uint32_t p = 0; p < w->n_parts && w->rc == 0; p++) {
        stk_json answer;
        w->round = p + 1;
        w->rc = stk_ssh_ask_host(d, w->parts[p].host, w->orders[p], START_MS, w->arena, &answer,
                                 NULL, &w->err);
        STK_FAILPOINT("ssh.start.after");
    }
}

/* Nothing of it can be on a host: it waits for one again. */
static void wait_again(ssh_driver *d, ssh_task *t)
{
    stk_ssh_release(d, t, true);
    t->phase = SSH_WAITS;
    t->again_ms = stk_ssh_now_ms() + SSH_AGAIN_MS / 4;
}

static void start_failed(ssh_driver *d, ssh_task *t, const ssh_work *w)
{
    bool may_pass = stk_link_may_pass(&w->err) || stk_share_may_pass(&w->err);
    int64_t now = stk_ssh_now_ms();
    if (w->round == 0 && may_pass) {
        t->again_ms = now + SSH_AGAIN_MS;
        stk_ssh_waits(d, t, w->err.text);
        return;
    }
    if (w->round == 0) {
        stk_ssh_fail(d, t, STK_FAIL_STORE, false, w->err.text);
        return;
    }
    uint32_t host = t->parts[w->round - 1].host;
    bool is_link = stk_link_may_pass(&w->err);
    bool was_asked = !is_link || w->err.sys != ENOTCONN;
    t->may_be_there = t->may_be_there || w->round > 1 || (is_link && was_asked);
    if (is_link) {
        stk_ssh_host_failed(d, host, &w->err);
        t->again_ms = now + SSH_AWAY_MS;
        stk_ssh_waits(d, t, d->hosts[host].trouble);
    } else if (w->err.code == STK_E_FULL) {
        stk_ssh_host_full(d, host, w->err.text);
    } else {
        t->bad |= 1ull << host;
        (void)snprintf(t->why_text, sizeof t->why_text, "can't start it: %s", w->err.text);
    }
    if (!t->may_be_there) {
        wait_again(d, t);
    } else if (!is_link) {
        t->phase = SSH_RETREATS;
    }
}

static void started(ssh_driver *d, ssh_work *w)
{
    ssh_task *t = stk_ssh_task(d, w->id, w->attempt);
    if (t == NULL) {
        return;
    }
    t->is_at_work = false;
    for (uint32_t p = 0; p < w->round && p < t->n_parts; p++) {
        t->parts[p].is_known = true;
    }
    if (w->rc < 0) {
        start_failed(d, t, w);
        return;
    }
    t->phase = SSH_LIVES;
    t->may_be_there = true;
    t->was_recorded = false;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        ssh_host *h = &d->hosts[t->parts[p].host];
        stk_ssh_host_answered(d, t->parts[p].host);
        t->parts[p].none_since_ms = 0; /* an earlier look found nothing yet */
        h->next_look_ms = 0;
    }
}

void stk_ssh_start(ssh_driver *d, ssh_task *t)
{
    ssh_work *w = stk_ssh_work_new(run_start, started, -1);
    t->phase = SSH_STARTS;
    if (w == NULL) {
        return;
    }
    const char **orders = stk_arena_array(w->arena, t->n_parts, sizeof *orders);
    w->parts = stk_arena_array(w->arena, t->n_parts, sizeof *w->parts);
    w->text = record_of(d, t, w->arena);
    w->key = stk_arena_dup(w->arena, t->key);
    bool is_good = orders != NULL && w->parts != NULL && w->text != NULL && w->key != NULL;
    for (uint32_t p = 0; is_good && p < t->n_parts; p++) {
        w->parts[p] = t->parts[p];
        orders[p] = order_of(d, t, p, w->arena);
        is_good = orders[p] != NULL;
    }
    if (!is_good) {
        stk_ssh_work_free(w);
        stk_ssh_fail(d, t, STK_FAIL_START, true, "its order is larger than 4 MiB");
        return;
    }
    w->orders = orders;
    w->n_parts = t->n_parts;
    w->id = t->id;
    w->attempt = t->attempt;
    t->is_at_work = stk_ssh_work_begin(d, w);
}
