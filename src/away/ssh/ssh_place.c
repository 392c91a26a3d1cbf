/* Which hosts a task gets: those that can hold it, of them those that are free now, of them the one
 * with most of what it asks for left. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/ssh/ssh_driver.h"
#include "base/text.h"
#include "base/units.h"

enum { ASKS = 32, AWAY_MAX_MS = 30000, FACTS_MS = 60000, ANSWER_MS = 3000 };

/* --- how hosts are --- */

bool stk_ssh_host_is_up(const ssh_driver *d, uint32_t host)
{
    return !d->hosts[host].is_broken && d->hosts[host].away_until_ms == 0;
}

/* The user hears of it once, from a task that could run there. */
static void tell_trouble(ssh_driver *d, ssh_host *h)
{
    char text[1000];
    for (uint32_t i = 0; i < d->n_tasks && !h->is_told; i++) {
        if (d->tasks[i]->phase != SSH_OVER) {
            (void)snprintf(text, sizeof text, "host %s %s", h->name, h->trouble);
            stk_ssh_say(d, d->tasks[i], STK_REMOTE_NOTE, text);
            h->is_told = true;
        }
    }
}

void stk_ssh_host_failed(ssh_driver *d, uint32_t host, const stk_err *why)
{
    ssh_host *h = &d->hosts[host];
    char text[800];
    if (why->code == STK_E_CANCELLED) {
        return;
    }
    (void)stk_err_format(why, text, (int)sizeof text);
    h->away_until_ms = stk_ssh_now_ms() + SSH_AWAY_MS;
    h->is_broken = !stk_link_may_pass(why);
    (void)snprintf(h->trouble, sizeof h->trouble, "%s: %s",
                   h->is_broken ? "can't be used" : "is away, and is asked again", text);
    tell_trouble(d, h);
}

void stk_ssh_host_answered(ssh_driver *d, uint32_t host)
{
    ssh_host *h = &d->hosts[host];
    h->away_until_ms = 0;
    h->is_broken = h->is_told = false;
    h->trouble[0] = '\0';
}

static bool is_there(const ssh_task *t, uint32_t host)
{
    bool is = false;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        is = is || t->parts[p].host == host;
    }
    return is && t->phase == SSH_LIVES;
}

void stk_ssh_host_full(ssh_driver *d, uint32_t host, const char *why)
{
    ssh_host *h = &d->hosts[host];
    bool was_full = h->full_until_ms > 0;
    h->full_until_ms = 0;
    if (why != NULL) {
        h->full_until_ms = stk_ssh_now_ms() + SSH_FULL_MS;
        (void)snprintf(h->full, sizeof h->full, "%s", why);
    }
    for (uint32_t i = 0; i < d->n_tasks && (was_full || why != NULL); i++) {
        ssh_task *t = d->tasks[i];
        if (is_there(t, host) && why != NULL) {
            char text[500];
            (void)snprintf(text, sizeof text, "%s %s", h->name, h->full);
            stk_ssh_waits(d, t, text);
        } else if (is_there(t, host) && t->is_running) {
            t->told[0] = '\0';
            stk_ssh_say(d, t, STK_REMOTE_RUNNING, "");
        }
    }
}

/* --- what hosts have --- */

static void read_facts(ssh_host *h, const stk_json *answer)
{
    const stk_json *cpus = stk_json_get(answer, "cpus");
    const char *address = stk_json_get_text(answer, "address");
    h->cpu_milli = stk_json_get_whole(answer, "cpu_milli", 0);
    h->memory_bytes = stk_json_get_whole(answer, "memory_bytes", 0);
    if (address != NULL) {
        (void)snprintf(h->own_address, sizeof h->own_address, "%s", address);
    }
    if (h->n_cpus == 0) {
        for (uint32_t i = 0; i < stk_json_n_items(cpus) && h->n_cpus < 1024; i++) {
            h->cpus[h->n_cpus++] = (uint32_t)stk_json_whole(stk_json_item(cpus, i), 0);
        }
    }
}

