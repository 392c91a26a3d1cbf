/* TensorBoard's event files: records of a length, its checksum, a serialized Event, its checksum
 * (TFRecord). Of an Event only the scalars count: Event {1: double wall_time, 2: int64 step,
 * 5: Summary {1: Value {1: tag, 2: float simple_value, 8: Tensor {1: type, 4: content, 5: floats,
 * 6: doubles}}}} (tensorboard/compat/proto/event.proto, summary.proto, tensor.proto). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/text.h"
#include "store/metrics/metrics_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum {
    HEAD = 12,             /* a record's length and its checksum */
    TAIL = 4,              /* the checksum of its data */
    RECORD_MAX = 64 << 20, /* images and histograms are records, too */
    DT_FLOAT = 1,
    DT_DOUBLE = 2,
    FILES_MAX = 10000
};

/* A serialized message; fields are taken from its begin. */
typedef struct message {
    const unsigned char *at;
    size_t n;
} message;

/* A field: a number (varint, 32 or 64 bits as they lie there), or the bytes of a text or message.
 */
typedef struct field {
    uint32_t number, type;
    uint64_t value;
    message bytes;
} field;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static bool take_varint(message *m, uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; shift < 64 && m->n > 0; shift += 7) {
        unsigned char byte = *m->at++;
        m->n--;
        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

static bool take_bytes(message *m, size_t n, const unsigned char **ret)
{
    *ret = m->at;
    if (n > m->n) {
        return false;
    }
    m->at += n;
    m->n -= n;
    return true;
}

/* False at the end, and where the message is damaged (then *ret_bad). */
static bool take_field(message *m, field *ret, bool *ret_bad)
{
    uint64_t key = 0, size = 0;
    const unsigned char *at = NULL;
    bool fine = false;
    *ret = (field){0};
    if (m->n == 0 || *ret_bad) {
        return false;
    }
    if (take_varint(m, &key)) {
        ret->number = (uint32_t)(key >> 3);
        ret->type = key & 7;
    }
    if (ret->type == VARINT) {
        fine = take_varint(m, &ret->value);
    } else if (ret->type == FIXED64 && take_bytes(m, 8, &at)) {
        memcpy(&ret->value, at, 8);
        fine = true;
    } else if (ret->type == FIXED32 && take_bytes(m, 4, &at)) {
        memcpy(&ret->value, at, 4);
        fine = true;
    } else if (ret->type == BYTES && take_varint(m, &size) && take_bytes(m, size, &at)) {
        ret->bytes = (message){at, size};
        fine = true;
    }
    *ret_bad = !fine || ret->number == 0;
    return !*ret_bad;
}

static double float_of(const void *at)
{
    float value = 0;
    memcpy(&value, at, sizeof value);
    return value;
}

static double double_of(const void *at)
{
    double value = 0;
    memcpy(&value, at, sizeof value);
    return value;
}

/* A tensor of one number. */
static bool read_tensor(message m, double *ret, bool *ret_bad)
{
    field f;
    uint64_t type = 0;
    uint32_t n = 0;
    message content = {0};
    while (take_field(&m, &f, ret_bad)) {
        if (f.number == 1 && f.type == VARINT) {
            type = f.value;
        } else if (f.number == 4 && f.type == BYTES) {
            content = f.bytes;
        } else if (f.number == 5 && (f.type == FIXED32 || f.bytes.n == 4)) {
            *ret = f.type == FIXED32 ? float_of(&f.value) : float_of(f.bytes.at);
            n++;
        } else if (f.number == 6 && (f.type == FIXED64 || f.bytes.n == 8)) {
            *ret = f.type == FIXED64 ? double_of(&f.value) : double_of(f.bytes.at);
            n++;
        }
    }
    if (n == 0 && type == DT_FLOAT && content.n == 4) {
        *ret = float_of(content.at);
        n = 1;
    } else if (n == 0 && type == DT_DOUBLE && content.n == 8) {
        *ret = double_of(content.at);
        n = 1;
    }
    return n == 1;
}

/* A value of a summary; false: it is no scalar. */
static bool read_scalar(message m, char name[STK_LIMIT_METRIC_NAME + 1], double *ret, bool *ret_bad)
{
    field f;
    bool is_scalar = false;
    name[0] = '\0';
    while (take_field(&m, &f, ret_bad)) {
        if (f.number == 1 && f.type == BYTES) {
            (void)snprintf(name, STK_LIMIT_METRIC_NAME + 1, "%.*s", (int)f.bytes.n, f.bytes.at);
        } else if (f.number == 2 && f.type == FIXED32) {
            *ret = float_of(&f.value);
            is_scalar = true;
        } else if (f.number == 8 && f.type == BYTES) {
            is_scalar = read_tensor(f.bytes, ret, ret_bad) || is_scalar;
        }
    }
    return is_scalar && name[0] != '\0';
}

typedef struct events {
    stk_metrics *metrics;
    const char *path;
    const char *prefix;     /* the file's folder below the one that is read; "": there */
    stk_metric_point point; /* step and time of the event */
} events;

static int read_summary(const events *e, message m, bool *ret_bad, stk_err *err)
{
    char name[STK_LIMIT_METRIC_NAME + 1], full[2 * STK_LIMIT_METRIC_NAME];
    field f;
    while (take_field(&m, &f, ret_bad)) {
        stk_metric_point point = e->point;
        if (f.number != 1 || f.type != BYTES ||
            !read_scalar(f.bytes, name, &point.value, ret_bad)) {
            continue;
        }
        const char *slash = stk_text_when(e->prefix[0] != '\0', "/");
        (void)snprintf(full, sizeof full, "%.200s%s%s", e->prefix, slash, name);
        full[STK_LIMIT_METRIC_NAME] = '\0';
        STK_TRY(stk_metrics_event(e->metrics, full, &point, err));
    }
    return 0;
}

/* The summary may stand before the step: it is read last. */
static int read_event(events *e, message m, stk_err *err)
{
    field f;
    bool is_bad = false;
    message summary = {0};
    e->point = (stk_metric_point){.step = 0, .time_ms = -1};
    while (take_field(&m, &f, &is_bad)) {
        if (f.number == 1 && f.type == FIXED64) {
            e->point.time_ms = (int64_t)(double_of(&f.value) * 1000 + 0.5);
        } else if (f.number == 2 && f.type == VARINT) {
            e->point.step = (int64_t)f.value;
        } else if (f.number == 5 && f.type == BYTES) {
            summary = f.bytes;
        }
    }
    STK_TRY(read_summary(e, summary, &is_bad, err));
    if (is_bad) {
        stk_metrics_note_bad(e->metrics, "a record", e->path, "is damaged");
    }
    return 0;
}

/* Returns 1 if there was a whole record, 0 at the end of those. */
static int read_record(events *e, int fd, unsigned char **data, size_t *cap, stk_err *err)
{
    unsigned char head[HEAD];
    uint64_t size = 0;
    if (read(fd, head, sizeof head) != (ssize_t)sizeof head) {
        return 0; /* the end, or a record that is being written */
    }
    memcpy(&size, head, sizeof size);
    if (size > RECORD_MAX) {
        stk_metrics_note_bad(e->metrics, "a record", e->path, "is longer than 64 MiB");
        return 0;
    }
    if (size + TAIL > *cap) {
        unsigned char *more = realloc(*data, size + TAIL);
        STK_TRY(stk_err_if_null(more, err));
        *data = more;
        *cap = size + TAIL;
    }
    if (read(fd, *data, size + TAIL) != (ssize_t)(size + TAIL)) {
        return 0;
    }
    STK_TRY(read_event(e, (message){*data, size}, err));
    return 1;
}

static int read_events(events *e, stk_err *err)
{
    STK_FD_AUTO fd = stk_file_open_regular(e->path, O_RDONLY, 0);
    unsigned char *data = NULL;
    size_t cap = 0;
    int rc = 1;
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "reading %s", e->path);
    }
    while (rc > 0) {
        rc = read_record(e, fd, &data, &cap, err);
    }
    free(data);
    return rc;
}

typedef struct walk {
    stk_metrics *metrics;
    uint32_t n;
} walk;

static int visit_file(void *arg, const stk_dir_seen *seen, stk_err *err)
{
    walk *w = arg;
    char folder[PATH_MAX];
    if (!S_ISREG(seen->st->st_mode) || strstr(seen->name, ".tfevents.") == NULL ||
        w->n++ >= FILES_MAX) {
        return 0;
    }
    (void)snprintf(folder, sizeof folder, "%s", seen->below);
    char *slash = strrchr(folder, '/');
    folder[slash == NULL ? 0 : slash - folder] = '\0';
    events e = {.metrics = w->metrics, .path = seen->path, .prefix = folder};
    return read_events(&e, err);
}

int stk_metrics_add_events(stk_metrics *metrics, const char *folder, stk_err *err)
{
    walk w = {.metrics = metrics};
    int rc = stk_dir_walk(folder, visit_file, &w, err);
    return stk_err_but(rc, STK_E_NOT_FOUND);
}
