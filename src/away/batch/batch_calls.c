#include "away/batch/batch_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/share/share.h"
#include "base/text.h"
#include "sys/clock.h"

enum {
    LONG_TRIES = 6,   /* then a note tells the user */
    FIRST_PART = 15,  /* before AWS's first answer: this part of the patience with faults */
    KEYS_STEPS = 900, /* the first wait for credentials is this part of the patience */
    KEYS_DOUBLINGS = 5,
    CONNECT_MS = 10000,
    IDLE_MS = 60000,
    ANSWER_BYTES = 32 << 20
};

static const double full_rate[STK_BATCH_LANES] = {50, 20, 10};
static const stk_json_limits limits = {.bytes = ANSWER_BYTES, .nodes = 2000000, .depth = 40};

typedef struct one {
    struct one *next;
    stk_batch_calls *calls;
    stk_batch_ask_call ask;
    char *body;
    stk_aws_tries tries;
    int64_t begun_ms, due_ms; /* begun: its first try; 0: none yet */
    uint64_t http;
    bool is_read; /* libcurl has read its body (of a call without retries) */
} one;

typedef struct lane {
    one *first, **last; /* waiting calls, oldest first */
    uint32_t n;         /* waiting and running ones */
    double rate, tokens;
    int64_t filled_ms;
} lane;

struct stk_batch_calls {
    stk_aws *aws;
    stk_http_many *http;
    void (*note)(void *arg, const char *text);
    void *arg;
    lane lanes[STK_BATCH_LANES];
    one *sent;               /* under way */
    bool answered, accepted; /* AWS has answered; has accepted a request */
    int64_t noted_ms;
    /* Credentials that AWS rejects: */
    int64_t refused_ms; /* begin; 0: AWS accepts them */
    int64_t probe_ms;   /* when to try one call again */
    const one *probe;   /* that call, while it runs */
    uint32_t n_probes;
};

