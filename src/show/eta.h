/* eta: how long a run has still to go, by how long the same steps took in its pipeline's earlier
 * runs. It says nothing where it would have to guess. */
#ifndef STK_SHOW_ETA_H
#define STK_SHOW_ETA_H

#include "store/view/view.h"

typedef struct stk_eta stk_eta;

/* Reads nothing yet. `view` and `store` must live longer. NULL: out of memory. */
stk_eta *stk_eta_new(const stk_view *view, stk_store *store);
void stk_eta_free(stk_eta *eta); /* NULL is fine */
/* Milliseconds until the run's expected end; -1: unknown, as with NULL. From when the run is two
 * seconds old it reads the newest earlier runs that succeeded, some milliseconds a call: of a run
 * of a million tasks a time is known after a minute or so. Computes once a second. `now_ms`: the
 * clock of the events. */
int64_t stk_eta_left_ms(stk_eta *eta, int64_t now_ms);
/* "about 20 s left", "about 3 min left", "about 1 h 10 min left". */
const char *stk_eta_text(int64_t left_ms, char *buf, size_t size);

#endif