static void keep_answers(ssh_host *h, const stk_json *answer, const char *const *asked)
{
    const stk_json *list = stk_json_get(answer, "asks");
    uint32_t n = stk_json_n_items(list);
    stk_arena_free(h->arena);
    h->arena = stk_arena_new(0);
    h->answers = stk_arena_array(h->arena, (size_t)n + 1, sizeof *h->answers);
    h->n_answers = 0;
    h->n_taken = 0;
    for (uint32_t i = 0; h->answers != NULL && i < n && asked[i] != NULL; i++) {
        const stk_json *one = stk_json_item(list, i);
        ssh_answer *a = &h->answers[i];
        a->resources = stk_arena_dup(h->arena, asked[i]);
        a->fits = stk_json_is_true(stk_json_get(one, "fits"));
        a->is_free = stk_json_is_true(stk_json_get(one, "is_free"));
        a->n_free = (uint32_t)stk_json_get_whole(one, "n_free", 0);
        (void)snprintf(a->why, sizeof a->why, "%s", stk_text_or(stk_json_get_text(one, "why"), ""));
        h->n_answers += a->resources != NULL;
    }
}

static void facts_came(ssh_driver *d, ssh_work *w)
{
    ssh_host *h = &d->hosts[w->host];
    h->is_asked = false;
    if (w->rc < 0) {
        stk_ssh_host_failed(d, (uint32_t)w->host, &w->err);
        return;
    }
    stk_ssh_host_answered(d, (uint32_t)w->host);
    h->facts_ms = stk_ssh_now_ms();
    read_facts(h, &w->answer);
    keep_answers(h, &w->answer, w->orders);
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        d->tasks[i]->tried &= ~(1ull << w->host);
    }
}

/* Requests of tasks that wait, each once. */
static uint32_t requests_of(const ssh_driver *d, const char *ret[ASKS + 1])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_tasks && n < ASKS; i++) {
        const ssh_task *t = d->tasks[i];
        bool is_new = t->phase == SSH_WAITS && !t->is_stopped;
        for (uint32_t k = 0; k < n && is_new; k++) {
            is_new = strcmp(ret[k], t->resources) != 0;
        }
        if (is_new) {
            ret[n++] = t->resources;
        }
    }
    ret[n] = NULL;
    return n;
}

static void ask_facts(ssh_driver *d, uint32_t host)
{
    const char *requests[ASKS + 1];
    STK_BUF_AUTO head = STK_BUF_INIT(STK_LINK_HEAD_MAX);
    ssh_work *w = stk_ssh_work_new(stk_ssh_ask, facts_came, (int)host);
    uint32_t n = requests_of(d, requests);
    const char **kept = w == NULL ? NULL : stk_arena_array(w->arena, (size_t)n + 1, sizeof *kept);
    stk_json_open(&head, NULL, '{');
    stk_json_put_text(&head, "op", "ssh.host");
    stk_json_put_text(&head, "host", d->hosts[host].name);
    stk_json_open(&head, "asks", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_raw(&head, NULL, requests[i]);
        if (kept != NULL) {
            kept[i] = stk_arena_dup(w->arena, requests[i]);
        }
    }
    stk_json_close(&head, ']');
    stk_json_close(&head, '}');
    if (kept == NULL || head.failed) {
        stk_ssh_work_free(w);
        return;
    }
    w->head = stk_buf_keep(&head, w->arena);
    w->orders = kept;
    w->timeout_ms = FACTS_MS;
    d->hosts[host].is_asked = w->head != NULL && stk_ssh_work_begin(d, w);
}

/* --- what our own jobs have of a host --- */

typedef struct used {
    int64_t cpu_milli, memory_bytes;
    uint32_t n;
} used;

static used used_of(const ssh_driver *d, uint32_t host)
{
    used u = {0};
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        const ssh_task *t = d->tasks[i];
        bool has = t->phase == SSH_STARTS || t->phase == SSH_LIVES || t->phase == SSH_RETREATS;
        for (uint32_t p = 0; has && p < t->n_parts; p++) {
            if (t->parts[p].host == host) {
                u.n++;
                u.cpu_milli += t->cpu_milli;
                u.memory_bytes += t->memory_bytes;
            }
        }
    }
    return u;
}

static const ssh_answer *answer_to(const ssh_host *h, const ssh_task *t)
{
    for (uint32_t i = 0; i < h->n_answers; i++) {
        if (strcmp(h->answers[i].resources, t->resources) == 0) {
            return &h->answers[i];
        }
    }
    return NULL;
}

typedef enum { HOST_UNKNOWN, HOST_AWAY, HOST_CANNOT, HOST_FULL, HOST_BUSY, HOST_TAKES } verdict;

typedef struct offer {
    verdict verdict;
    int64_t left; /* more is better */
    char why[700];
} offer;

