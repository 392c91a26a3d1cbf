/* end.json: written by the agent, read by the engine. */
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_order.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

/* The whole numbers, X(member), and real ones, Y(member), of an outcome and of its devices. */
#define OUTCOME_INTS                                                                               \
    X(exit_status) X(signal) X(wall_ms) X(cpu_us) X(peak_memory_bytes) X(read_bytes) X(write_bytes)
#define DEVICE_INTS                                                                                \
    X(index) X(peak_temperature_c) X(peak_memory_bytes) X(share_bytes) X(memory_bytes) X(context)
#define DEVICE_REALS Y(busy_percent_mean) Y(busy_s) Y(throttled_s) Y(energy_j)

/* --- writing --- */

static void put_outcome(const stk_outcome *o, stk_buf *buf)
{
    stk_json_open(buf, "outcome", '{');
    stk_json_put_bool(buf, "ok", o->ok);
    stk_json_put_text(buf, "failure", stk_failure_word(o->failure));
    stk_json_put_text(buf, "text", o->text);
#define X(member) stk_json_put_int(buf, #member, (int64_t)o->member);
    OUTCOME_INTS
#undef X
    char libraries[24]; /* bits as text, because many readers take a JSON number as a double */
    (void)snprintf(libraries, sizeof libraries, "%llx", (unsigned long long)o->libraries);
    stk_json_put_text(buf, "libraries", libraries);
    stk_json_put_bool(buf, "has_looked", o->has_looked);
    stk_json_put_bool(buf, "mask_changed", o->mask_changed);
    stk_json_put_text(buf, "other_device", o->other_device);
    stk_json_open(buf, "devices", '[');
    for (uint32_t i = 0; i < o->n_devices; i++) {
        const stk_outcome_device *d = &o->devices[i];
        stk_json_open(buf, NULL, '{');
        stk_json_put_text(buf, "uuid", d->uuid);
        stk_json_put_text(buf, "model", d->model);
        stk_json_put_text(buf, "noun", d->noun);
#define X(member) stk_json_put_int(buf, #member, (int64_t)d->member);
#define Y(member) stk_json_put_real(buf, #member, d->member);
        DEVICE_INTS DEVICE_REALS
#undef X
#undef Y
            stk_json_close(buf, '}');
    }
    stk_json_close(buf, ']');
    stk_json_close(buf, '}');
}

static bool is_plain(const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c >= 0x7f || (c < 0x20 && c != '\n' && c != '\r' && c != '\t')) {
            return false;
        }
    }
    return true;
}

static void put_base64(const char *data, size_t n, stk_buf *buf)
{
    enum { AT_ONCE = 3 << 10 };
    char coded[AT_ONCE / 3 * 4 + 1];
    stk_buf_char(buf, '"');
    for (size_t at = 0; at < n; at += AT_ONCE) {
        int len = (int)MIN(n - at, AT_ONCE);
        (void)EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)data + at, len);
        stk_buf_text(buf, coded);
    }
    stk_buf_char(buf, '"');
}

static void put_end_file(const stk_remote_file *f, stk_buf *buf)
{
    stk_json_open(buf, f->name, '{');
    if (f->data == NULL) {
        stk_json_put_text(buf, "key", f->key);
        stk_json_put_int(buf, "size", f->size);
    } else if (is_plain(f->data, (size_t)f->size)) {
        stk_json_put_text(buf, "text", f->data);
    } else {
        stk_json_put_key(buf, "base64");
        put_base64(f->data, (size_t)f->size, buf);
    }
    stk_json_close(buf, '}');
}

int stk_remote_end_write(const stk_remote_end *end, stk_buf *buf, stk_err *err)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_int(buf, "stoker", 1);
    stk_json_put_text(buf, "host", end->host);
    stk_json_put_int(buf, "node", end->node);
    stk_json_put_int(buf, "started_ms", end->started_ms);
    stk_json_put_int(buf, "ended_ms", end->ended_ms);
    if (end->has_live) {
        stk_json_put_bool(buf, "live", true);
    }
    put_outcome(&end->outcome, buf);
    stk_json_put_raw(buf, "granted", end->granted);
    stk_json_open(buf, "files", '{');
    for (uint32_t i = 0; i < end->n_files; i++) {
        put_end_file(&end->files[i], buf);
    }
    stk_json_close(buf, '}');
    stk_json_close(buf, '}');
    if (buf->failed) {
        return stk_err_set(err, STK_E_LIMIT, "end.json would have more than %zu bytes", buf->max);
    }
    return 0;
}

/* --- reading --- */

static void read_used_devices(const stk_json *list, stk_outcome *o)
{
    uint32_t most = sizeof o->devices / sizeof *o->devices;
    uint32_t n = stk_json_n_items(list);
    for (uint32_t i = 0; i < n && i < most; i++) {
        const stk_json *from = &list->items[i];
        stk_outcome_device *d = &o->devices[o->n_devices++];
        d->uuid = stk_json_get_text(from, "uuid");
        d->model = stk_json_get_text(from, "model");
        d->noun = stk_json_get_text(from, "noun");
#define X(member) d->member = (__typeof__(d->member))stk_json_get_whole(from, #member, -1);
#define Y(member) d->member = stk_json_get_number(from, #member, -1);
        DEVICE_INTS DEVICE_REALS
#undef X
#undef Y
    }
}

