#include "base/event.h"

#include <string.h>

static const char *const event_words[] = {
#define X(name, word) word,
#include "tbl/events.def"
#undef X
};

static const struct {
    const char *word;
    int flag;
} states[] =
    {
#define X(name, word, is_final) {word, is_final},
#include "tbl/states.def"
#undef X
},
  failures[] = {
#define X(name, word, own) {word, own},
#include "tbl/failures.def"
#undef X
};

static const char *const mode_words[] = {"continue_on_failure", "stop_on_failure", "fail_fast"};

const char *stk_event_word(stk_event_kind kind)
{
    return event_words[kind];
}

int stk_event_kind_of(const char *word)
{
    for (int i = 0; i < STK_EV_N; i++) {
        if (strcmp(word, event_words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

const char *stk_state_word(stk_task_state state)
{
    return states[state].word;
}

int stk_state_is_final(stk_task_state state)
{
    return states[state].flag;
}

const char *stk_failure_word(stk_failure failure)
{
    return failures[failure].word;
}

int stk_failure_of(const char *word)
{
    for (int i = 0; i < STK_FAIL_N; i++) {
        if (strcmp(word, failures[i].word) == 0) {
            return i;
        }
    }
    return -1;
}

uint32_t stk_failure_own_retries(stk_failure failure)
{
    return (uint32_t)failures[failure].flag;
}

const char *stk_mode_word(stk_mode mode)
{
    return mode_words[mode];
}

int stk_mode_of(const char *word)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(word, mode_words[i]) == 0) {
            return i;
        }
    }
    return -1;
}