static offer offer_of(const ssh_driver *d, const ssh_task *t, uint32_t host)
{
    const ssh_host *h = &d->hosts[host];
    const ssh_answer *a = answer_to(h, t);
    const used u = used_of(d, host);
    offer o = {0};
    if (!stk_ssh_host_is_up(d, host)) {
        o.verdict = HOST_AWAY;
        (void)snprintf(o.why, sizeof o.why, "%s", h->trouble);
    } else if (a == NULL || h->facts_ms == 0) {
        o.verdict = HOST_UNKNOWN;
    } else if (!a->fits || (t->bad >> host & 1) != 0) {
        o.verdict = HOST_CANNOT;
        (void)snprintf(o.why, sizeof o.why, "%s",
                       stk_text_or(stk_text_if_any(a->why), t->why_text));
    } else if (h->full_until_ms > stk_ssh_now_ms()) {
        o.verdict = HOST_FULL;
        (void)snprintf(o.why, sizeof o.why, "%s", h->full);
    } else if (u.cpu_milli + t->cpu_milli > h->cpu_milli ||
               u.memory_bytes + t->memory_bytes > h->memory_bytes ||
               (d->slots > 0 && u.n >= d->slots)) {
        o.verdict = HOST_FULL;
        (void)snprintf(o.why, sizeof o.why, "is full of this run's jobs");
    } else if (!a->is_free || (t->tried >> host & 1) != 0 ||
               (t->n_devices > 0 && a->n_free < h->n_taken + t->n_devices && h->n_taken > 0)) {
        o.verdict = HOST_BUSY;
        (void)snprintf(o.why, sizeof o.why, "%s",
                       stk_text_or(stk_text_if_any(a->why), "its devices aren't free"));
    } else {
        o.verdict = HOST_TAKES;
        o.left = t->n_devices > 0 ? (int64_t)a->n_free - h->n_taken : h->cpu_milli - u.cpu_milli;
    }
    return o;
}

/* --- the choice --- */

/* The least loaded CPUs, lowest number first. */
static void pick_cpus(ssh_host *h, ssh_task *t, ssh_part *part)
{
    uint32_t n = (uint32_t)((t->cpu_milli + 999) / 1000);
    bool is_asked = stk_json_get(stk_json_get(&t->order, "resources"), "cpu_count") != NULL;
    part->n_cpus = 0;
    while (is_asked && part->n_cpus < MIN(n, 256u) && part->n_cpus < h->n_cpus) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < h->n_cpus; i++) {
            bool has = false;
            for (uint32_t k = 0; k < part->n_cpus; k++) {
                has = has || part->cpus[k] == h->cpus[i];
            }
            if (!has && (best == UINT32_MAX || h->load[i] < h->load[best])) {
                best = i;
            }
        }
        part->cpus[part->n_cpus++] = h->cpus[best];
        h->load[best]++;
    }
}

void stk_ssh_release(ssh_driver *d, ssh_task *t, bool forgets_cpus)
{
    for (uint32_t p = 0; forgets_cpus && p < t->n_parts; p++) {
        ssh_host *h = &d->hosts[t->parts[p].host];
        for (uint32_t k = 0; k < t->parts[p].n_cpus; k++) {
            for (uint32_t i = 0; i < h->n_cpus; i++) {
                h->load[i] -= h->cpus[i] == t->parts[p].cpus[k] && h->load[i] > 0;
            }
        }
        t->parts[p].n_cpus = 0;
    }
}

static bool is_candidate(const ssh_task *t, uint32_t host)
{
    return t->pinned < 0 || (uint32_t)t->pinned == host;
}

typedef struct summary {
    uint32_t n[HOST_TAKES + 1], n_candidates;
    char words[700];
} summary;

static void sum_up(const ssh_driver *d, uint32_t host, const offer *o, summary *s)
{
    s->n[o->verdict]++;
    s->n_candidates++;
    stk_ssh_add_why(s->words, sizeof s->words, d->hosts[host].name, o->why);
}

/* Hosts that take it now, best first; returns how many. */
static uint32_t rank_hosts(const ssh_driver *d, const ssh_task *t, uint32_t ret[64], summary *s)
{
    int64_t left[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        if (!is_candidate(t, i)) {
            continue;
        }
        const offer o = offer_of(d, t, i);
        sum_up(d, i, &o, s);
        if (o.verdict != HOST_TAKES) {
            continue;
        }
        uint32_t at = n++;
        for (; at > 0 && left[at - 1] < o.left; at--) { /* equals stay in the stack's order */
            left[at] = left[at - 1];
            ret[at] = ret[at - 1];
        }
        left[at] = o.left;
        ret[at] = i;
    }
    return n;
}

