#include "sys/cgroup_bpf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sys/file.h"

enum { HEAD = 5, PER_DEVICE = 4, TAIL = 2 };

static int ask(int command, union bpf_attr *attr)
{
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* Loads a program of n instructions. Returns its descriptor, or -1 with errno. */
static int load(const struct bpf_insn *program, uint32_t n)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    attr.insns = address(program);
    attr.insn_cnt = n;
    attr.license = address("GPL");
    return ask(BPF_PROG_LOAD, &attr);
}

static struct bpf_insn answer(int allowed)
{
    return (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = allowed};
}

/* Registers are constants, so that the compiler checks that they fit in four bits. FIELD loads a
 * field of the request (in register 1); UNLESS skips `skip` instructions if the register holds
 * another value. */
#define FIELD(to, name)                                                                            \
    ((struct bpf_insn){.code = BPF_LDX | BPF_MEM | BPF_W,                                          \
                       .dst_reg = (to),                                                            \
                       .src_reg = 1,                                                               \
                       .off = (int16_t)offsetof(struct bpf_cgroup_dev_ctx, name)})
#define UNLESS(reg, is, skip)                                                                      \
    ((struct bpf_insn){.code = BPF_JMP | BPF_JNE | BPF_K,                                          \
                       .dst_reg = (reg),                                                           \
                       .imm = (int32_t)(is),                                                       \
                       .off = (int16_t)(skip)})

static const struct bpf_insn leave = {.code = BPF_JMP | BPF_EXIT};

bool stk_cgroup_bpf_can_close(void)
{
    static int known; /* 1: yes, -1: no */
    if (known == 0) {
        const struct bpf_insn program[] = {answer(1), leave};
        STK_FD_AUTO fd = load(program, 2);
        known = fd >= 0 ? 1 : -1;
    }
    return known > 0;
}

/* Writes a program that allows everything except the closed character devices. */
static uint32_t write_program(struct bpf_insn *at, const dev_t *closed, uint32_t n_closed)
{
    const struct bpf_insn *first = at;
    *at++ = FIELD(2, access_type);
    *at++ = FIELD(3, major);
    *at++ = FIELD(4, minor);
    *at++ = (struct bpf_insn){.code = BPF_ALU64 | BPF_AND | BPF_K,
                              .dst_reg = 2,
                              .imm = 0xffff}; /* the upper half holds the access: read, write … */
    *at++ = UNLESS(2, BPF_DEVCG_DEV_CHAR, PER_DEVICE * n_closed);
    for (uint32_t i = 0; i < n_closed; i++) {
        *at++ = UNLESS(3, major(closed[i]), 3);
        *at++ = UNLESS(4, minor(closed[i]), 2);
        *at++ = answer(0);
        *at++ = leave;
    }
    *at++ = answer(1);
    *at++ = leave;
    return (uint32_t)(at - first);
}

int stk_cgroup_bpf_close(const char *dir, const dev_t *closed, uint32_t n_closed, stk_err *err)
{
    if (n_closed == 0) {
        return 0;
    }
    struct bpf_insn *program = calloc(HEAD + (size_t)PER_DEVICE * n_closed + TAIL, sizeof *program);
    if (program == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for control group %s", dir);
    }
    STK_FD_AUTO fd = load(program, write_program(program, closed, n_closed));
    int sys = errno;
    free(program);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_ENV, sys, "cannot close devices to control group %s", dir);
    }
    STK_FD_AUTO group = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.target_fd = (uint32_t)group;
    attr.attach_bpf_fd = (uint32_t)fd; /* the group keeps the program */
    attr.attach_type = BPF_CGROUP_DEVICE;
    attr.attach_flags = BPF_F_ALLOW_MULTI; /* beside a container's existing programs */
    if (group < 0 || ask(BPF_PROG_ATTACH, &attr) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "cannot close devices to control group %s", dir);
    }
    return 0;
}
