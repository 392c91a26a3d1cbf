/* Columns, colours, marks and amounts: the parts of every text report. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_text.h"
#include "sys/file.h"

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0') {
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
        }
    }
    return false;
}

stk_style stk_style_of(FILE *out, bool colour)
{
    stk_style style = {.colour = colour, .utf8 = locale_is_utf8(), .columns = 100};
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        style.columns = MAX(40, MIN(size.ws_col, STK_STYLE_COLUMNS_MOST));
    }
    if (getcwd(style.cwd, sizeof style.cwd) == NULL) {
        style.cwd[0] = '\0';
    }
    return style;
}

void stk_text_ink(stk_buf *out, const stk_style *style, stk_ink ink, const char *text)
{
    static const char *const codes[] = {"",        "\033[32m", "\033[31m", "\033[33m",
                                        "\033[2m", "\033[1m",  "\033[36m", "\033[35m"};
    if (!style->colour || ink == STK_INK_PLAIN) {
        stk_buf_text(out, text);
        return;
    }
    stk_buf_text(out, codes[ink]);
    stk_buf_text(out, text);
    stk_buf_text(out, "\033[0m");
}

const char *stk_text_mark(const char *status, bool utf8, stk_ink *ret_ink)
{
    static const struct {
        const char *status, *mark, *ascii;
        stk_ink ink;
    } marks[] = {
        {"succeeded", "✓", "+", STK_INK_GOOD}, {"cached", "↺", "=", STK_INK_GOOD},
        {"failed", "✗", "x", STK_INK_BAD},     {"skipped", "–", "-", STK_INK_DIM},
        {"cancelled", "■", "o", STK_INK_WARN}, {"running", "▶", ">", STK_INK_BOLD},
        {"retrying", "↻", "~", STK_INK_WARN},  {"interrupted", "!", "!", STK_INK_WARN},
        {"waiting", "·", ".", STK_INK_DIM},
    };
    size_t i = 0;
    while (i + 1 < sizeof marks / sizeof *marks && strcmp(marks[i].status, status) != 0) {
        i++;
    }
    *ret_ink = marks[i].ink;
    return utf8 ? marks[i].mark : marks[i].ascii;
}

/* --- columns --- */

/* Decodes the code point at s. A byte that isn't UTF-8 counts as one character. */
static uint32_t decode(const unsigned char *s, size_t *ret_len)
{
    uint32_t c = s[0];
    size_t n = 1u + (c >= 0xC0) + (c >= 0xE0) + (c >= 0xF0);
    if (n != 1) {
        c = c & (0x7Fu >> n);
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            *ret_len = 1;
            return '?';
        }
        c = c << 6 | (s[i] & 0x3Fu);
    }
    *ret_len = n;
    return c;
}

static int columns_of(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x300 && c <= 0x36F) ||
        (c >= 0x200B && c <= 0x200F) || (c >= 0xFE00 && c <= 0xFE0F)) {
        return 0;
    }
    bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1F6FF) ||
                (c >= 0x1F900 && c <= 0x1F9FF) || (c >= 0x20000 && c <= 0x3FFFD);
    return wide ? 2 : 1;
}

int stk_text_width(const char *text)
{
    int width = 0;
    for (size_t len; *text != '\0'; text += len) {
        width += columns_of(decode((const unsigned char *)text, &len));
    }
    return width;
}

/* Escapes and other control characters of C0 and C1, and those that change the text's direction. */
static bool is_harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

void stk_text_fit(stk_buf *out, const char *text, int columns, bool pad, bool utf8)
{
    STK_BUF_AUTO clean = STK_BUF_INIT(1u << 20);
    int total = 0;
    for (size_t len; *text != '\0' && total <= 4 * columns + 16; text += len) {
        uint32_t c = decode((const unsigned char *)text, &len);
        bool plain = !is_harmful(c) && !(len == 1 && (unsigned char)*text >= 0x80);
        if (plain) {
            stk_buf_add(&clean, text, len);
            total += columns_of(c);
        } else {
            stk_buf_char(&clean, '?');
            total++;
        }
    }
    const char *dots = utf8 ? "…" : "..";
    int room = columns, used = 0;
    if (total > columns) {
        room -= stk_text_width(dots);
    }
    for (const char *s = clean.data; s != NULL && *s != '\0';) {
        size_t len;
        int w = columns_of(decode((const unsigned char *)s, &len));
        if (used + w > room) {
            break;
        }
        stk_buf_add(out, s, len);
        used += w;
        s += len;
    }
    if (total > columns && columns >= 2) {
        stk_buf_text(out, dots);
        used += stk_text_width(dots);
    }
    for (; pad && used < columns; used++) {
        stk_buf_char(out, ' ');
    }
}

void stk_text_cell(stk_buf *out, const stk_style *style, const char *text, int columns)
{
    stk_text_fit(out, text, columns, true, style->utf8);
    stk_buf_text(out, "  ");
}

void stk_text_end_line(stk_buf *out)
{
    while (out->len > 0 && out->data[out->len - 1] == ' ') {
        out->data[--out->len] = '\0';
    }
    stk_buf_char(out, '\n');
}

