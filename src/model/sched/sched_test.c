/* Scripts: each line adds a task, folds an event, or asks and states the expected answer.
 *
 * To add and to fold:
 * - add [cpu=N] [mem=N] [dev=N [share=MIB] [on=MASK] [or=N]] [retries=N] [oom=N] [place=N] [look]
 *   [fallback] [needs=0,1]
 * - started TASK ATTEMPT [MASK [ALTERNATIVE]]
 * - failed TASK CLASS; failed! … if it is final
 * - busy TASK AT_MS
 * - retrying TASK AT_MS [memory|share|fallback]
 * - outside DEVICE MIB; gone DEVICE
 * - claimed TASK MASK, where 0 is no device any more
 * - bad EVENT …, which is refused and changes nothing
 *
 * To ask:
 * - next NOW_MS = start:TASK.ATTEMPT[@MASK[/ALTERNATIVE]] skip:TASK<CAUSE end:STATUS wake:MS …
 * - why TASK = needs:OTHER [held:MASK outside:MASK]
 * - waiter = TASK, the one that waits for others, or -1
 * - claim TASK AVOID = MASK, the devices that it should get
 * - used = CPU/MEMORY/DEVICES/RUNNING
 *
 * Others:
 * - max N: from here on `next` has room for N actions
 * - refold: from here on the script asks a fold of the durable events
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/testing.h"
#include "model/sched/sched.h"

typedef struct script {
    const char *name;
    stk_sched_config config;
    const char *text;
} script;

struct entry {
    bool is_add;
    stk_sched_event event;
    stk_sched_task task;
    stk_pack_ask asks[2];
    uint32_t needs[8], n_needs;
};

typedef struct player {
    stk_sched *sched;
    const script *script;
    uint32_t max;
    struct entry log[256];
    uint32_t n_log;
} player;

/* Devices of 100 MiB each; most tests use the first two. */
static const stk_pack_device devices[] = {
    {100, 100, 0, false}, {100, 100, 0, false}, {100, 100, 1, false}, {100, 100, 1, false}};
#define CONFIG(n, of_mode)                                                                         \
    {                                                                                              \
        .cpu_milli = 4000, .memory_bytes = 1000, .host = {devices, n, NULL}, .max_workers = 3,     \
        .max_away = {2}, .mode = of_mode, .seed = 7                                                \
    }
static const stk_sched_config config_small = CONFIG(2, STK_MODE_CONTINUE);

static uint32_t mask_of(const stk_devset *set)
{
    return (uint32_t)set->words[0];
}

static void add_asks(struct entry *e, const char *line)
{
    static const char *const keys[] = {" dev=", " or="};
    const char *share = strstr(line, " share="), *on = strstr(line, " on=");
    for (uint32_t i = 0; i < 2; i++) {
        const char *at = strstr(line, keys[i]);
        stk_pack_ask *ask = &e->asks[e->task.n_asks];
        if (at != NULL && atoi(at + strlen(keys[i])) > 0) {
            ask->n = (uint32_t)atoi(at + strlen(keys[i]));
            ask->share_mib = i == 0 && share != NULL ? atoi(share + 7) : 0;
            ask->wanted.words[0] = i == 0 && on != NULL ? strtoull(on + 4, NULL, 16) : ~(uint64_t)0;
            e->task.n_asks++;
        }
    }
    e->task.asks = e->asks;
}

static void add(player *p, const char *line)
{
    struct entry *e = &p->log[p->n_log];
    *e = (struct entry){.is_add = true, .task = {.cpu_milli = 1000, .backoff = 1}};
    const struct {
        const char *key;
        int64_t *value;
    } longs[] = {{" cpu=", &e->task.cpu_milli}, {" mem=", &e->task.memory_bytes}};
    const struct {
        const char *key;
        uint32_t *value;
    } words[] = {{" oom=", &e->task.oom_retries},
                 {" retries=", &e->task.max_retries},
                 {" place=", &e->task.place}};
    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(line, longs[i].key);
        if (at) {
            *longs[i].value = atoll(at + strlen(longs[i].key));
        }
    }
    for (size_t i = 0; i < 3; i++) {
        const char *at = strstr(line, words[i].key);
        *words[i].value = at ? (uint32_t)atoll(at + strlen(words[i].key)) : 0;
    }
    if (e->task.place > 0) {
        e->task.cpu_milli = 0;
    }
    e->task.oom_memory = e->task.oom_share = e->task.oom_retries > 0 ? 2 : 0;
    add_asks(e, line);
    e->task.lookup = strstr(line, " look") != NULL;
    e->task.fallback = strstr(line, " fallback") != NULL;
    const char *needs = strstr(line, " needs=");
    for (needs = needs ? needs + 7 : NULL; needs; needs = strchr(needs, ',')) {
        needs += *needs == ',';
        e->needs[e->n_needs++] = (uint32_t)atoll(needs);
    }
    assert_int_equal(
        stk_sched_add(p->sched, &e->task, e->n_needs ? e->needs : NULL, e->n_needs, NULL, NULL), 0);
    p->n_log++;
}

