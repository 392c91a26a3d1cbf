#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/link/link_private.h"

void stk_link_frame_done(link_frame *f)
{
    free(f->data);
    f->data = NULL;
}

void stk_link_reader_done(link_reader *r)
{
    stk_link_frame_done(&r->frame);
}

void stk_link_frame_prefix(uint64_t id, size_t n_head, size_t n_body,
                           unsigned char ret[LINK_PREFIX])
{
    uint32_t sizes[2] = {htole32((uint32_t)n_head), htole32((uint32_t)n_body)};
    uint64_t number = htole64(id);
    memcpy(ret, sizes, sizeof sizes);
    memcpy(ret + sizeof sizes, &number, sizeof number);
}

char *stk_link_frame_make(uint64_t id, const char *head, size_t n_head, const void *body,
                          size_t n_body, size_t *ret_n)
{
    char *data = malloc(LINK_PREFIX + n_head + n_body);
    if (data == NULL) {
        return NULL;
    }
    stk_link_frame_prefix(id, n_head, n_body, (unsigned char *)data);
    memcpy(data + LINK_PREFIX, head, n_head);
    if (n_body > 0) {
        memcpy(data + LINK_PREFIX + n_head, body, n_body);
    }
    *ret_n = LINK_PREFIX + n_head + n_body;
    return data;
}

/* The bytes that were read; 0: none are there now. */
static ssize_t read_some(int fd, void *to, size_t n, stk_err *err)
{
    ssize_t got = read(fd, to, n);
    if (got > 0) {
        return got;
    }
    if (got == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "the connection has ended");
    }
    if (errno == EAGAIN || errno == EINTR) {
        return 0;
    }
    return stk_err_sys(err, STK_E_SYS, errno, "reading from the connection");
}

static int begin_frame(link_reader *r, stk_err *err)
{
    uint32_t sizes[2];
    uint64_t id;
    memcpy(sizes, r->prefix, sizeof sizes);
    memcpy(&id, r->prefix + sizeof sizes, sizeof id);
    r->frame =
        (link_frame){.id = le64toh(id), .n_head = le32toh(sizes[0]), .n_body = le32toh(sizes[1])};
    if (r->frame.n_head > STK_LINK_HEAD_MAX || r->frame.n_body > STK_LINK_BODY_MAX) {
        return stk_err_set(err, STK_E_PROTOCOL, "the other end sent what is no message");
    }
    r->at = 0;
    r->frame.data = malloc((size_t)r->frame.n_head + 1 + r->frame.n_body);
    if (r->frame.data == NULL) {
        return stk_err_nomem(err);
    }
    r->frame.data[r->frame.n_head] = '\0';
    return 0;
}

int stk_link_reader_read(link_reader *r, int fd, link_frame *ret, stk_err *err)
{
    while (r->n_prefix < LINK_PREFIX) {
        ssize_t n = read_some(fd, r->prefix + r->n_prefix, LINK_PREFIX - r->n_prefix, err);
        if (n <= 0) {
            return (int)n;
        }
        r->n_prefix += (size_t)n;
        if (r->n_prefix == LINK_PREFIX) {
            STK_TRY(begin_frame(r, err));
        }
        if (r->blocks && (r->n_prefix < LINK_PREFIX || r->frame.n_head + r->frame.n_body > 0)) {
            return 0;
        }
    }
    size_t n_head = r->frame.n_head, whole = n_head + r->frame.n_body;
    while (r->at < whole) { /* the NUL between head and body isn't read */
        bool is_head = r->at < n_head;
        char *to = r->frame.data + r->at + (is_head ? 0 : 1);
        ssize_t n = read_some(fd, to, (is_head ? n_head : whole) - r->at, err);
        if (n <= 0) {
            return (int)n;
        }
        r->at += (size_t)n;
        if (r->blocks && r->at < whole) {
            return 0;
        }
    }
    *ret = r->frame;
    *r = (link_reader){.blocks = r->blocks};
    return 1;
}
