#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "away/remote/remote_order.h"

enum { SHORT = 8 };

static void digest_of(const char *text, char ret[SHORT + 1])
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(text, strlen(text), hex);
    memcpy(ret, hex, SHORT);
    ret[SHORT] = '\0';
}

/* Task and attempt follow the step, so two names are only equal if the steps' words are. A changed
 * word contains "--", which no other word does. */
void stk_remote_name(const char *run, const char *step, uint32_t task, uint32_t attempt,
                     char ret_name[STK_REMOTE_NAME + 1])
{
    char of_run[SHORT + 1], of_step[SHORT + 1], tail[32];
    digest_of(run, of_run);
    digest_of(step, of_step);
    int n_tail = snprintf(tail, sizeof tail, "-%u-%u", task, attempt);
    size_t room = (size_t)(STK_REMOTE_NAME - 2 - SHORT - 1 - n_tail);
    char word[STK_REMOTE_NAME + 1];
    size_t n = 0;
    bool same = strlen(step) <= room && strstr(step, "--") == NULL;
    for (; step[n] != '\0' && n < room; n++) {
        char c = (char)tolower((unsigned char)step[n]);
        word[n] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '-';
        same = same && word[n] == step[n];
    }
    if (!same) {
        if (n + 2 + SHORT > room) {
            n = room - 2 - SHORT;
        }
        memcpy(word + n, "--", 2);
        memcpy(word + n + 2, of_step, SHORT);
        n += 2 + SHORT;
    }
    (void)snprintf(ret_name, STK_REMOTE_NAME + 1, "s-%s-%.*s%s", of_run, (int)n, word, tail);
}

const char *stk_remote_key(const char *store, const char *dir)
{
    size_t n = strlen(store);
    bool below = strncmp(dir, store, n) == 0 && dir[n] == '/' && strncmp(dir + n, "/runs/", 6) == 0;
    uint32_t n_slashes = 0;
    for (const char *p = dir; below && *p != '\0'; p++) {
        n_slashes += p >= dir + n && *p == '/' ? 1 : 0;
    }
    return below && n_slashes == 5 ? dir + n + 1 : NULL;
}