static stk_sched_event parse_event(const char *line)
{
    char word[32] = "", arg[32] = "", third[32] = "";
    stk_sched_event event = {.i_ask = STK_SCHED_NO_ASK};
    (void)sscanf(line, "%31s %u %31s %31s %u", word, &event.task, arg, third, &event.i_ask);
    char *bang = strchr(word, '!');
    event.is_final = bang != NULL;
    if (bang) {
        *bang = '\0';
    }
    char kind[40];
    (void)snprintf(kind, sizeof kind, "%s%s",
                   strcmp(word, "cancelling") == 0 || strcmp(word, "ended") == 0 ? "run_" : "task_",
                   word);
    event.kind = strcmp(word, "missed") == 0    ? (int)STK_SE_MISSED
                 : strcmp(word, "busy") == 0    ? (int)STK_SE_BUSY
                 : strcmp(word, "outside") == 0 ? (int)STK_SE_OUTSIDE
                 : strcmp(word, "gone") == 0    ? (int)STK_SE_GONE
                 : strcmp(word, "claimed") == 0 ? (int)STK_SE_CLAIMED
                                                : stk_event_kind_of(kind);
    assert_true(event.kind >= 0);
    event.attempt = event.kind == STK_EV_TASK_STARTED ? (uint32_t)atoi(arg) : 0;
    event.failure = event.kind == STK_EV_TASK_FAILED ? (stk_failure)stk_failure_of(arg) : 0;
    event.at_ms = atoll(arg);
    event.device = event.task;
    event.mib = strcmp(arg, "all") == 0 ? STK_SCHED_ALL : atoi(arg);
    event.is_fallback = strcmp(third, "fallback") == 0;
    event.grows = strcmp(third, "memory") == 0  ? STK_GROWS_MEMORY
                  : strcmp(third, "share") == 0 ? STK_GROWS_SHARE
                                                : STK_GROWS_NOTHING;
    if (event.kind == STK_SE_CLAIMED) {
        event.devices.words[0] = strtoull(arg, NULL, 16);
    }
    if (event.kind == STK_EV_TASK_STARTED && third[0] != '\0') {
        event.devices.words[0] = strtoull(third, NULL, 16);
        if (event.i_ask == STK_SCHED_NO_ASK) {
            event.i_ask = 0;
        }
    }
    return event;
}

static void fold(player *p, const char *line)
{
    struct entry *e = &p->log[p->n_log];
    stk_err err = {0};
    *e = (struct entry){.event = parse_event(line)};
    if (stk_sched_fold(p->sched, &e->event, &err) != 0) {
        fail_msg("%s: '%s': %s", p->script->name, line, err.text);
    }
    p->n_log += e->event.kind < STK_EV_N;
}

static void fold_bad(player *p, const char *line)
{
    stk_sched_event event = parse_event(line);
    uint64_t before = stk_sched_digest(p->sched);
    stk_err err = {0};
    if (stk_sched_fold(p->sched, &event, &err) != STK_E_PROTOCOL) {
        fail_msg("%s: '%s' was taken", p->script->name, line);
    }
    assert_non_null(strstr(err.text, "task "));
    assert_true(before == stk_sched_digest(p->sched));
}

static void refold(player *p)
{
    stk_sched *again = stk_sched_new(&p->script->config);
    for (uint32_t i = 0; i < p->n_log; i++) {
        const struct entry *e = &p->log[i];
        int r = e->is_add ? stk_sched_add(again, &e->task, e->needs, e->n_needs, NULL, NULL)
                          : stk_sched_fold(again, &e->event, NULL);
        assert_int_equal(r, 0);
    }
    assert_true(stk_sched_digest(again) == stk_sched_digest(p->sched));
    stk_sched_free(p->sched);
    p->sched = again;
}