static void take_hosts(ssh_driver *d, ssh_task *t, const uint32_t *hosts)
{
    for (uint32_t p = 0; p < t->n_parts; p++) {
        t->parts[p] = (ssh_part){.host = hosts[p]};
        pick_cpus(&d->hosts[hosts[p]], t, &t->parts[p]);
        d->hosts[hosts[p]].n_taken += t->n_devices;
    }
    stk_ssh_start(d, t);
}

static void check_deadline(ssh_driver *d, ssh_task *t, int64_t now)
{
    char text[1000], span[32];
    int64_t waited = now - t->since_ms;
    if (d->config.pending_ms > 0 && waited >= d->config.pending_ms) {
        (void)snprintf(text, sizeof text, "waited for a host for %s: %s",
                       stk_units_format_duration(waited, span, sizeof span),
                       stk_text_or(stk_text_if_any(t->told), "no host answered"));
        stk_ssh_fail(d, t, STK_FAIL_RESOURCES, false, text);
    }
}

static void place_task(ssh_driver *d, ssh_task *t, int64_t now)
{
    uint32_t hosts[64];
    summary s = {0};
    char text[900];
    uint32_t n = rank_hosts(d, t, hosts, &s);
    if (s.n[HOST_UNKNOWN] > 0 && now - t->since_ms < ANSWER_MS) {
        return; /* a better one may answer */
    }
    if (n >= t->n_parts) {
        take_hosts(d, t, hosts);
        return;
    }
    if (s.n[HOST_UNKNOWN] == 0 && s.n_candidates - s.n[HOST_CANNOT] < t->n_parts) {
        stk_ssh_refusal(s.n_candidates - s.n[HOST_CANNOT], t->n_parts, s.words, text, sizeof text);
        stk_ssh_fail(d, t, t->bad != 0 ? STK_FAIL_START : STK_FAIL_RESOURCES, true, text);
        return;
    }
    bool all_broken = s.n[HOST_AWAY] == s.n_candidates;
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        all_broken = all_broken && (!is_candidate(t, i) || d->hosts[i].is_broken);
    }
    if (all_broken) {
        stk_ssh_fail(d, t, STK_FAIL_START, true, s.words);
        return;
    }
    if (s.n[HOST_UNKNOWN] == 0 && s.words[0] != '\0') {
        stk_ssh_waits(d, t, s.words);
    }
    check_deadline(d, t, now);
}

/* Has every host that is up answered lately? */
static bool is_time_to_ask(const ssh_driver *d, uint32_t host, int64_t now)
{
    const ssh_host *h = &d->hosts[host];
    return !h->is_asked && now >= h->away_until_ms &&
           (h->facts_ms == 0 || now - h->facts_ms >= SSH_FRESH_MS || h->away_until_ms > 0);
}

int64_t stk_ssh_place_some(ssh_driver *d, int64_t now)
{
    const char *requests[ASKS + 1];
    int64_t next = INT64_MAX;
    if (requests_of(d, requests) == 0) {
        return next;
    }
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        ssh_task *t = d->tasks[i];
        if (t->phase == SSH_WAITS && !t->is_stopped && now >= t->again_ms) {
            place_task(d, t, now);
        }
    }
    if (requests_of(d, requests) == 0) {
        return next;
    }
    for (uint32_t i = 0; i < d->n_hosts; i++) {
        ssh_host *h = &d->hosts[i];
        bool is_unknown = false;
        for (uint32_t k = 0; requests[k] != NULL; k++) {
            bool is_known = false;
            for (uint32_t a = 0; a < h->n_answers; a++) {
                is_known = is_known || strcmp(h->answers[a].resources, requests[k]) == 0;
            }
            is_unknown = is_unknown || !is_known;
        }
        if (is_time_to_ask(d, i, now) || (is_unknown && !h->is_asked && now >= h->away_until_ms)) {
            ask_facts(d, i);
        }
        next = MIN(next, MAX(h->away_until_ms, h->facts_ms + SSH_FRESH_MS));
    }
    return MAX(next, now + 50);
}
