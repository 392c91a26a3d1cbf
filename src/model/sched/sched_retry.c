/* Decides whether another attempt follows a failed one, when, and with what request. */
#include <math.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/map.h"
#include "model/sched/sched.h"
#include "model/sched/sched_internal.h"

#define NIL STK_SCHED_NIL

/* --- budgets --- */

int stk_sched_failures_reserve(stk_sched *sched)
{
    return stk_array_reserve(&sched->failures, &sched->cap_failures,
                             (uint64_t)sched->n_failures + 1, sizeof *sched->failures);
}

static const stk_sched_failures *failures_of(const stk_sched *sched, uint32_t task)
{
    static const stk_sched_failures none;
    uint32_t i = sched->nodes[task].failures;
    return i == NIL ? &none : &sched->failures[i];
}

/* The attempt made progress, so it is free. */
static bool is_free(const stk_sched_failures *f, stk_failure failure, bool saved)
{
    return saved && (failure == STK_FAIL_PREEMPTED || failure == STK_FAIL_TIMEOUT) &&
           f->n_saved < STK_LIMIT_PREEMPTIONS;
}

void stk_sched_count_failure(stk_sched *sched, uint32_t task, stk_failure failure, bool saved)
{
    stk_sched_node *node = &sched->nodes[task];
    if (node->failures == NIL) {
        node->failures = sched->n_failures++;
        sched->failures[node->failures] = (stk_sched_failures){0};
    }
    stk_sched_failures *f = &sched->failures[node->failures];
    if (is_free(f, failure, saved)) {
        f->n_saved++;
        return;
    }
    f->n[failure]++;
    f->last = failure;
}

void stk_sched_count_grown(stk_sched *sched, uint32_t task)
{
    stk_sched_failures *f = &sched->failures[sched->nodes[task].failures];
    f->n[f->last] -= f->n[f->last] > 0;
    f->n_grown++;
}

void stk_sched_set_fallback(stk_sched *sched, uint32_t task)
{
    sched->failures[sched->nodes[task].failures].is_fallback = true;
}

bool stk_sched_is_fallback(const stk_sched *sched, uint32_t task)
{
    return failures_of(sched, task)->is_fallback;
}

uint64_t stk_sched_digest_failures(const stk_sched *sched, uint32_t task, uint64_t hash)
{
    const stk_sched_failures *f = failures_of(sched, task);
    return stk_hash_bytes(f, sizeof *f, hash);
}

/* The number of failures, including one more, that are charged to max_retries. */
static uint64_t retries_spent(const stk_sched *sched, uint32_t task, stk_failure one_more)
{
    const stk_sched_failures *f = failures_of(sched, task);
    uint64_t n_spent = 0;
    for (int class = 0; class < STK_FAIL_N; class ++) {
        uint64_t n = (uint64_t)f->n[class] + (class == (int)one_more);
        uint64_t n_own = stk_failure_own_retries((stk_failure) class);
        if (n > n_own) {
            n_spent += n - n_own;
        }
    }
    return n_spent;
}

bool stk_sched_is_last_attempt(const stk_sched *sched, uint32_t task)
{
    return retries_spent(sched, task, STK_FAIL_EXCEPTION) >
           stk_sched_policy_of(sched, task)->max_retries;
}

/* --- more memory --- */

static stk_grows what_grows(stk_failure failure)
{
    switch (failure) {
    case STK_FAIL_HOST_OOM:
        return STK_GROWS_MEMORY;
    case STK_FAIL_DEVICE_OOM:
    case STK_FAIL_GPU_SHARE:
        return STK_GROWS_SHARE;
    default:
        return STK_GROWS_NOTHING;
    }
}

static int64_t more(int64_t amount, double factor, int64_t most)
{
    double bigger = ceil((double)amount * factor);
    return bigger < (double)most ? (int64_t)bigger : most;
}

/* Computes the request of the next attempt. False: nothing in it can grow. */
static bool grown(const stk_sched *sched, uint32_t task, stk_grows grows, int64_t ret_ask[DIM_N],
                  stk_sched_wish *ret_wish)
{
    const stk_sched_policy *policy = stk_sched_policy_of(sched, task);
    const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[task].kind);
    const stk_sched_wish *wish = stk_sched_wish_of(sched, kind);
    bool any = false;
    for (int d = 0; d < DIM_N; d++) {
        ret_ask[d] = kind->ask[d];
    }
    if (wish != NULL) {
        *ret_wish = *wish;
    }
    if (grows == STK_GROWS_MEMORY && policy->oom_memory > 1) {
        int64_t *memory = &ret_ask[stk_sched_memory_dim(ret_ask)];
        any = *memory > 0;
        *memory = more(*memory, policy->oom_memory, INT64_MAX / 2);
    }
    if (grows == STK_GROWS_SHARE && policy->oom_share > 1 && wish != NULL) {
        for (uint32_t i = 0; i < wish->n_asks; i++) {
            int32_t *share = &ret_wish->asks[i].share_mib;
            any = any || *share > 0;
            *share = (int32_t)more(*share, policy->oom_share, INT32_MAX - 1);
        }
    }
    return any;
}

