/* Python for people: decorators, keywords, strings, numbers and comments in colours. */
#include <string.h>

#include "show/show_components.h"
#include "show/show_html_private.h"

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9') ||
           (unsigned char)c >= 0x80;
}

static bool is_keyword(const char *s, size_t n)
{
    static const char words[] =
        " False None True and as assert async await break class continue def del elif else except "
        "finally for from global if import in is lambda nonlocal not or pass raise return try "
        "while with yield ";
    char padded[16] = " ";
    if (n > sizeof padded - 3) {
        return false;
    }
    memcpy(padded + 1, s, n);
    padded[n + 1] = ' ';
    padded[n + 2] = '\0';
    return strstr(words, padded) != NULL;
}

/* The length of the string literal at s, which points at its opening quote, behind any prefix. */
static size_t quoted(const char *s)
{
    char q = *s;
    bool three = s[1] == q && s[2] == q;
    size_t i = three ? 3 : 1;
    for (; s[i] != '\0'; i++) {
        if (s[i] == '\\' && s[i + 1] != '\0') {
            i++;
        } else if (s[i] == q && (!three || (s[i + 1] == q && s[i + 2] == q))) {
            return i + (three ? 3 : 1);
        } else if (s[i] == '\n' && !three) {
            return i;
        }
    }
    return i;
}

static size_t token(const char *s, const char **ret_class)
{
    size_t n = 0;
    *ret_class = NULL;
    if (*s == '#') {
        *ret_class = "c";
        return strcspn(s, "\n");
    }
    if (*s == '"' || *s == '\'') {
        *ret_class = "s";
        return quoted(s);
    }
    if (*s == '@') {
        for (n = 1; is_word(s[n]) || s[n] == '.'; n++) {
        }
        *ret_class = "d";
        return n;
    }
    if (!is_word(*s)) {
        return 1;
    }
    bool is_number = *s >= '0' && *s <= '9';
    while (is_word(s[n]) || (is_number && s[n] == '.')) {
        n++;
    }
    *ret_class = is_keyword(s, n) ? "k" : NULL;
    if (is_number) {
        *ret_class = "n";
    }
    return n;
}

void stk_html_python(stk_buf *out, const char *code)
{
    STK_BUF_AUTO piece = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_buf_text(out, "<pre class=\"code\">");
    for (size_t n; *code != '\0'; code += n) {
        const char *class;
        n = token(code, &class);
        while (class == NULL && code[n] != '\0') { /* up to the next token with a class */
            const char *next;
            size_t more = token(code + n, &next);
            if (next != NULL) {
                break;
            }
            n += more;
        }
        stk_buf_clear(&piece);
        stk_buf_add(&piece, code, n);
        if (class != NULL) {
            stk_html_put(out, "<span class=\"py-%s\">%s</span>", class, piece.data);
        } else {
            stk_html_put(out, "%s", piece.data);
        }
    }
    stk_buf_text(out, "</pre>");
}
