/* Runs for the tests in this folder: a spec and its events, folded one by one. */
#ifndef STK_SHOW_TESTING_H
#define STK_SHOW_TESTING_H

#include "store/view/view.h"

typedef struct stk_show_case {
    stk_spec *spec;
    stk_view *view;
    int64_t seq;
} stk_show_case;

enum { STK_CASE_T0 = 1795266301 }; /* 2026-11-21 13:05:01 UTC, in seconds */

/* Fails the test on any error. at_ms counts from STK_CASE_T0. */
void stk_case_new(stk_show_case *c, const char *spec_json, const char *store_path);
void stk_case_done(stk_show_case *c);
void stk_case_feed(stk_show_case *c, stk_event_kind kind, uint32_t task, uint32_t attempt,
                   int64_t at_ms, const char *data);
int64_t stk_case_ms(int64_t at_ms);

/* Six steps: `load` cached, `split` and `train` succeeded (train on its second attempt), `evaluate`
 * failed, `report` and `publish` skipped. Texts that users write are hostile. */
void stk_case_mixed(stk_show_case *c, const char *store_path);
/* n steps in a chain of fans; every 1000th fails, the others succeed. */
void stk_case_many(stk_show_case *c, uint32_t n);

/* A growing run: start → n × work (foreach) → gather (join) → good or bad (switch), which failed.
 * Task n + 1 of work is a clone. Each task of work overwrites `cfg` and drops `secret`. */
void stk_case_flow(stk_show_case *c, const char *store_path, uint32_t n);
/* start → 2 × inner → 3 × leaf each. */
void stk_case_nested(stk_show_case *c, const char *store_path);
/* start → a gang of 2 → join. */
void stk_case_gang(stk_show_case *c, const char *store_path);

/* Checks that tags balance (void elements are written <x/>), attributes are quoted and no '<' or
 * '&' is stray. Takes a page, from its <html> on, or a piece of one. */
void stk_case_well_formed(const char *html);

/* Compares with tests/data/report/NAME. STOKER_UPDATE_GOLDEN rewrites that file instead. */
void stk_case_golden(const char *name, const char *text);

#endif
