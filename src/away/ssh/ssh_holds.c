/* Can the hosts hold what steps ask for? All hosts are asked at once, until enough of them can, or
 * all have answered, or it takes too long: a host that doesn't answer may hold everything. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "sys/file.h"

enum { LIMIT_MS = 20000, HOSTS = 64, LITTLE = 60 };

typedef struct round round;

/* One host. What is below `answer` is under the round's lock. */
typedef struct seat {
    round *all;
    const char *name;
    stk_link *link;
    pthread_t thread;
    bool has_thread;
    stk_arena *arena;
    stk_json answer;
    bool is_known; /* `answer` is there */
} seat;

/* A step's request: the index of what it asks, and the hosts that can be its. */
typedef struct want {
    uint32_t i_ask, nodes;
    int pinned;  /* host, or -1 */
    bool is_any; /* it asks for nothing */
} want;

struct round {
    stk_arena *arena;
    seat seats[HOSTS];
    uint32_t n_seats, n_done;
    const char **asks; /* each once */
    uint32_t n_asks;
    want *wants;
    uint32_t n_wants;
    int cancel_fd;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

void stk_ssh_add_why(char *words, size_t size, const char *host, const char *why)
{
    size_t n = strlen(words);
    bool has_name = strstr(why, host) != NULL;
    if (*why != '\0' && n + LITTLE < size) {
        (void)snprintf(words + n, size - n, "%s%s%s%.300s", stk_text_when(n > 0, "; "),
                       stk_text_when(!has_name, host), stk_text_when(!has_name, " "), why);
    }
}

void stk_ssh_refusal(uint32_t n_able, uint32_t nodes, const char *words, char *ret, size_t size)
{
    if (n_able == 0) {
        (void)snprintf(ret, size, "no host can hold it: %s", words);
    } else {
        (void)snprintf(ret, size, "it needs %u hosts, and only %u can hold it: %s", nodes, n_able,
                       words);
    }
}

/* --- the question --- */

/* A request that can't be read asks no host for anything: whoever makes its job refuses it. */
static int add_want(round *r, const stk_driver_config *config, const stk_remote_ask *ask,
                    stk_err *err)
{
    want *w = &r->wants[r->n_wants];
    stk_remote_options options;
    stk_err why = {0};
    const char *text = NULL;
    int rc = stk_ssh_options_read(config->stack, "", ask->options, config->options, r->arena,
                                  &options, &why);
    if (rc == 0) {
        rc = stk_ssh_resources(ask->resources, r->arena, &text, &why);
    }
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    if (rc < 0) {
        *w = (want){.nodes = 1, .pinned = -1, .is_any = true};
        r->n_wants++;
        return 0;
    }
    const char *host = stk_remote_option_text(&options, "host");
    *w = (want){.nodes = MAX(ask->nodes, 1), .pinned = -1, .is_any = strcmp(text, "{}") == 0};
    if (host != NULL) {
        w->pinned = stk_ssh_find_host(&options, host, strlen(host));
    }
    while (w->i_ask < r->n_asks && strcmp(r->asks[w->i_ask], text) != 0) {
        w->i_ask++;
    }
    if (!w->is_any && w->i_ask == r->n_asks) {
        r->asks[r->n_asks++] = text;
    }
    r->n_wants++;
    return 0;
}

static const char *head_of(const round *r, const char *host, stk_arena *arena)
{
    STK_BUF_AUTO head = STK_BUF_INIT(STK_LINK_HEAD_MAX);
    stk_json_open(&head, NULL, '{');
    stk_json_put_text(&head, "op", "ssh.host");
    stk_json_put_text(&head, "host", host);
    stk_json_open(&head, "asks", '[');
    for (uint32_t i = 0; i < r->n_asks; i++) {
        stk_json_put_raw(&head, NULL, r->asks[i]);
    }
    stk_json_close(&head, ']');
    stk_json_close(&head, '}');
    return stk_buf_keep(&head, arena);
}

static void *ask_seat(void *arg)
{
    seat *s = arg;
    round *r = s->all;
    stk_json answer = {0};
    const char *head = s->arena == NULL ? NULL : head_of(r, s->name, s->arena);
    const stk_link_ask ask = {.head = head, .cancel_fd = r->cancel_fd, .limit_ms = LIMIT_MS};
    bool is_known =
        head != NULL && stk_link_call(s->link, &ask, s->arena, &answer, NULL, NULL) == 0;
    (void)pthread_mutex_lock(&r->lock);
    s->answer = answer;
    s->is_known = is_known;
    r->n_done++;
    (void)pthread_cond_signal(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* --- the answers --- */

static const stk_json *answer_of(const round *r, uint32_t host, const want *w)
{
    if (!r->seats[host].is_known) {
        return NULL;
    }
    return stk_json_item(stk_json_get(&r->seats[host].answer, "asks"), w->i_ask);
}

/* How many hosts hold it (`or_may`: or may, because they haven't answered). */
static uint32_t count_able(const round *r, const want *w, bool or_may)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_seats; i++) {
        const stk_json *answer = answer_of(r, i, w);
        bool is_its = w->pinned < 0 || (uint32_t)w->pinned == i;
        bool is_able = answer == NULL ? or_may : stk_json_is_true(stk_json_get(answer, "fits"));
        n += is_its && is_able;
    }
    return n;
}

/* Does nothing that is still to come change an answer? */
static bool is_settled(const round *r)
{
    for (uint32_t i = 0; i < r->n_wants; i++) {
        const want *w = &r->wants[i];
        if (!w->is_any && count_able(r, w, false) < w->nodes &&
            count_able(r, w, true) >= w->nodes) {
            return false;
        }
    }
    return true;
}

static void judge_want(const round *r, const want *w, stk_err *ret_why)
{
    char words[700] = "", text[900];
    uint32_t n = count_able(r, w, true);
    if (w->is_any || n >= w->nodes) {
        return;
    }
    for (uint32_t i = 0; i < r->n_seats; i++) {
        const char *why = stk_json_get_text(answer_of(r, i, w), "why");
        bool is_its = w->pinned < 0 || (uint32_t)w->pinned == i;
        if (is_its && !stk_json_is_true(stk_json_get(answer_of(r, i, w), "fits"))) {
            stk_ssh_add_why(words, sizeof words, r->seats[i].name, stk_text_or(why, ""));
        }
    }
    stk_ssh_refusal(n, w->nodes, words, text, sizeof text);
    stk_err_set(ret_why, STK_E_RESOURCES, "%s", text);
    stk_err_hint(ret_why, "ask for what a host has, or add one to the stack's `hosts`");
}

/* --- all of it --- */

static void ask_hosts(round *r)
{
    static const uint64_t one = 1;
    (void)pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->n_seats; i++) {
        seat *s = &r->seats[i];
        s->has_thread = pthread_create(&s->thread, NULL, ask_seat, s) == 0;
        r->n_done += !s->has_thread;
    }
    while (r->n_done < r->n_seats && !is_settled(r)) {
        (void)pthread_cond_wait(&r->changed, &r->lock);
    }
    (void)pthread_mutex_unlock(&r->lock);
    (void)!write(r->cancel_fd, &one, sizeof one);
    for (uint32_t i = 0; i < r->n_seats; i++) {
        if (r->seats[i].has_thread) {
            (void)pthread_join(r->seats[i].thread, NULL);
        }
    }
}