uint32_t stk_sched_grown_kind(stk_sched *sched, uint32_t task, stk_grows grows)
{
    const stk_sched_kind *kind = stk_sched_kind_at(sched, sched->nodes[task].kind);
    bool has_wish = stk_sched_wish_of(sched, kind) != NULL;
    int64_t ask[DIM_N];
    stk_sched_wish wish;
    if (!grown(sched, task, grows, ask, &wish)) {
        return NIL;
    }
    return stk_sched_intern(sched, ask, has_wish ? &wish : NULL);
}

/* True if on_oom applies to the failure; *ret is its answer. */
static bool ask_on_oom(const stk_sched *sched, uint32_t task, stk_failure failure,
                       stk_sched_retrying *ret)
{
    const stk_sched_node *node = &sched->nodes[task];
    stk_grows grows = what_grows(failure);
    int64_t ask[DIM_N];
    stk_sched_wish wish = {.n_asks = 0};
    if (grows == STK_GROWS_NOTHING ||
        failures_of(sched, task)->n_grown >= stk_sched_policy_of(sched, task)->oom_retries ||
        (grows == STK_GROWS_SHARE &&
         (node->grant == NIL || sched->grants[node->grant].share_mib == 0)) ||
        !grown(sched, task, grows, ask, &wish)) {
        return false;
    }
    ret->grows = grows;
    if (grows == STK_GROWS_MEMORY) {
        int dim = stk_sched_memory_dim(ask);
        ret->amount = ask[dim];
        ret->is_too_much = ret->amount > sched->cap[dim];
    } else {
        ret->amount = more(sched->grants[node->grant].share_mib,
                           stk_sched_policy_of(sched, task)->oom_share, INT32_MAX - 1);
        ret->is_too_much = !stk_sched_is_placeable(sched, sched->host, &wish);
    }
    return true;
}

/* --- the answer --- */

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static int64_t retry_delay(const stk_sched *sched, uint32_t task, bool free)
{
    const stk_sched_policy *policy = stk_sched_policy_of(sched, task);
    uint32_t attempt = sched->nodes[task].attempt;
    uint64_t draw = mix(mix(mix(sched->config.seed) ^ task) ^ attempt);
    double unit = (double)(draw >> 11) * 0x1p-53;
    double n_waits = attempt > 0 && !free ? (double)(attempt - 1) : 0;
    double ms = (double)policy->delay_ms * pow(policy->backoff, n_waits);
    ms *= 1 + policy->jitter * (2 * unit - 1);
    if (!(ms > 0)) { /* also true for NaN */
        return 0;
    }
    return ms < (double)STK_LIMIT_TIMEOUT_MS ? llround(ms) : STK_LIMIT_TIMEOUT_MS;
}

bool stk_sched_last_resort(const stk_sched *sched, uint32_t task, stk_sched_retrying *ret_retrying)
{
    *ret_retrying =
        (stk_sched_retrying){.is_fallback = !stk_sched_is_stopping(sched) &&
                                            sched->nodes[task].state == STK_TASK_RUNNING &&
                                            !failures_of(sched, task)->is_fallback &&
                                            stk_sched_policy_of(sched, task)->fallback};
    return ret_retrying->is_fallback;
}

bool stk_sched_retry(const stk_sched *sched, uint32_t task, stk_failure failure, bool saved,
                     stk_sched_retrying *ret_retrying)
{
    *ret_retrying = (stk_sched_retrying){0};
    if (failure == STK_FAIL_CANCELLED || stk_sched_is_stopping(sched) ||
        sched->nodes[task].state != STK_TASK_RUNNING) {
        return false;
    }
    const stk_sched_failures *f = failures_of(sched, task);
    if (f->is_fallback) { /* the fallback repeats only while the class's own budget lasts */
        ret_retrying->is_fallback = f->n[failure] < stk_failure_own_retries(failure);
        return ret_retrying->is_fallback;
    }
    bool free = is_free(f, failure, saved);
    bool is_paid = free || ask_on_oom(sched, task, failure, ret_retrying);
    if (is_paid
            ? ret_retrying->is_too_much
            : retries_spent(sched, task, failure) > stk_sched_policy_of(sched, task)->max_retries) {
        if (!stk_sched_policy_of(sched, task)->fallback) {
            return false;
        }
        *ret_retrying = (stk_sched_retrying){.is_fallback = true};
        return true;
    }
    ret_retrying->delay_ms = retry_delay(sched, task, free);
    return true;
}
