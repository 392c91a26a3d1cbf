/* What a card shows of an artifact: the component that its step described, or the artifact itself
 * if it is a picture, a page, a text or JSON. Nothing is unpickled, and pages run nothing. */
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "show/show_components.h"
#include "show/show_html_private.h"
#include "show/show_text.h"
#include "sys/file.h"

enum {
    MAX_PREVIEW = 8 << 20, /* bytes of a described component, of a picture, or of a page */
    HEAD_BYTES = 6000,     /* of a text */
    HEAD_LINES = 40,
    SHORT = 80 /* columns of a value that stands in its row */
};

/* --- pictures --- */

/* The media type of the bytes of a picture, or NULL. */
static const char *picture_type(const char *data, size_t len)
{
    static const struct {
        const char *start, *type;
        size_t n;
    } kinds[] = {{"\x89PNG\r\n\x1a\n", "png", 8},
                 {"\xff\xd8\xff", "jpeg", 3},
                 {"GIF8", "gif", 4},
                 {"<svg", "svg+xml", 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (len > kinds[i].n && memcmp(data, kinds[i].start, kinds[i].n) == 0) {
            return kinds[i].type;
        }
    }
    if (len > 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0) {
        return "webp";
    }
    if (len > 5 && memcmp(data, "<?xml", 5) == 0 && memmem(data, len, "<svg", 4) != NULL) {
        return "svg+xml";
    }
    return NULL;
}

static void put_picture(stk_buf *out, const char *name, const char *type, const char *base64)
{
    stk_html_put(out, "<figure><img alt=\"%s\" src=\"", name);
    stk_buf_printf(out, "data:image/%s;base64,", type);
    stk_buf_text(out, base64);
    stk_buf_text(out, "\"/></figure>");
}

static bool put_picture_file(stk_buf *out, const char *name, const char *path)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    if (stk_file_read_untrusted(path, MAX_PREVIEW, &data, &len, NULL) < 0) {
        return false;
    }
    const char *type = picture_type(data, len);
    STK_TEXT_AUTO base64 = type == NULL ? NULL : malloc(4 * ((len + 2) / 3) + 1);
    if (base64 == NULL) {
        return false;
    }
    (void)EVP_EncodeBlock((unsigned char *)base64, (const unsigned char *)data, (int)len);
    put_picture(out, name, type, base64);
    return true;
}

/* Bytes that a step returned, as the worker writes them: {"!py": "bytes", "v": BASE64}. */
static bool put_picture_value(stk_buf *out, const char *name, const stk_json *value)
{
    const char *base64 = stk_json_get_text(value, "v");
    unsigned char head[64];
    if (!stk_json_is(stk_json_get(value, "!py"), "bytes") || base64 == NULL ||
        strlen(base64) < 64) {
        return false;
    }
    int len = EVP_DecodeBlock(head, (const unsigned char *)base64, 64);
    const char *type = len < 0 ? NULL : picture_type((const char *)head, (size_t)len);
    const char *end = base64 + strspn(base64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                              "0123456789+/=");
    if (type == NULL || *end != '\0') {
        return false;
    }
    put_picture(out, name, type, base64);
    return true;
}

/* --- texts --- */

/* Cuts a text after some lines or bytes, at the end of a character. Returns true if it was cut. */
static bool cut_head(char *text)
{
    size_t len = strlen(text), at = 0;
    int lines = 0;
    while (at < len && at < HEAD_BYTES && lines < HEAD_LINES) {
        lines += text[at++] == '\n';
    }
    while (at > 0 && at < len && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    text[at] = '\0';
    return at < len;
}

static void put_text(stk_buf *out, char *text, bool is_cut)
{
    is_cut = cut_head(text) || is_cut;
    stk_html_put(out, "<pre>%s%s</pre>", text, stk_text_when(is_cut, "…"));
}

/* Reads the first bytes of a file, NUL-terminated; NULL: it can't be read or isn't text. */
static char *read_head(const char *path, bool *ret_cut)
{
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY | O_NOFOLLOW, 0);
    char *text = fd < 0 ? NULL : malloc(2 * HEAD_BYTES + 1);
    if (text == NULL) {
        return NULL;
    }
    ssize_t n = pread(fd, text, (size_t)2 * HEAD_BYTES, 0);
    n = MAX(n, 0);
    text[n] = '\0';
    *ret_cut = n == 2 * HEAD_BYTES;
    if (n == 0 || strlen(text) != (size_t)n) {
        free(text);
        return NULL;
    }
    return text;
}

/* Control characters other than line ends and tabs mean that the file is no text. */
static bool is_readable(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' && strchr("\t\n\r\f\x1b", *text) == NULL) {
            return false;
        }
    }
    return true;
}

static bool put_text_file(stk_buf *out, const char *format, const char *path)
{
    bool is_cut = false;
    STK_TEXT_AUTO text = read_head(path, &is_cut);
    if (text == NULL || !is_readable(text)) {
        return false;
    }
    if (strcmp(format, "markdown") == 0) {
        (void)cut_head(text);
        stk_html_markdown(out, text);
    } else {
        put_text(out, text, is_cut);
    }
    return true;
}