static int open_seats(round *r, const stk_driver_config *config, stk_err *err)
{
    stk_remote_options options;
    const stk_json *hosts = NULL;
    STK_TRY(
        stk_ssh_options_read(config->stack, NULL, config->options, NULL, r->arena, &options, err));
    uint32_t n = stk_remote_option_texts(&options, "hosts", &hosts);
    for (uint32_t i = 0; i < n && i < HOSTS; i++) {
        seat *s = &r->seats[r->n_seats++];
        *s = (seat){.all = r, .name = hosts[i].text, .arena = stk_arena_new(0)};
        STK_TRY(stk_link_open(s->name, &s->link, err));
    }
    return 0;
}

static int run_round(round *r, const stk_driver_config *config, const stk_remote_ask *asks,
                     uint32_t n, stk_err *err)
{
    r->asks = stk_arena_array(r->arena, (size_t)n + 1, sizeof *r->asks);
    r->wants = stk_arena_array(r->arena, (size_t)n + 1, sizeof *r->wants);
    if (r->asks == NULL || r->wants == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(add_want(r, config, &asks[i], err));
    }
    if (r->n_asks == 0) {
        return 0;
    }
    STK_TRY(open_seats(r, config, err));
    ask_hosts(r);
    return 0;
}

int stk_ssh_holds(const stk_driver_config *config, const stk_remote_ask *asks, uint32_t n,
                  stk_err *ret_why, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    round r = {.arena = arena,
               .cancel_fd = eventfd(0, EFD_CLOEXEC),
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER};
    int rc = stk_err_if_null(arena, err);
    if (rc == 0 && r.cancel_fd < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "an event's descriptor");
    }
    if (rc == 0) {
        rc = run_round(&r, config, asks, n, err);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        ret_why[i] = (stk_err){0};
        judge_want(&r, &r.wants[i], &ret_why[i]);
    }
    for (uint32_t i = 0; i < r.n_seats; i++) {
        stk_link_close(r.seats[i].link);
        stk_arena_free(r.seats[i].arena);
    }
    stk_file_close(&r.cancel_fd);
    return rc;
}