void stk_text_safe(stk_buf *out, const char *text, const char *indent)
{
    for (size_t len; *text != '\0'; text += len) {
        uint32_t c = decode((const unsigned char *)text, &len);
        if (c == '\n') {
            stk_buf_char(out, '\n');
            if (text[1] != '\0') {
                stk_buf_text(out, indent);
            }
        } else if (c == '\t') {
            stk_buf_text(out, "    ");
        } else if (is_harmful(c) || (len == 1 && (unsigned char)*text >= 0x80)) {
            if (c != '\r') {
                stk_buf_char(out, '?');
            }
        } else {
            stk_buf_add(out, text, len);
        }
    }
}

/* --- amounts, paths, times --- */

static void add_devices(stk_buf *out, const stk_view_amounts *a)
{
    char text[32];
    stk_buf_separate(out, ", ");
    if (a->share_bytes > 0) {
        stk_buf_printf(out, "%s of ", stk_units_format_memory(a->share_bytes, text, sizeof text));
    }
    stk_buf_printf(out, "%lld %s", (long long)a->n_devices, stk_text_or(a->noun, "GPU"));
    if (a->noun != NULL) {
        stk_buf_text(out, stk_text_plural((uint64_t)a->n_devices));
    }
}

void stk_text_amounts(stk_buf *out, const stk_view_amounts *a, bool utf8)
{
    char text[32];
    STK_BUF_AUTO all = STK_BUF_INIT(4096);
    if (a->cpus >= 0) {
        (void)snprintf(text, sizeof text, a->cpus >= 9.95 ? "%.0f" : "%.1f", a->cpus);
        char *end = text + strlen(text) - 2;
        if (end > text && strcmp(end, ".0") == 0) {
            *end = '\0';
        }
        stk_buf_printf(&all, "%s CPU", text);
    }
    if (a->memory_bytes >= 0) {
        stk_buf_separate(&all, ", ");
        stk_buf_text(&all, stk_units_format_memory(a->memory_bytes, text, sizeof text));
    }
    /* "0 GPUs" is worth saying only for used amounts, the only ones with wall_s: the step left its
     * devices idle. */
    if (a->n_alternatives > 1) {
        stk_buf_separate(&all, ", ");
        stk_buf_printf(&all, "any of %u", a->n_alternatives);
    } else if (a->n_devices > 0 || (a->n_devices == 0 && a->wall_s >= 0)) {
        add_devices(&all, a);
    }
    stk_buf_text(out, stk_text_or(all.data, stk_text_dash(utf8)));
}

const char *stk_text_path(const stk_style *style, const char *path)
{
    size_t n = strlen(style->cwd);
    bool below = n > 1 && strncmp(path, style->cwd, n) == 0 && path[n] == '/';
    return below ? path + n + 1 : path;
}

void stk_text_tail(stk_buf *out, const char *path, int n_lines)
{
    enum { MAX_TAIL = 16384 };
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    off_t size = lseek(fd, 0, SEEK_END); /* -1, too, if it isn't open */
    if (size <= 0) {
        return;
    }
    char text[MAX_TAIL + 1];
    ssize_t n = pread(fd, text, MAX_TAIL, MAX(size - MAX_TAIL, 0));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) {
        n--;
    }
    n = MAX(n, 0);
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] == '\0') {
            text[i] = '?'; /* a zero byte would end the C string */
        }
    }
    text[n] = '\0';
    /* The stack of a crashed Python begins with the innermost call: show its first lines
     * instead. */
    const char *stack = strstr(text, "(most recent call first):\n");
    ssize_t start = n;
    if (stack != NULL) {
        start = strchr(stack, '\n') + 1 - text;
        const char *end = text + start, *ours = strstr(end, "/stoker/_worker/attempt.py\"");
        for (; n_lines > 0 && end != NULL; n_lines--) {
            end = strchr(end + 1, '\n');
        }
        if (ours != NULL && (end == NULL || ours < end)) { /* what called the user's function */
            end = memrchr(text, '\n', (size_t)(ours - text));
        }
        if (end != NULL) {
            n = end - text;
        }
    }
    while (stack == NULL && start > 0 && !(text[start - 1] == '\n' && --n_lines == 0)) {
        start--;
    }
    if (n > start) {
        stk_buf_add(out, text + start, (size_t)(n - start));
    }
}

const char *stk_text_time(int64_t ms, bool utc, char *buf, size_t size)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    const char *format = utc ? "%Y-%m-%d %H:%M:%SZ" : "%Y-%m-%d %H:%M:%S";
    const struct tm *known = (utc ? gmtime_r : localtime_r)(&seconds, &tm);
    if (known == NULL || strftime(buf, size, format, &tm) == 0) {
        (void)snprintf(buf, size, "?");
    }
    return buf;
}

const char *stk_text_count(uint64_t n, char *buf, size_t size)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    size_t k = 0;
    for (int i = 0; i < len && k + 2 < size; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            buf[k++] = ',';
        }
        buf[k++] = digits[i];
    }
    buf[k] = '\0';
    return buf;
}