static void describe_next(player *p, int64_t now_ms, char *text, size_t size)
{
    static const char *const words[] = {"lookup", "start", "stop", "skip", "cancel", "fail", "end"};
    stk_action actions[64];
    uint32_t n = 0;
    int64_t wake = 0;
    size_t used = 0;
    assert_int_equal(stk_sched_next(p->sched, now_ms, actions, p->max, &n, &wake), 0);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        const stk_action *a = &actions[i];
        used += (size_t)snprintf(text + used, size - used, "%s%s:%d", i ? " " : "", words[a->kind],
                                 a->kind == STK_ACT_END ? a->status : (int)a->task);
        if (a->kind == STK_ACT_START) {
            used += (size_t)snprintf(text + used, size - used, ".%u", a->attempt);
            if (a->i_ask != STK_SCHED_NO_ASK) {
                used += (size_t)snprintf(text + used, size - used, "@%x", mask_of(&a->devices));
            }
            if (a->i_ask != STK_SCHED_NO_ASK && a->i_ask > 0) {
                used += (size_t)snprintf(text + used, size - used, "/%u", a->i_ask);
            }
        } else if (a->kind == STK_ACT_SKIP) {
            used += (size_t)snprintf(text + used, size - used, "<%u", a->cause);
        }
    }
    if (wake >= 0) {
        (void)snprintf(text + used, size - used, "%swake:%lld", n ? " " : "", (long long)wake);
    }
}

static void describe_why(player *p, uint32_t task, char *text, size_t size)
{
    static const char *const words[] = {"none",    "needs",   "cpu",   "memory",
                                        "devices", "workers", "place", "backoff"};
    stk_sched_why why = stk_sched_explain(p->sched, task);
    int n = snprintf(text, size, "%s:%d%s", words[why.what], (int)why.other,
                     why.is_queue ? " first" : "");
    if (mask_of(&why.held) > 0 || mask_of(&why.outside) > 0) {
        (void)snprintf(text + n, size - (size_t)n, " held:%x outside:%x", mask_of(&why.held),
                       mask_of(&why.outside));
    }
}

static void check(player *p, const char *line)
{
    char seen[512] = "";
    const char *expected = strchr(line, '=') + 1;
    expected += *expected == ' ';
    if (strncmp(line, "next", 4) == 0) {
        char again[512];
        describe_next(p, atoll(line + 5), seen, sizeof seen);
        describe_next(p, atoll(line + 5), again, sizeof again);
        assert_string_equal(seen, again);
    } else if (strncmp(line, "why", 3) == 0) {
        describe_why(p, (uint32_t)atoi(line + 4), seen, sizeof seen);
    } else if (strncmp(line, "waiter", 6) == 0) {
        (void)snprintf(seen, sizeof seen, "%d", (int)stk_sched_waiter(p->sched));
    } else if (strncmp(line, "claim", 5) == 0) {
        uint32_t task, mask;
        stk_devset claimed = {{0}};
        assert_int_equal(sscanf(line, "claim %u %x", &task, &mask), 2);
        const stk_devset avoid = {{mask}};
        bool any = stk_sched_claim(p->sched, task, &avoid, &claimed);
        (void)snprintf(seen, sizeof seen, any ? "%x" : "none", mask_of(&claimed));
    } else {
        stk_sched_counts c;
        stk_sched_count(p->sched, &c);
        (void)snprintf(seen, sizeof seen, "%lld/%lld/%u/%u", (long long)c.cpu_used,
                       (long long)c.memory_used, c.devices_used, c.running);
    }
    if (strcmp(seen, expected) != 0) {
        fail_msg("%s: '%s' but it was '%s'", p->script->name, line, seen);
    }
}

static void play(const script *s)
{
    player *p = calloc(1, sizeof *p);
    char *text = strdup(s->text), *rest = text, *line;
    p->script = s;
    p->sched = stk_sched_new(&s->config);
    p->max = 64;
    while ((line = strsep(&rest, "\n")) != NULL) {
        line += strspn(line, " ");
        if (strncmp(line, "add", 3) == 0) {
            add(p, line);
        } else if (strncmp(line, "bad ", 4) == 0) {
            fold_bad(p, line + 4);
        } else if (strncmp(line, "max ", 4) == 0) {
            p->max = (uint32_t)atoi(line + 4);
        } else if (strcmp(line, "refold") == 0) {
            refold(p);
        } else if (strchr(line, '=') != NULL) {
            check(p, line);
        } else if (*line != '\0') {
            fold(p, line);
        }
    }
    refold(p); /* every script ends with this check */
    stk_sched_free(p->sched);
    free(text);
    free(p);
}

#define SMALL CONFIG(2, STK_MODE_CONTINUE)
#define FOUR CONFIG(4, STK_MODE_CONTINUE)
#define STOP CONFIG(2, STK_MODE_STOP)
#define FAST CONFIG(2, STK_MODE_FAIL_FAST)

