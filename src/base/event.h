/* Enums that the rooms share about a run: events, task states, failure classes (lists in src/tbl).
 */
#ifndef STK_BASE_EVENT_H
#define STK_BASE_EVENT_H

#include <stdint.h>

typedef enum {
#define X(name, word) STK_EV_##name,
#include "tbl/events.def"
#undef X
    STK_EV_N
} stk_event_kind;

typedef enum {
#define X(name, word, is_final) STK_TASK_##name,
#include "tbl/states.def"
#undef X
    STK_TASK_N
} stk_task_state;

typedef enum {
#define X(name, word, own) STK_FAIL_##name,
#include "tbl/failures.def"
#undef X
    STK_FAIL_N
} stk_failure;

/* Execution modes, as in ZenML: what happens to the other steps when a step has finally failed. */
typedef enum {
    STK_MODE_CONTINUE, /* steps that do not depend on it still run */
    STK_MODE_STOP,     /* no new step starts; running steps may finish */
    STK_MODE_FAIL_FAST /* running steps are ended too */
} stk_mode;

typedef enum { STK_POLICY_FIT, STK_POLICY_STRICT } stk_policy;

const char *stk_event_word(stk_event_kind kind);
int stk_event_kind_of(const char *word); /* -1: unknown */
const char *stk_state_word(stk_task_state state);
int stk_state_is_final(stk_task_state state);
const char *stk_failure_word(stk_failure failure);
int stk_failure_of(const char *word); /* -1: unknown */
/* Free attempts that tasks get for this failure class before it uses up the step's retries
 * (tbl/failures.def). */
uint32_t stk_failure_own_retries(stk_failure failure);
const char *
stk_mode_word(stk_mode mode);      /* "continue_on_failure", "stop_on_failure", "fail_fast" */
int stk_mode_of(const char *word); /* -1: unknown */

#endif
