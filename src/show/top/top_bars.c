/* Bars and curves of one colour, from characters that fonts of terminals have. */
#include <string.h>
#include <sys/param.h>

#include "show/top/top_private.h"

enum { EIGHTHS = 8, DOTS = 4, STEPS = 3 };

/* Adds the character that text of UTF-8 has for the code point (of three bytes). */
static void put_code_point(stk_buf *out, unsigned code)
{
    stk_buf_char(out, (char)(0xE0 | code >> 12));
    stk_buf_char(out, (char)(0x80 | (code >> 6 & 0x3F)));
    stk_buf_char(out, (char)(0x80 | (code & 0x3F)));
}

void stk_top_bar(stk_buf *out, const stk_style *style, int percent, int columns, stk_ink ink)
{
    STK_BUF_AUTO full = STK_BUF_INIT(1u << 16);
    STK_BUF_AUTO rest = STK_BUF_INIT(1u << 16);
    int eighths = MAX(MIN(percent, 100), 0) * columns * EIGHTHS / 100;
    int used = eighths / EIGHTHS;
    if (percent > 0) {
        eighths = MAX(eighths, 1);
    }
    for (int i = 0; i < used; i++) {
        stk_buf_text(&full, style->utf8 ? "█" : "#");
    }
    if (style->utf8 && eighths % EIGHTHS > 0) {
        put_code_point(&full, 0x2590u - (unsigned)(eighths % EIGHTHS)); /* ▏ to ▉ */
        used++;
    }
    for (int i = used; i < columns; i++) {
        static const char *const marks[2][2] = {{".", "·"}, {" ", " "}};
        stk_buf_text(&rest, marks[percent < 0][style->utf8]);
    }
    if (full.len > 0) {
        stk_text_ink(out, style, ink, full.data);
    }
    if (rest.len > 0) {
        stk_text_ink(out, style, STK_INK_DIM, rest.data);
    }
}

/* The value `back` looks before the last one, in parts of which a line has `parts`; 0: unknown. */
static int level_of(const stk_top *top, const int16_t *values, int back, int parts)
{
    if (back >= (int)top->n_past) {
        return 0;
    }
    int percent = values[(top->past_at + STK_TOP_PAST - (unsigned)back) % STK_TOP_PAST];
    if (percent < 0) {
        return 0;
    }
    return MAX((percent * parts + 99) / 100, 1);
}

static void put_braille(stk_buf *out, int left, int right)
{
    static const unsigned char lefts[] = {0, 0x40, 0x44, 0x46, 0x47};
    static const unsigned char rights[] = {0, 0x80, 0xA0, 0xB0, 0xB8};
    unsigned dots = lefts[MAX(MIN(left, DOTS), 0)] | rights[MAX(MIN(right, DOTS), 0)];
    if (dots == 0) {
        stk_buf_char(out, ' '); /* some fonts draw circles for no dot */
    } else {
        put_code_point(out, 0x2800 + dots);
    }
}

void stk_top_curve(stk_buf *out, const stk_style *style, const stk_top *top, const int16_t *values,
                   int columns, int height, int row, stk_ink ink)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    int below = height - 1 - row; /* lines under this one */
    for (int i = columns - 1; i >= 0; i--) {
        if (style->utf8) {
            int parts = height * DOTS;
            put_braille(&text, level_of(top, values, 2 * i + 1, parts) - below * DOTS,
                        level_of(top, values, 2 * i, parts) - below * DOTS);
        } else {
            int level = level_of(top, values, i, height * STEPS) - below * STEPS;
            stk_buf_char(&text, " .:|"[MAX(MIN(level, STEPS), 0)]);
        }
    }
    if (text.len > 0) {
        stk_text_ink(out, style, ink, text.data);
    }
}