static const script scripts[] = {
    {"an empty run ends", SMALL, "next 0 = end:0\n ended\n next 0 = "},
    {"a chain runs in order", SMALL,
     "add\n add needs=0\n next 0 = start:0.1\n started 0 1\n used = 1000/0/0/1\n next 0 = \n"
     "why 1 = needs:0\n succeeded 0\n used = 0/0/0/0\n next 0 = start:1.1\n started 1 1\n"
     "succeeded 1\n next 0 = end:0"},
    {"the same need twice counts twice", SMALL,
     "add\n add needs=0,0\n started 0 1\n succeeded 0\n next 0 = start:1.1"},
    {"the cache is asked first, and once", SMALL,
     "add look\n add look needs=0\n next 0 = lookup:0\n missed 0\n next 0 = start:0.1\n started 0 "
     "1\n"
     "succeeded 0\n next 0 = lookup:1\n cached 1\n next 0 = end:0"},
    {"a lookup needs no resources", SMALL,
     "add cpu=4000\n add look cpu=4000\n started 0 1\n next 0 = lookup:1\n missed 1\n next 0 = \n"
     "why 1 = cpu:0"},
    {"a miss isn't durable, an attempt is", SMALL,
     "add look retries=1\n missed 0\n refold\n next 0 = lookup:0\n started 0 1\n failed 0 exit\n"
     "refold\n next 0 = start:0.2"},
    {"first ready, first started; together, by number", SMALL,
     "add\n add\n add needs=0\n add needs=1\n add needs=1\n started 0 1\n started 1 1\n"
     "succeeded 1\n succeeded 0\n next 0 = start:3.1 start:4.1 start:2.1"},
    {"what runs elsewhere takes nothing here but a worker", SMALL,
     "add cpu=4000 mem=1000 dev=2\n add place=1 mem=5000\n add cpu=1000\n add place=2\n"
     "next 0 = start:0.1@3 start:1.1 start:3.1\n started 0 1 3\n started 1 1\n"
     "started 3 1\n used = 4000/1000/2/3\n next 0 = \n why 2 = cpu:0\n succeeded 1\n"
     "used = 4000/1000/2/2\n succeeded 0\n next 0 = start:2.1"},
    {"a place takes so many jobs", SMALL,
     "add place=1\n add place=1\n add place=1\n add\n next 0 = start:0.1 start:1.1 start:3.1\n"
     "started 0 1\n started 1 1\n next 0 = start:3.1\n why 2 = place:0\n succeeded 1\n"
     "next 0 = start:2.1 start:3.1\n refold\n next 0 = start:2.1 start:3.1"},
    {"on_oom elsewhere asks for more than this machine has", SMALL,
     "add place=1 mem=900 oom=2\n started 0 1\n failed 0 host_oom\n retrying 0 0 memory\n"
     "next 0 = start:0.2\n used = 0/0/0/0"},
    {"workers bound what runs", SMALL,
     "add cpu=0\n add cpu=0\n add cpu=0\n add cpu=0\n next 0 = start:0.1 start:1.1 start:2.1\n"
     "started 0 1\n started 1 1\n started 2 1\n next 0 = \n why 3 = workers:0"},
    {"smaller work passes what doesn't fit", SMALL,
     "add cpu=3000\n add cpu=3000\n add mem=900\n add mem=200\n started 0 1\n"
     "next 0 = start:2.1\n started 2 1\n next 0 = \n why 1 = cpu:0\n why 3 = cpu:0\n"
     "succeeded 0\n why 3 = memory:2\n next 0 = start:1.1"},
    {"devices", SMALL,
     "add dev=2\n add dev=1\n add\n bad started 0 1 1\n bad started 0 1 7\n"
     "bad started 0 1 3 1\n bad started 2 1 1\n started 0 1 3\n used = 1000/0/2/1\n"
     "bad started 1 1 1\n why 1 = devices:0 held:3 outside:0\n"
     "next 0 = start:2.1\n refold\n succeeded 0\n used = 0/0/0/0\n"
     "next 0 = start:1.1@1 start:2.1"},
    {"a busy device holds its kind back", SMALL,
     "add dev=1\n add dev=1\n add\n next 0 = start:0.1@1 start:1.1@2 start:2.1\n busy 0 50\n"
     "next 10 = start:2.1 wake:50\n started 2 1\n next 10 = wake:50\n why 0 = devices:-1\n"
     "next 50 = start:0.1@1 start:1.1@2"},
    {"shares of one device, then of the next", SMALL,
     "add dev=1 share=60 cpu=0\n add dev=1 share=40 cpu=0\n add dev=1 share=30 cpu=0\n"
     "next 0 = start:0.1@1 start:1.1@1 start:2.1@2\n started 0 1 1\n bad started 1 1 3\n"
     "started 1 1 1\n bad started 2 1 1\n started 2 1 2\n used = 0/0/2/3\n refold\n"
     "succeeded 0\n add dev=1 cpu=0\n next 0 = \n succeeded 2\n next 0 = start:3.1@2"},
    {"alternatives in their order", FOUR,
     "add dev=1 on=4 or=2\n add dev=1 on=4 or=2\n next 0 = start:0.1@4 start:1.1@3/1\n"
     "started 0 1 4\n started 1 1 3 1\n refold\n used = 2000/0/3/2"},
    {"what others hold is passed over", FOUR,
     "add dev=2\n outside 0 10\n outside 1 all\n next 0 = start:0.1@c\n outside 2 1\n"
     "next 0 = \n why 0 = devices:-1 held:0 outside:7\n add dev=1 share=90\n"
     "next 0 = start:1.1@1\n outside 0 0\n next 0 = start:0.1@9 start:1.1@4"},
    {"who waits for others, and what would do", FOUR,
     "add dev=2\n add dev=1 share=60 on=3\n add dev=1 cpu=4000\n add dev=4\n started 1 1 1\n"
     "outside 1 30\n outside 2 all\n outside 3 80\n waiter = 0\n claim 0 0 = 3\n claim 0 1 = a\n"
     "claim 0 b = 3\n claim 3 1 = f\n claim 2 7 = 8\n outside 2 0\n outside 3 0\n waiter = 3\n"
     "outside 1 0\n waiter = -1\n gone 0\n claim 3 0 = none\n claim 2 0 = 2"},
    {"what is claimed is kept for it, and it is next", SMALL,
     "add dev=1 share=60 cpu=0\n add dev=1 on=1 cpu=0\n add dev=1 share=10 on=1 cpu=0\n"
     "add dev=1 share=20 cpu=0\n outside 0 40\n next 0 = start:0.1@1 start:3.1@2\n"
     "bad claimed 9 1\n claimed 1 1\n next 0 = start:0.1@1 start:3.1@2\n started 0 1 1\n"
     "bad claimed 0 1\n outside 0 30\n why 2 = devices:1 first\n next 0 = start:3.1@2\n"
     "outside 0 0\n next 0 = start:3.1@2\n refold\n claimed 1 1\n succeeded 0\n"
     "next 0 = start:1.1@1 start:3.1@2\n claimed 1 0\n outside 0 40\n next 0 = start:2.1@1 "
     "start:3.1@1"},
    {"a device is gone: who can't do without it fails", SMALL,
     "add dev=1 on=1\n add dev=1\n add needs=0\n add dev=2 look\n gone 0\n"
     "next 0 = lookup:3 fail:0 start:1.1@2\n missed 3\n next 0 = fail:0 fail:3 start:1.1@2\n"
     "bad failed! 1 exit\n failed! 0 resources\n next 0 = skip:2<0 fail:3 start:1.1@2"},
    {"out of host memory: more, on its own budget", SMALL,
     "add mem=300 retries=1 oom=1\n started 0 1\n failed 0 host_oom\n bad retrying 0 5 share\n"
     "retrying 0 5 memory\n refold\n next 5 = start:0.2\n started 0 2\n used = 1000/600/0/1\n"
     "refold\n failed 0 host_oom\n used = 0/0/0/0\n retrying 0 9\n started 0 3\n"
     "used = 1000/600/0/1\n failed! 0 host_oom\n next 9 = end:1"},
    {"out of device memory: a larger share", FOUR,
     "add dev=1 share=40 or=4 oom=2\n started 0 1 1\n failed 0 device_oom\n"
     "retrying 0 0 share\n add dev=1 share=30\n started 1 1 1\n"
     "next 0 = start:0.2@2\n refold\n outside 1 30\n outside 2 30\n outside 3 30\n next 0 = \n"
     "outside 3 20\n next 0 = start:0.2@8"},
    {"in place of a final failure, and only of a task that has it", SMALL,
     "add fallback\n add\n started 0 1\n bad retrying 0 5 fallback\n failed 0 exit\n"
     "retrying 0 5 fallback\n refold\n next 5 = start:1.1 start:0.2\n started 1 1\n"
     "failed 1 exit\n bad retrying 1 5 fallback\n started 0 2\n failed! 0 exit\n refold"},
    {"a retry waits for its time", SMALL,
     "add retries=1\n started 0 1\n failed 0 exit\n retrying 0 100\n next 10 = wake:100\n"
     "why 0 = backoff:-1\n next 99 = wake:100\n next 100 = start:0.2\n started 0 2\n refold\n"
     "failed! 0 exit\n next 200 = end:1"},
    {"retries come due in the order of their times", SMALL,
     "add\n add\n started 0 1\n started 1 1\n failed 0 exit\n failed 1 exit\n retrying 0 90\n"
     "retrying 1 80\n next 0 = wake:80\n next 95 = start:1.2 start:0.2"},
    {"without its time a retry is due at once", SMALL,
     "add\n started 0 1\n failed 0 exit\n refold\n next 5 = start:0.2\n retrying 0 9\n next 5 = "
     "wake:9"},
    {"a failure skips what depends on it, naming the root", SMALL,
     "add\n add needs=0\n add needs=1\n add\n add needs=2,3\n started 0 1\n failed! 0 exit\n"
     "next 0 = skip:1<0 skip:2<0 skip:4<0 start:3.1\n why 4 = needs:0\n skipped 2\n skipped 1\n"
     "skipped 4\n started 3 1\n refold\n succeeded 3\n next 0 = end:1"},
    {"stop: what runs may finish, nothing starts", STOP,
     "add\n add retries=5\n add needs=0\n add\n add needs=1\n started 0 1\n started 1 1\n"
     "failed! 0 exit\n next 0 = skip:2<0 cancel:4 cancel:3\n skipped 2\n cancelled 3\n next 0 = "
     "cancel:4\n"
     "cancelled 4\n next 0 = \n succeeded 1\n next 0 = end:1"},
    {"fail_fast: what runs is ended too", FAST,
     "add\n add\n add needs=1\n started 0 1\n started 1 1\n failed! 0 exit\n next 0 = stop:1 "
     "cancel:2\n"
     "failed! 1 cancelled\n next 0 = cancel:2\n cancelled 2\n next 0 = end:1"},
    {"cancel: running tasks stop, the others are cancelled", SMALL,
     "add\n add look\n add needs=0\n add dev=1\n add retries=1\n started 0 1\n missed 1\n started "
     "4 1\n"
     "failed 4 exit\n retrying 4 500\n cancelling\n next 0 = stop:0 cancel:2 cancel:4 cancel:1 "
     "cancel:3\n"
     "cancelled 1\n cancelled 3\n cancelled 2\n cancelled 4\n next 0 = stop:0\n refold\n next 0 = "
     "stop:0\n"
     "cancelled 0\n next 0 = end:2"},
    {"cancelling after everything succeeded", SMALL,
     "add\n started 0 1\n cancelling\n succeeded 0\n next 0 = end:0"},
    {"stops leave room for the rest", SMALL,
     "add\n add\n add\n add\n add\n started 0 1\n started 1 1\n started 2 1\n cancelling\n max 2\n"
     "next 0 = stop:0 cancel:3\n max 1\n next 0 = cancel:3\n cancelled 3\n cancelled 4\n"
     "next 0 = stop:0\n max 3\n next 0 = stop:0 stop:1 stop:2"},
    {"one task cancelled by itself", SMALL,
     "add\n add needs=0\n cancelled 0\n next 0 = skip:1<0\n skipped 1\n next 0 = end:2"},
    {"the graph grows", SMALL,
     "add\n started 0 1\n add needs=0\n succeeded 0\n add needs=0,1\n next 0 = start:1.1\n"
     "started 1 1\n failed! 1 exit\n add needs=2\n next 0 = skip:2<1 skip:3<1\n add\n"
     "next 0 = skip:2<1 skip:3<1 start:4.1"},
    {"impossible events", SMALL,
     "add\n add needs=0\n bad succeeded 0\n bad started 0 2\n bad started 1 1\n bad missed 0\n"
     "bad retrying 0 5\n bad skipped 1\n bad succeeded 9\n started 0 1\n bad started 0 2\n"
     "bad cached 0\n bad busy 0 5\n succeeded 0\n bad cancelled 0\n bad failed 0 exit"},
};