static int64_t now_of(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

int stk_batch_calls_open(stk_aws *aws, stk_http_many *m, void (*note)(void *arg, const char *text),
                         void *arg, stk_batch_calls **ret, stk_err *err)
{
    stk_batch_calls *calls = calloc(1, sizeof *calls);
    STK_TRY(stk_err_if_null(calls, err));
    *calls = (stk_batch_calls){.aws = aws, .http = m, .note = note, .arg = arg, .noted_ms = -1};
    for (int i = 0; i < STK_BATCH_LANES; i++) {
        calls->lanes[i] =
            (lane){.rate = full_rate[i], .tokens = full_rate[i] / 4, .filled_ms = now_of()};
        calls->lanes[i].last = &calls->lanes[i].first;
    }
    *ret = calls;
    return 0;
}

static void free_one(one *c)
{
    free(c->body);
    free(c);
}

void stk_batch_calls_close(stk_batch_calls *calls)
{
    one *c;
    if (calls == NULL) {
        return;
    }
    while ((c = calls->sent) != NULL) {
        calls->sent = c->next;
        stk_http_many_stop(calls->http, c->http);
        free_one(c);
    }
    for (int i = 0; i < STK_BATCH_LANES; i++) {
        while ((c = calls->lanes[i].first) != NULL) {
            calls->lanes[i].first = c->next;
            free_one(c);
        }
    }
    free(calls);
}

static void wait_in_lane(one *c)
{
    lane *l = &c->calls->lanes[c->ask.lane];
    c->next = NULL;
    *l->last = c;
    l->last = &c->next;
}

int stk_batch_call(stk_batch_calls *calls, const stk_batch_ask_call *ask, stk_err *err)
{
    one *c = calloc(1, sizeof *c);
    char *body = strdup(stk_text_or(ask->body, "{}"));
    if (c == NULL || body == NULL) {
        free(c);
        free(body);
        return stk_err_nomem(err);
    }
    *c = (one){.calls = calls, .ask = *ask, .body = body, .tries = {.max = UINT32_MAX}};
    calls->lanes[ask->lane].n++;
    wait_in_lane(c);
    return 0;
}

int stk_batch_call_batch(stk_batch_calls *calls, const char *path, const char *body,
                         stk_batch_done done, void *arg, stk_err *err)
{
    const stk_batch_ask_call ask = {.lane = STK_BATCH_ASKS,
                                    .service = "batch",
                                    .path = path,
                                    .body = body,
                                    .done = done,
                                    .arg = arg};
    return stk_batch_call(calls, &ask, err);
}

/* Calls `done` and frees the call. */
static void finish_call(one *c, const stk_batch_answer *answer)
{
    c->calls->lanes[c->ask.lane].n--;
    if (c->ask.done != NULL) {
        c->ask.done(c->ask.arg, answer);
    }
    free_one(c);
}

static void finish_error(one *c, int rc, const char *code, const stk_err *err, bool maybe_done)
{
    finish_call(c,
                &(stk_batch_answer){.rc = rc, .code = code, .err = err, .maybe_done = maybe_done});
}

/* Halves the rate when AWS throttles, and raises it slowly after, because all callers of an account
 * share AWS's limits. */
static void learn_rate(lane *l, double full, stk_aws_again again, bool ok)
{
    if (again == STK_AWS_SLOWER && !ok) {
        l->rate = MAX(l->rate / 2, 0.5);
        l->tokens = MIN(l->tokens, 0);
    } else if (ok && l->rate < full) {
        l->rate = MIN(l->rate + full / 100, full);
    }
}

static void note_long(stk_batch_calls *calls, const one *c, const stk_err *err)
{
    char text[1000];
    int64_t now = now_of();
    if (c->tries.n < LONG_TRIES || (calls->noted_ms >= 0 && now - calls->noted_ms < 60000)) {
        return;
    }
    calls->noted_ms = now;
    (void)snprintf(text, sizeof text, "AWS: %s; still retrying", err->text);
    calls->note(calls->arg, text);
}

/* Running calls with the same credentials fail alike; only a call that was sent after that counts.
 */
static void wait_for_keys(one *c, int rc, const char *code, bool was_probe, const stk_err *err)
{
    char text[1000];
    stk_batch_calls *calls = c->calls;
    int64_t now = now_of(), patience = stk_share_patience_ms();
    if (calls->refused_ms == 0) {
        calls->refused_ms = calls->probe_ms = now;
        calls->n_probes = 0;
    } else if (was_probe) {
        if (calls->n_probes == 0) {
            (void)snprintf(text, sizeof text, "%.600s; %.250s; the run waits", err->text,
                           stk_text_or(stk_text_if_any(err->hint), "renew the credentials"));
            calls->note(calls->arg, text);
        }
        uint32_t shift = MIN(calls->n_probes, KEYS_DOUBLINGS);
        calls->n_probes++;
        calls->probe_ms = now + ((patience / KEYS_STEPS + 1) << shift);
    }
    if (now - calls->refused_ms >= patience && was_probe) {
        calls->probe_ms = now; /* the waiting calls end as well */
        finish_error(c, rc, code, err, false);
    } else {
        c->due_ms = c->begun_ms = 0;
        wait_in_lane(c);
    }
}

static void again_or_finish(one *c, int rc, stk_http_response *response, const char *code,
                            stk_aws_again again, const stk_err *err)
{
    stk_batch_calls *calls = c->calls;
    int64_t wait_ms = 0, now = now_of(), patience = stk_share_patience_ms();
    /* AWS has certainly not carried out a throttled or refused request, but maybe any other. */
    bool maybe = again == STK_AWS_AGAIN || (c->is_read && response->status == 0);
    bool late = now - c->begun_ms > (calls->answered ? patience : patience / FIRST_PART);
    if ((maybe && c->ask.once) || late || again == STK_AWS_STOP ||
        !stk_aws_next(&c->tries, again, response, &wait_ms)) {
        finish_error(c, rc, code, err, maybe);
        return;
    }
    note_long(calls, c, err);
    c->due_ms = now + wait_ms;
    wait_in_lane(c);
}

static void answered(void *arg, int rc, stk_http_response *response, const stk_err *http_err)
{
    one *c = arg;
    stk_batch_calls *calls = c->calls;
    char code[80] = "";
    stk_aws_again again = STK_AWS_STOP;
    stk_err err = {0};
    if (http_err != NULL) {
        err = *http_err;
    }
    for (one **at = &calls->sent; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    c->http = 0;
    bool was_probe = calls->probe == c;
    if (was_probe) {
        calls->probe = NULL;
    }
    int settled = stk_aws_settle(calls->aws, rc, response, code, &again, &err);
    learn_rate(&calls->lanes[c->ask.lane], full_rate[c->ask.lane], again, settled == 0);
    calls->answered = calls->answered || rc == 0;
    calls->accepted = calls->accepted || settled == 0;
    if (settled < 0 && again == STK_AWS_EXPIRED) {
        wait_for_keys(c, settled, code, was_probe, &err);
        return;
    }
    if (settled == 0 || (rc == 0 && again == STK_AWS_STOP)) { /* AWS accepts the credentials */
        calls->refused_ms = 0;
    }
    if (settled < 0) {
        again_or_finish(c, settled, response, code, again, &err);
        return;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    if (arena == NULL) {
        finish_error(c, STK_E_NOMEM, code, &(stk_err){.text = "out of memory"}, true);
        return;
    }
    if (response->body.len > 0) {
        settled = stk_json_parse(response->body.data, response->body.len, c->ask.path, &limits,
                                 arena, &root, &err);
    }
    if (settled < 0) {
        (void)stk_err_context(&err, "%s answers with invalid JSON", c->ask.service);
        again_or_finish(c, STK_E_ENV, response, code, STK_AWS_AGAIN, &err);
        return;
    }
    finish_call(c, &(stk_batch_answer){.code = "", .json = stk_json_is_map(&root) ? &root : NULL});
}

/* libcurl repeats a request if a kept connection is dead, although AWS may have carried it out. So
 * a call without retries gives its body only once. */
static int64_t read_once(void *arg, int64_t at, void *data, size_t n)
{
    one *c = arg;
    size_t len = strlen(c->body);
    if (at == 0 && c->is_read) {
        return -1;
    }
    c->is_read = true;
    n = MIN(n, len - (size_t)at);
    memcpy(data, c->body + at, n);
    return (int64_t)n;
}

static void send_one(one *c)
{
    stk_batch_calls *calls = c->calls;
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (c->begun_ms <= 0) {
        c->begun_ms = now_of();
    }
    stk_http_call call = {.body_max = ANSWER_BYTES, .done = answered, .done_arg = c};
    const stk_aws_ask ask = {
        .service = c->ask.service, .path = c->ask.path, .target = c->ask.target, .body = c->body};
    int rc = stk_aws_request(calls->aws, &ask, arena, &call.request, &err);
    if (rc == 0) {
        call.request.connect_ms = CONNECT_MS;
        call.request.idle_ms = IDLE_MS;
        if (c->ask.once) {
            c->is_read = false;
            call.request.body = NULL;
            call.request.read_body = read_once;
            call.request.read_arg = c;
        }
        rc = stk_http_many_begin(calls->http, &call, &c->http, &err);
    }
    if (rc < 0 && rc != STK_E_NOMEM &&
        calls->accepted) { /* there were keys before, so they may return */
        wait_for_keys(c, rc, "", calls->refused_ms > 0, &err);
        return;
    }
    if (rc < 0) { /* no credentials */
        finish_error(c, rc, "", &err, false);
        return;
    }
    calls->probe = calls->refused_ms > 0 ? c : NULL;
    c->next = calls->sent;
    calls->sent = c;
}

/* Takes the first due call of the lane; NULL: none, and *wait is the time until the next. */
static one *take_due(lane *l, int64_t now_ms, int64_t *wait)
{
    for (one **at = &l->first; *at != NULL; at = &(*at)->next) {
        one *c = *at;
        if (c->due_ms <= now_ms) {
            *at = c->next;
            if (l->last == &c->next) {
                l->last = at;
            }
            return c;
        }
        *wait = stk_batch_sooner(*wait, c->due_ms - now_ms);
    }
    return NULL;
}

/* While calls wait for credentials, sends only one at a time. */
static bool may_send(const stk_batch_calls *calls, int64_t now_ms, int64_t *wait)
{
    if (calls->refused_ms == 0) {
        return true;
    }
    if (calls->probe == NULL && calls->probe_ms > now_ms) {
        *wait = stk_batch_sooner(*wait, calls->probe_ms - now_ms);
    }
    return calls->probe == NULL && calls->probe_ms <= now_ms;
}

int64_t stk_batch_calls_pump(stk_batch_calls *calls, int64_t now_ms)
{
    int64_t wait = -1;
    for (int i = 0; i < STK_BATCH_LANES; i++) {
        lane *l = &calls->lanes[i];
        double burst = MAX(l->rate / 4, 1);
        l->tokens += l->rate * (double)(now_ms - l->filled_ms) / 1000;
        l->tokens = MIN(l->tokens, burst);
        l->filled_ms = now_ms;
        while (l->tokens >= 1 && may_send(calls, now_ms, &wait)) {
            one *c = take_due(l, now_ms, &wait);
            if (c == NULL) {
                break;
            }
            l->tokens -= 1;
            send_one(c);
        }
        if (l->tokens < 1 && l->first != NULL) {
            wait = stk_batch_sooner(wait, (int64_t)((1 - l->tokens) * 1000 / l->rate) + 1);
        }
    }
    return wait;
}

uint32_t stk_batch_calls_n(const stk_batch_calls *calls, stk_batch_lane lane_of)
{
    return calls->lanes[lane_of].n;
}
