#include "show/prints_line.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

const char *stk_line_last_state(const char *text, size_t *len)
{
    while (*len > 0 && text[*len - 1] == '\r') {
        --*len;
    }
    const char *last = memrchr(text, '\r', *len);
    if (last != NULL) {
        *len -= (size_t)(last + 1 - text);
        text = last + 1;
    }
    return text;
}

/* The length of the escape sequence at `text`. *ret_colour: it sets a colour (SGR). */
static size_t escape_len(const char *text, size_t len, bool *ret_colour)
{
    size_t n = 2;
    *ret_colour = false;
    if (len < 2 || text[1] != '[') {
        return MIN(len, 2);
    }
    while (n < len && (unsigned char)text[n] >= 0x20 && (unsigned char)text[n] < 0x40) {
        n++;
    }
    *ret_colour = n < len && text[n] == 'm';
    return MIN(len, n + 1);
}

void stk_line_put(stk_buf *out, const char *text, size_t len, bool tty, bool bare)
{
    bool is_coloured = false;
    size_t done = 0;
    for (size_t i = 0; tty && i < len;) {
        unsigned char c = (unsigned char)text[i];
        bool is_colour = false;
        size_t n = 1;
        if (c >= 0x20 && c != 0x7F) {
            i++;
            continue;
        }
        if (c == '\033') {
            n = escape_len(text + i, len - i, &is_colour);
        }
        stk_buf_add(out, text + done, i - done);
        if (c == '\t') {
            stk_buf_text(out, "    ");
        } else if (is_colour && !bare) {
            stk_buf_add(out, text + i, n);
            is_coloured = true;
        }
        i += n;
        done = i;
    }
    stk_buf_add(out, text + done, len - done);
    if (is_coloured) {
        stk_buf_text(out, "\033[0m");
    }
}

/* The number in "[N] " or "[node N] " at the line's start; skips it. -1: there is none. */
static int64_t number_in_brackets(const char *word, const char **text, size_t *len)
{
    size_t n = strlen(word);
    int64_t number = 0;
    if (*len < n + 3 || memcmp(*text, word, n) != 0) {
        return -1;
    }
    for (; n < *len && (*text)[n] >= '0' && (*text)[n] <= '9' && number < 1000000; n++) {
        number = number * 10 + ((*text)[n] - '0');
    }
    if (n == strlen(word) || n + 2 > *len || (*text)[n] != ']' || (*text)[n + 1] != ' ') {
        return -1;
    }
    *text += n + 2;
    *len -= n + 2;
    return number;
}

int64_t stk_line_rank(const char **text, size_t *len)
{
    const char *at = *text;
    size_t left = *len;
    (void)number_in_brackets("[node ", &at, &left);
    int64_t rank = number_in_brackets("[", &at, &left);
    if (rank >= 0) {
        *text = at;
        *len = left;
    }
    return rank;
}

/* --- stacks --- */

static const char stack_head[] = "(most recent call first):";

bool stk_line_has_stack(stk_line_stack at, const char *text, size_t len)
{
    return at != STK_STACK_NONE || memmem(text, len, stack_head, sizeof stack_head - 1) != NULL;
}

bool stk_line_is_ours(stk_line_stack *at, const char *line, size_t len)
{
    static const char frame[] = "  File \"", ours[] = "/stoker/_worker/attempt.py\"";
    size_t n = sizeof stack_head - 1;
    if (len >= n && memcmp(line + len - n, stack_head, n) == 0) {
        *at = STK_STACK_BEGINS;
        return false;
    }
    if (*at == STK_STACK_NONE || len < sizeof frame || memcmp(line, frame, sizeof frame - 1) != 0) {
        *at = STK_STACK_NONE;
        return false;
    }
    bool is_first = *at == STK_STACK_BEGINS;
    if (*at == STK_STACK_OF_US || memmem(line, len, ours, sizeof ours - 1) != NULL) {
        *at = STK_STACK_OF_US;
        return !is_first;
    }
    *at = STK_STACK_OF_USER;
    return false;
}

/* --- lines printed already --- */

/* The line of a gang's node is marked with it only while it comes from another machine. */
static uint64_t hash_line(const char *text, size_t len)
{
    (void)number_in_brackets("[node ", &text, &len);
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    }
    return h;
}

void stk_line_set_add(stk_line_set *set, const char *text, size_t len)
{
    if (set->n == set->cap) {
        size_t cap = MAX(64, set->cap * 2);
        uint64_t *items = realloc(set->items, cap * sizeof *items);
        if (items == NULL) {
            return; /* the line may appear twice */
        }
        set->items = items;
        set->cap = cap;
    }
    set->items[set->n++] = hash_line(text, len) | 1; /* even: taken out */
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

bool stk_line_set_take(stk_line_set *set, const char *text, size_t len)
{
    uint64_t wanted = hash_line(text, len) | 1;
    size_t low = 0, high = set->n;
    if (!set->is_sorted) {
        qsort(set->items, set->n, sizeof *set->items, compare);
        set->is_sorted = true;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->items[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == set->n || set->items[low] != wanted) {
        return false;
    }
    set->items[low] &= ~(uint64_t)1; /* the items stay in order */
    return true;
}

void stk_line_set_free(stk_line_set *set)
{
    free(set->items);
    *set = (stk_line_set){0};
}