static int read_outcome(const stk_json *from, stk_outcome *o, stk_err *err)
{
    const char *class = stk_json_get_text(from, "failure");
    const char *text = stk_json_get_text(from, "text");
    const char *libraries = stk_json_get_text(from, "libraries");
    int failure = stk_failure_of(stk_text_or(class, ""));
    if (failure < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "end.json: its outcome has an unknown class");
    }
    *o = (stk_outcome){.ok = stk_json_is_true(stk_json_get(from, "ok")),
                       .failure = (stk_failure)failure};
    (void)snprintf(o->text, sizeof o->text, "%s", stk_text_or(text, ""));
#define X(member) o->member = (__typeof__(o->member))stk_json_get_whole(from, #member, -1);
    OUTCOME_INTS
#undef X
    o->signal = MAX(o->signal, 0);
    o->wall_ms = MAX(o->wall_ms, 0);
    o->libraries = strtoull(stk_text_or(libraries, ""), NULL, 16);
    o->has_looked = stk_json_is_true(stk_json_get(from, "has_looked"));
    o->mask_changed = stk_json_is_true(stk_json_get(from, "mask_changed"));
    o->other_device = stk_json_get_text(from, "other_device");
    read_used_devices(stk_json_get(from, "devices"), o);
    return 0;
}

bool stk_remote_is_wild_rank(const char *part)
{
    static const char before[] = "rank-";
    bool is_rank = strncmp(part, before, sizeof before - 1) == 0;
    return is_rank && strtoull(part + sizeof before - 1, NULL, 10) >= STK_LIMIT_ALL_RANKS;
}

/* True for a file below the attempt directory that an agent may send: not one that the engine
 * wrote, nor one in a folder whose links lead into the store. */
static bool is_file_name(const char *name)
{
    enum { LONGEST = 2048 };
    if (!stk_remote_is_below(name) || strlen(name) > LONGEST || strcmp(name, "task.json") == 0) {
        return false;
    }
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part != name;
        if (strcspn(part, "/") > NAME_MAX || stk_remote_is_wild_rank(part)) {
            return false;
        }
        if (strncmp(part, "in/", 3) == 0 || strncmp(part, "out/", 4) == 0 ||
            strncmp(part, "tmp/", 4) == 0) {
            return false;
        }
    }
    return true;
}

static int decode_base64(const char *text, size_t len, stk_arena *arena, stk_remote_file *f,
                         stk_err *err)
{
    char *data = stk_arena_alloc(arena, len / 4 * 3 + 4);
    STK_TRY(stk_err_if_null(data, err));
    int n = EVP_DecodeBlock((unsigned char *)data, (const unsigned char *)text, (int)len);
    if (n < 0) {
        return stk_err_set(err, STK_E_PROTOCOL, "end.json: file '%s' isn't valid base64", f->name);
    }
    for (size_t i = len; i > 0 && text[i - 1] == '='; i--) {
        n--;
    }
    data[n] = '\0';
    f->data = data;
    f->size = n;
    return 0;
}

static int read_end_file(const stk_json *key, const stk_json *value, stk_arena *arena,
                         stk_remote_file *f, stk_err *err)
{
    const stk_json *text = stk_json_get(value, "text");
    const stk_json *coded = stk_json_get(value, "base64");
    *f = (stk_remote_file){.name = key->text, .key = stk_json_get_text(value, "key")};
    if (!is_file_name(f->name)) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "end.json: '%s' isn't a file of the attempt directory", f->name);
    }
    if (stk_json_is_kind(text, STK_JSON_TEXT)) {
        f->data = text->text;
        f->size = text->n;
        return 0;
    }
    if (stk_json_is_kind(coded, STK_JSON_TEXT)) {
        return decode_base64(coded->text, coded->n, arena, f, err);
    }
    f->size = stk_json_get_whole(value, "size", -1);
    if (f->key == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "end.json: file '%s' has no content", f->name);
    }
    return 0;
}

int stk_remote_end_read(const char *text, size_t len, stk_arena *arena, stk_remote_end *ret,
                        stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES * 2, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json doc;
    stk_remote_end end = {0};
    STK_TRY(stk_json_parse(text, len, "end.json", &limits, arena, &doc, err));
    int64_t format = stk_json_get_whole(&doc, "stoker", 0);
    if (format != 1) {
        return stk_err_set(err, STK_E_VERSION,
                           "end.json has format %lld, which this Stoker doesn't know",
                           (long long)format);
    }
    STK_TRY(read_outcome(stk_json_get(&doc, "outcome"), &end.outcome, err));
    const stk_json *granted = stk_json_get(&doc, "granted");
    const stk_json *files = stk_json_get(&doc, "files");
    end.n_files = stk_json_n_members(files);
    stk_remote_file *list = stk_arena_array(arena, (size_t)end.n_files + 1, sizeof *list);
    STK_TRY(stk_err_if_null(list, err));
    for (uint32_t i = 0; i < end.n_files; i++) {
        STK_TRY(
            read_end_file(stk_json_key(files, i), stk_json_value(files, i), arena, &list[i], err));
    }
    end.host = stk_text_or(stk_json_get_text(&doc, "host"), "");
    end.node = (uint32_t)stk_json_get_whole(&doc, "node", 0);
    end.started_ms = stk_json_get_whole(&doc, "started_ms", -1);
    end.ended_ms = stk_json_get_whole(&doc, "ended_ms", -1);
    if (stk_json_is_map(granted)) {
        end.granted = stk_json_dump_in(granted, arena);
    }
    end.files = list;
    end.has_live = stk_json_is_true(stk_json_get(&doc, "live"));
    *ret = end;
    return 0;
}