static bool put_json(stk_buf *out, const stk_json *value)
{
    STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES);
    if (stk_json_is_list(value)) { /* not one item a line */
        stk_json_dump(value, &text);
    } else {
        stk_json_dump_pretty(value, &text);
    }
    if (text.data != NULL) {
        put_text(out, text.data, false);
    }
    return text.data != NULL;
}

/* --- one artifact --- */

/* A value that fits into its row needs no preview below it. */
static bool is_short(const char *text)
{
    return strchr(text, '\n') == NULL && stk_text_width(text) <= SHORT;
}

static bool put_value(stk_buf *out, const stk_view_ref *ref, stk_arena *arena)
{
    const stk_json *value = stk_json_read(arena, ref->value);
    const char *text = stk_json_text(value);
    if (put_picture_value(out, ref->name, value)) {
        return true;
    }
    if (text != NULL && !is_short(text)) {
        char *copy = stk_arena_dup(arena, text);
        if (copy != NULL) {
            put_text(out, copy, false);
        }
        return true;
    }
    return value != NULL && text == NULL && !is_short(ref->value) && put_json(out, value);
}

static bool put_described(const page *p, stk_buf *out, const stk_view_ref *ref, stk_arena *arena)
{
    const char *path = stk_view_artifact_path(arena, p->run->store, ref->preview);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (path == NULL || stk_file_read_untrusted(path, MAX_PREVIEW, &text, &len, NULL) < 0) {
        return false;
    }
    const stk_json *one = stk_json_readn(arena, text, len);
    if (one != NULL) {
        stk_html_component(out, one);
    }
    return one != NULL;
}

static bool put_json_file(stk_buf *out, const char *path, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (stk_file_read_untrusted(path, MAX_PREVIEW, &text, &len, NULL) < 0) {
        return false;
    }
    const stk_json *value = stk_json_readn(arena, text, len);
    return value != NULL && put_json(out, value);
}

/* In `stoker ui` a page comes by itself, and may be large. */
static bool put_page(const page *p, stk_buf *out, const char *digest, const char *path)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (p->served && !stk_file_exists(path)) {
        return false;
    }
    if (p->served) {
        stk_html_put(out,
                     "<iframe sandbox=\"\" title=\"a page of the step\" src=\"raw?digest=%s\">"
                     "</iframe>",
                     digest);
        return true;
    }
    if (stk_file_read_untrusted(path, MAX_PREVIEW, &text, &len, NULL) < 0) {
        return put_text_file(out, "html", path);
    }
    stk_html_frame(out, text);
    return true;
}

static bool put_file(const page *p, stk_buf *out, const stk_view_ref *ref, stk_arena *arena)
{
    static const struct {
        const char *format;
        bool picture, text;
    } formats[] = {{"png", true, false},  {"file", true, true}, {"bytes", true, true},
                   {"text", false, true}, {"csv", false, true}, {"markdown", false, true}};
    const char *format = stk_text_or(ref->format, "");
    const char *path = stk_view_artifact_path(arena, p->run->store, ref->digest);
    if (path == NULL) {
        return false;
    }
    if (strcmp(format, "html") == 0) {
        return put_page(p, out, ref->digest, path);
    }
    if (strcmp(format, "json") == 0) {
        return put_json_file(out, path, arena);
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(format, formats[i].format) == 0) {
            return (formats[i].picture && put_picture_file(out, ref->name, path)) ||
                   (formats[i].text && put_text_file(out, format, path));
        }
    }
    return false;
}

void stk_html_value(stk_buf *out, const stk_view_ref *ref, const char *about)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *value = stk_json_read(arena, ref->value);
    const char *text = stk_json_text(value);
    if (text == NULL) {
        text = stk_text_or(ref->value, stk_text_or(about, ""));
    }
    if (stk_json_is_kind(value, STK_JSON_REAL)) {
        text = stk_arena_printf(arena, "%.6g", stk_json_number(value, 0));
    }
    STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
    if (ref->value == NULL || is_short(text)) {
        stk_text_fit(&cut, text, 300, false, true);
    }
    if (cut.len > 0) {
        stk_html_put(out, "<td><code>%s</code></td>", cut.data);
    } else {
        stk_buf_text(out, "<td></td>");
    }
}

void stk_html_preview(const page *p, stk_buf *out, const stk_view_ref *ref)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO html = STK_BUF_INIT(MAX_CARD_BYTES);
    bool found = false;
    if (arena == NULL || ref->digest == NULL) {
        return;
    }
    if (ref->preview != NULL) {
        found = put_described(p, &html, ref, arena);
    } else if (ref->value != NULL) {
        found = put_value(&html, ref, arena);
    } else {
        found = put_file(p, &html, ref, arena);
    }
    if (!found || html.failed) {
        return;
    }
    stk_buf_text(out, "<tr class=\"preview\"><td colspan=\"5\">");
    if (html.len <= *p->preview_room) {
        *p->preview_room -= html.len;
        stk_buf_add(out, html.data, html.len);
    } else {
        stk_buf_text(out, "<span class=\"dim\">not shown here: this card would be too large; "
                          "see the task's card</span>");
    }
    stk_buf_text(out, "</td></tr>\n");
}
