/* What Slurm says of a job, in our words. Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"

/* Text, because --json gives the jobs of all users, whatever the filters say, before 23.02. The
 * name comes last: it has no '|', and neither have the others. */
const char stk_slurm_look_format[] = "%F|%K|%T|%r|%S|%N|%j";

#define STARTS_AT "; Slurm expects it to start at "

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* squeue says "N/A" for the index of what is no child. */
bool stk_slurm_seen_read(char *line, stk_slurm_seen *ret)
{
    const char **fields[] = {&ret->state, &ret->reason, &ret->start, &ret->nodes, &ret->name};
    enum { N_FIELDS = sizeof fields / sizeof *fields };
    char *index = strchr(line, '|');
    char *rest = index == NULL ? NULL : strchr(index + 1, '|');
    if (rest == NULL || !is_digit(line[0])) {
        return false;
    }
    *rest++ = '\0';
    *index = '_';
    if (!is_digit(index[1])) {
        *index = '\0';
    }
    ret->id = line;
    for (size_t i = 0; i < N_FIELDS; i++) {
        *fields[i] = rest;
        rest = rest == NULL ? NULL : strchr(rest, '|');
        if (rest != NULL && i + 1 < N_FIELDS) {
            *rest++ = '\0';
        }
    }
    return ret->name != NULL;
}

static bool number_behind(const char *text, const char *word, uint32_t *ret)
{
    const char *at = strstr(text, word);
    if (at == NULL) {
        return false;
    }
    at += strlen(word);
    at += strspn(at, " =");
    *ret = (uint32_t)strtoul(at, NULL, 10);
    return is_digit(*at);
}

uint32_t stk_slurm_array_max(const char *config)
{
    enum { OF_SLURM = 1001 };
    uint32_t size = OF_SLURM, tasks = 0;
    (void)number_behind(config, "MaxArraySize", &size);
    if (number_behind(config, "max_array_tasks=", &tasks)) {
        return MIN(size, tasks);
    }
    return size;
}

static bool is_one(const char *state, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(state, *words) == 0) {
            return true;
        }
    }
    return false;
}

stk_slurm_phase stk_slurm_phase_of(const char *state)
{
    static const char *const waits[] = {"PENDING",       "CONFIGURING", "REQUEUED",
                                        "REQUEUE_HOLD",  "REQUEUE_FED", "SPECIAL_EXIT",
                                        "RESV_DEL_HOLD", NULL};
    static const char *const runs[] = {"RUNNING",  "SUSPENDED", "STOPPED",
                                       "RESIZING", "SIGNALING", NULL};
    static const char *const ends[] = {"COMPLETING", "STAGE_OUT", NULL};
    if (is_one(state, waits)) {
        return SLURM_WAITS;
    }
    if (is_one(state, runs)) {
        return SLURM_RUNS;
    }
    return is_one(state, ends) ? SLURM_ENDS : SLURM_OVER;
}

void stk_slurm_reason(const stk_slurm_seen *seen, char *ret, size_t size)
{
    static const char *const known[][2] = {
#define X(word, sentence) {word, sentence},
#include "tbl/slurm_reasons.def"
#undef X
    };
    const char *sentence = "Slurm gives this reason";
    if (strcmp(seen->state, "CONFIGURING") == 0) {
        sentence = "its nodes are being powered up or configured";
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i][0]);
        bool begins = known[i][0][n - 1] == '*' && strncmp(known[i][0], seen->reason, n - 1) == 0;
        if (begins || strcmp(known[i][0], seen->reason) == 0) {
            sentence = known[i][1];
            break;
        }
    }
    int n = snprintf(ret, size, "%s (%s)", sentence, seen->reason);
    bool has_start = seen->start[0] >= '0' && seen->start[0] <= '9';
    if (has_start && n > 0 && (size_t)n < size) {
        (void)snprintf(ret + n, size - (size_t)n, STARTS_AT "%s", seen->start);
    }
}

bool stk_slurm_is_other_wait(const char *told, const char *text)
{
    const char *start = strstr(text, STARTS_AT);
    size_t n = start == NULL ? strlen(text) : (size_t)(start - text);
    bool begins_alike = strncmp(told, text, n) == 0;
    bool is_same =
        begins_alike && (told[n] == '\0' || strncmp(told + n, STARTS_AT, strlen(STARTS_AT)) == 0);
    return !is_same || (start != NULL && told[n] == '\0'); /* or its first start */
}

bool stk_slurm_field(const char *text, const char *key, char *ret, size_t size)
{
    size_t n = strlen(key);
    for (const char *at = strstr(text, key); at != NULL; at = strstr(at + n, key)) {
        if ((at == text || at[-1] == ' ' || at[-1] == '\n') && at[n] == '=') {
            (void)snprintf(ret, size, "%.*s", (int)strcspn(at + n + 1, " \n"), at + n + 1);
            return true;
        }
    }
    return false;
}

/* States that end a job from outside. */
static const struct ended {
    const char *state;
    stk_failure failure;
    const char *text;
} ended[] = {
    {"TIMEOUT", STK_FAIL_TIMEOUT, "Slurm ended it at its time limit; ask for more `time`"},
    {"DEADLINE", STK_FAIL_TIMEOUT, "Slurm ended it at its deadline"},
    {"OUT_OF_MEMORY", STK_FAIL_HOST_OOM, "Slurm ended it for its memory"},
    {"PREEMPTED", STK_FAIL_PREEMPTED, "a job of higher priority took its nodes"},
    {"NODE_FAIL", STK_FAIL_LOST, "one of its nodes failed"},
    {"BOOT_FAIL", STK_FAIL_LOST, "one of its nodes couldn't boot"},
    {"REVOKED", STK_FAIL_LOST, "another cluster of the federation took it"},
    {"CANCELLED", STK_FAIL_CANCELLED, "somebody cancelled it by scancel"},
};

void stk_slurm_end(const char *id, const char *state, const char *exit_code, stk_remote_report *ret)
{
    const char *colon = strchr(stk_text_or(exit_code, ""), ':');
    ret->state = STK_REMOTE_ENDED;
    ret->exit_status = colon == NULL ? -1 : (int)strtol(exit_code, NULL, 10);
    ret->signal = colon == NULL ? 0 : (int)strtol(colon + 1, NULL, 10);
    ret->text[0] = '\0';
    if (strcmp(state, "COMPLETED") == 0) {
        ret->exit_status = 0;
        return;
    }
    /* "CANCELLED by 1000" */
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        if (strncmp(state, ended[i].state, strlen(ended[i].state)) == 0) {
            ret->state = STK_REMOTE_FAILED;
            ret->failure = ended[i].failure;
            ret->oom = ended[i].failure == STK_FAIL_HOST_OOM;
            ret->exit_status = -1;
            ret->signal = 0;
            (void)snprintf(ret->text, sizeof ret->text, "job %s: %s", id, ended[i].text);
            return;
        }
    }
}