static void test_scripts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        play(&scripts[i]);
    }
}

static void fold_ok(stk_sched *sched, int kind, uint32_t task, uint32_t attempt)
{
    stk_sched_event event = {.kind = kind, .task = task, .attempt = attempt, .is_final = true};
    stk_err err = {0};
    if (stk_sched_fold(sched, &event, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

/* A large request behind an endless stream of small ones must start at last. */
static void test_nothing_starves(void **state)
{
    (void)state;
    stk_sched *sched = stk_sched_new(&config_small);
    stk_sched_task small = {.cpu_milli = 1000}, big = {.cpu_milli = 4000}, none = {0};
    stk_action actions[8];
    uint32_t n, running[3], first, added;
    int64_t wake;
    for (int i = 0; i < 2; i++) {
        stk_sched_add(sched, &small, NULL, 0, &running[i], NULL);
        fold_ok(sched, STK_EV_TASK_STARTED, running[i], 1);
    }
    stk_sched_add(sched, &big, NULL, 0, &first, NULL);
    for (int i = 0;; i++) {
        assert_true(i <= STK_SCHED_PATIENCE);
        stk_sched_add(sched, &small, NULL, 0, &added, NULL);
        stk_sched_next(sched, 0, actions, 8, &n, &wake);
        if (n == 0) {
            assert_int_equal(i, STK_SCHED_PATIENCE);
            break;
        }
        assert_int_equal(actions[0].task, added);
        fold_ok(sched, STK_EV_TASK_STARTED, added, 1);
        fold_ok(sched, STK_EV_TASK_SUCCEEDED, running[0], 0);
        running[0] = added;
    }
    stk_sched_why why = stk_sched_explain(sched, added);
    assert_int_equal(why.what, STK_WHY_CPU);
    assert_int_equal(why.other, first);
    /* A task that takes none of its resources still starts. */
    uint32_t harmless;
    stk_sched_add(sched, &none, NULL, 0, &harmless, NULL);
    stk_sched_next(sched, 0, actions, 8, &n, &wake);
    assert_int_equal(n, 0); /* the last worker is kept free */
    fold_ok(sched, STK_EV_TASK_SUCCEEDED, running[0], 0);
    stk_sched_next(sched, 0, actions, 8, &n, &wake);
    assert_int_equal(n, 1);
    assert_int_equal(actions[0].task, harmless);
    fold_ok(sched, STK_EV_TASK_SUCCEEDED, running[1], 0);
    stk_sched_next(sched, 0, actions, 8, &n, &wake);
    assert_int_equal(n, 2);
    assert_int_equal(actions[0].task, first);
    stk_sched_free(sched);
}

/* Three workers, four CPUs: only the number of workers limits tasks that asked for no CPUs. */
static void test_any_cpu(void **state)
{
    static const struct {
        bool any_cpu;
        uint32_t max_workers, n_started;
    } cases[] = {{false, 3, 2}, {true, 3, 3}, {true, 0, 2}, {false, 0, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_sched_config config = config_small;
        config.max_workers = cases[i].max_workers;
        stk_sched *sched = stk_sched_new(&config);
        stk_sched_task task = {.cpu_milli = 2000, .any_cpu = cases[i].any_cpu};
        stk_action actions[8];
        uint32_t n;
        int64_t wake;
        for (int k = 0; k < 5; k++) {
            assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
        }
        stk_sched_next(sched, 0, actions, 8, &n, &wake);
        assert_int_equal(n, cases[i].n_started);
        stk_sched_free(sched);
    }
}

/* by_number: of the ready tasks the lowest number is next, in whatever order they became ready. */
static void test_one_worker_takes_them_in_order(void **state)
{
    static const uint32_t first = 0, second = 1;
    static const uint32_t wanted[] = {0, 1, 2, 3};
    stk_sched_config config = config_small;
    stk_sched_task task = {.any_cpu = true};
    stk_action actions[8];
    uint32_t n;
    int64_t wake;
    (void)state;
    config.max_workers = 1;
    config.by_number = true;
    stk_sched *sched = stk_sched_new(&config);
    assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
    assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
    assert_int_equal(stk_sched_add(sched, &task, &second, 1, NULL, NULL), 0); /* ready last */
    assert_int_equal(stk_sched_add(sched, &task, &first, 1, NULL, NULL), 0);
    for (uint32_t i = 0; i < 4; i++) {
        stk_sched_next(sched, 0, actions, 8, &n, &wake);
        assert_int_equal(n, 1);
        assert_int_equal(actions[0].task, wanted[i]);
        fold_ok(sched, STK_EV_TASK_STARTED, i, 1);
        fold_ok(sched, STK_EV_TASK_SUCCEEDED, i, 0);
    }
    stk_sched_free(sched);
}

static void test_refused_tasks(void **state)
{
    (void)state;
    static const stk_pack_ask two = {.n = 2, .wanted = {{3}}}, three = {.n = 3, .wanted = {{7}}},
                              large = {.n = 1, .share_mib = 101, .wanted = {{3}}};
    static const struct {
        stk_sched_task task;
        uint32_t need;
        int code;
        const char *text;
    } cases[] = {
        {{.cpu_milli = 4000, .memory_bytes = 1000, .asks = &two, .n_asks = 1}, 0, 0, ""},
        {{.cpu_milli = 4001}, 0, STK_E_RESOURCES, "asks for 4.001 CPUs, but the host has 4"},
        {{.memory_bytes = 1001}, 0, STK_E_RESOURCES, "memory"},
        {{.asks = &three, .n_asks = 1}, 0, STK_E_RESOURCES, "asks for 3 devices"},
        {{.asks = &large, .n_asks = 1}, 0, STK_E_RESOURCES, "the host's 2 can't provide"},
        {{.asks = &two, .n_asks = STK_LIMIT_ASKS + 1}, 0, STK_E_LIMIT, "9 alternatives"},
        {{.cpu_milli = -1}, 0, STK_E_RESOURCES, "a negative number"},
        {{.cpu_milli = 1}, 2, STK_E_PROTOCOL, "needs task 2, which wasn't added before it"},
    };
    stk_sched *sched = stk_sched_new(&config_small);
    stk_sched_task any = {0};
    assert_int_equal(stk_sched_add(sched, &any, NULL, 0, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_err err = {0};
        assert_int_equal(stk_sched_add(sched, &cases[i].task, &cases[i].need, 1, NULL, &err),
                         cases[i].code);
        assert_non_null(strstr(err.text, cases[i].text));
    }
    stk_sched_counts counts;
    stk_sched_count(sched, &counts);
    assert_int_equal(counts.n_tasks, 2);
    fold_ok(sched, STK_EV_RUN_ENDED, 0, 0);
    assert_int_equal(stk_sched_add(sched, &any, NULL, 0, NULL, NULL), STK_E_PROTOCOL);
    fold_ok(sched, STK_EV_RUN_STARTED, 0, 0);
    assert_int_equal(stk_sched_add(sched, &any, NULL, 0, NULL, NULL), 0);
    stk_sched_free(sched);
}

/* A chain of 100,000 tasks whose first one fails, and one task with 10,000 inputs. */
static void test_deep_and_wide(void **state)
{
    (void)state;
    enum { DEEP = 100000, WIDE = 10000 };
    stk_sched *sched = stk_sched_new(&config_small);
    stk_sched_task task = {0};
    stk_action actions[256];
    uint32_t n, n_skipped = 0, sink, *needs = calloc(WIDE, sizeof *needs);
    int64_t wake;
    for (uint32_t i = 0; i < DEEP; i++) {
        uint32_t need = i - 1;
        assert_int_equal(stk_sched_add(sched, &task, &need, i > 0, NULL, NULL), 0);
    }
    fold_ok(sched, STK_EV_TASK_STARTED, 0, 1);
    fold_ok(sched, STK_EV_TASK_FAILED, 0, 1);
    while (stk_sched_next(sched, 0, actions, 256, &n, &wake) == 0 &&
           actions[0].kind == STK_ACT_SKIP) {
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(actions[i].cause, 0);
            fold_ok(sched, STK_EV_TASK_SKIPPED, actions[i].task, 0);
            n_skipped++;
        }
    }
    assert_int_equal(n_skipped, DEEP - 1);
    assert_int_equal(actions[0].kind, STK_ACT_END);
    for (uint32_t i = 0; i < WIDE; i++) {
        assert_int_equal(stk_sched_add(sched, &task, NULL, 0, &needs[i], NULL), 0);
    }
    assert_int_equal(stk_sched_add(sched, &task, needs, WIDE, &sink, NULL), 0);
    for (uint32_t i = 0; i < WIDE; i++) {
        assert_int_equal(stk_sched_state(sched, sink), STK_TASK_WAITING);
        fold_ok(sched, STK_EV_TASK_STARTED, needs[i], 1);
        fold_ok(sched, STK_EV_TASK_SUCCEEDED, needs[i], 1);
    }
    assert_int_equal(stk_sched_state(sched, sink), STK_TASK_READY);
    free(needs);
    stk_sched_free(sched);
}

/* More distinct requests than the initial table holds; each is found again. */
static void test_many_requests(void **state)
{
    (void)state;
    stk_sched_config config = {.cpu_milli = 1000000};
    stk_sched *sched = stk_sched_new(&config);
    stk_action actions[3000];
    uint32_t n;
    int64_t wake;
    for (uint32_t i = 0; i < 3000; i++) {
        stk_sched_task task = {.cpu_milli = i % 1000, .max_retries = i % 100};
        assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
    }
    stk_sched_next(sched, 0, actions, 3000, &n, &wake);
    int64_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        used += actions[i].task % 1000;
        assert_true(i == 0 || actions[i].task > actions[i - 1].task);
        fold_ok(sched, STK_EV_TASK_STARTED, actions[i].task, 1);
    }
    stk_sched_counts counts;
    stk_sched_count(sched, &counts);
    assert_int_equal(counts.cpu_used, used);
    assert_true(used <= 1000000 && used > 999000);
    stk_sched_free(sched);
}

static void test_limit_of_tasks(void **state)
{
    (void)state;
    stk_sched *sched = stk_sched_new(&config_small);
    stk_sched_task task = {0};
    stk_err err = {0};
    for (uint32_t i = 0; i < STK_LIMIT_TASKS; i++) {
        assert_true(stk_sched_add(sched, &task, NULL, 0, NULL, NULL) == 0);
    }
    assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, &err), STK_E_LIMIT);
    assert_non_null(strstr(err.text, "2000000 tasks"));
    stk_sched_free(sched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scripts),       cmocka_unit_test(test_nothing_starves),

        cmocka_unit_test(test_any_cpu),       cmocka_unit_test(test_one_worker_takes_them_in_order),
        cmocka_unit_test(test_refused_tasks), cmocka_unit_test(test_deep_and_wide),
        cmocka_unit_test(test_many_requests), cmocka_unit_test(test_limit_of_tasks),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
