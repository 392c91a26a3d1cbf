/* Finds the compute capabilities that a library's CUDA code is for.
 *
 * nvcc leaves a container for each translation unit in the section .nv_fatbin:
 *
 *     container: u32 magic, u16 version, u16 header bytes, u64 bytes of the entries that follow
 *     entry:     u16 kind (1 PTX, 2 machine code), u16 version, u32 header bytes, u64 payload
 * bytes, u32 compressed bytes, u32, u16 minor, u16 major, u32 arch (90), u32, u32, u64 flags
 *
 * A library of PyTorch has some thousand of them in a gigabyte, so we step from header to header
 * and never read a payload. */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "host/preflight/preflight_private.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    FATBIN_MAGIC = (int)0xBA55ED50u,
    FATBIN_ENTRY_MIN = 48, /* bytes of an entry's header that we read */
    FATBIN_KIND_PTX = 1,
    FATBIN_KIND_ELF = 2,
    FATBIN_FLAG_EXACT = 1 << 20, /* sm_90a */
    FATBIN_FLAG_FAMILY = 1 << 21,
    FATBIN_MAX_HEADERS = 200000,
    FATBIN_MAX_MS = 400, /* for a cold disk; from a warm cache 10,000 headers take about 10 ms */
    ELF_MAX_SECTIONS = 4096
};

const stk_arch stk_preflight_arches[] = {
#define X(arch, kind) {arch, STK_ARCH_##kind},
#include "tbl/arches.def"
#undef X
};
const uint32_t stk_preflight_n_arches =
    sizeof stk_preflight_arches / sizeof stk_preflight_arches[0];
_Static_assert(sizeof stk_preflight_arches / sizeof stk_preflight_arches[0] <= 64,
               "arch_bits has 64 bits");

bool stk_preflight_arch_runs(uint64_t arch_bits, int32_t cc)
{
    for (uint32_t i = 0; i < stk_preflight_n_arches; i++) {
        const stk_arch *a = &stk_preflight_arches[i];
        if ((arch_bits >> i & 1) != 0 &&
            (a->arch == cc ||
             (a->kind != STK_ARCH_EXACT && a->arch / 10 == cc / 10 && a->arch < cc))) {
            return true;
        }
    }
    return false;
}

const char *stk_preflight_arch_text(uint64_t arch_bits, bool has_ptx, int32_t ptx_arch,
                                    stk_arena *arena)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1024);
    int32_t last = -1;
    for (uint32_t i = 0; i < stk_preflight_n_arches; i++) {
        int32_t arch = stk_preflight_arches[i].arch;
        if ((arch_bits >> i & 1) != 0 && arch != last) {
            stk_buf_separate(&text, ", ");
            stk_buf_printf(&text, "%d.%d", arch / 10, arch % 10);
            last = arch;
        }
    }
    if (has_ptx) {
        stk_buf_separate(&text, " and ");
        stk_buf_printf(&text, "PTX of %d.%d", ptx_arch / 10, ptx_arch % 10);
    }
    return stk_arena_dup(arena, stk_text_or(text.data, "nothing"));
}

/* --- reading --- */

static bool read_at(int fd, void *to, size_t n, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

/* Finds a section's offset and size; false: none, or not a 64-bit ELF file of our byte order. */
static bool find_section(int fd, const char *name, uint64_t *ret_offset, uint64_t *ret_size)
{
    Elf64_Ehdr head;
    if (!read_at(fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr) ||
        head.e_shnum > ELF_MAX_SECTIONS || head.e_shstrndx >= head.e_shnum) {
        return false;
    }
    size_t bytes = head.e_shnum * sizeof(Elf64_Shdr);
    Elf64_Shdr *sections = malloc(bytes);
    bool found = false;
    if (sections != NULL && read_at(fd, sections, bytes, head.e_shoff)) {
        const Elf64_Shdr *names = &sections[head.e_shstrndx];
        for (uint32_t i = 0; i < head.e_shnum && !found; i++) {
            char text[16] = "";
            size_t n = strlen(name) + 1;
            if (sections[i].sh_type == SHT_PROGBITS && n <= sizeof text &&
                sections[i].sh_name < names->sh_size &&
                read_at(fd, text, n, names->sh_offset + sections[i].sh_name) &&
                memcmp(text, name, n) == 0) {
                *ret_offset = sections[i].sh_offset;
                *ret_size = sections[i].sh_size;
                found = true;
            }
        }
    }
    free(sections);
    return found;
}

typedef struct code_found {
    uint64_t arch_bits;
    int32_t ptx_arch; /* -1: none */
    uint32_t n_headers;
} code_found;

static void note_entry(code_found *found, const unsigned char *entry)
{
    uint16_t kind;
    uint32_t arch;
    uint64_t flags;
    memcpy(&kind, entry, sizeof kind);
    memcpy(&arch, entry + 28, sizeof arch);
    memcpy(&flags, entry + 40, sizeof flags);
    int of = STK_ARCH_PLAIN;
    if ((flags & FATBIN_FLAG_FAMILY) != 0) {
        of = STK_ARCH_FAMILY;
    } else if ((flags & FATBIN_FLAG_EXACT) != 0) {
        of = STK_ARCH_EXACT;
    }
    if (kind == FATBIN_KIND_PTX && of == STK_ARCH_PLAIN && arch < 1000 &&
        (found->ptx_arch < 0 || (int32_t)arch < found->ptx_arch)) {
        found->ptx_arch = (int32_t)arch;
    }
    for (uint32_t i = 0; i < stk_preflight_n_arches && kind == FATBIN_KIND_ELF; i++) {
        if (stk_preflight_arches[i].arch == (int32_t)arch &&
            (int)stk_preflight_arches[i].kind == of) {
            found->arch_bits |= (uint64_t)1 << i;
        }
    }
}

/* Reads the container at `at`; returns its end, or 0 if there is none. */
static uint64_t read_container(int fd, uint64_t at, uint64_t end, code_found *found)
{
    unsigned char head[16], entry[FATBIN_ENTRY_MIN];
    uint32_t magic;
    uint16_t head_bytes;
    uint64_t bytes;
    if (end - at < sizeof head || !read_at(fd, head, sizeof head, at)) {
        return 0;
    }
    memcpy(&magic, head, sizeof magic);
    memcpy(&head_bytes, head + 6, sizeof head_bytes);
    memcpy(&bytes, head + 8, sizeof bytes);
    at += head_bytes;
    if (magic != (uint32_t)FATBIN_MAGIC || head_bytes < sizeof head || at > end ||
        bytes > end - at) {
        return 0;
    }
    uint64_t stop = at + bytes;
    while (stop - at >= sizeof entry && read_at(fd, entry, sizeof entry, at)) {
        uint32_t header;
        uint64_t payload;
        memcpy(&header, entry + 4, sizeof header);
        memcpy(&payload, entry + 8, sizeof payload);
        if (header < sizeof entry || header > stop - at || payload > stop - at - header) {
            break;
        }
        note_entry(found, entry);
        found->n_headers++;
        at += header + payload;
    }
    return stop;
}

bool stk_preflight_fatbin(const char *path, uint64_t *ret_arch_bits, int32_t *ret_ptx_arch)
{
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0, size = 0;
    if (fd < 0 || !find_section(fd, ".nv_fatbin", &at, &size) || size > UINT64_MAX - at) {
        return false;
    }
    /* Otherwise the kernel reads ahead at each step, and thus the whole gigabyte. */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    int64_t late_ms = stk_clock_mono_ms(&stk_clock_real) + FATBIN_MAX_MS;
    uint64_t end = at + size;
    code_found found = {.ptx_arch = -1};
    while (at < end && found.n_headers < FATBIN_MAX_HEADERS &&
           stk_clock_mono_ms(&stk_clock_real) < late_ms) {
        uint64_t next = read_container(fd, at, end, &found);
        found.n_headers++;
        at = next > 0 ? (next + 7) & ~(uint64_t)7 : at + 8; /* skip padding between them */
    }
    if (at < end) {
        return false; /* a partial list would hide code that exists */
    }
    *ret_arch_bits = found.arch_bits;
    *ret_ptx_arch = found.ptx_arch;
    return found.arch_bits != 0 || found.ptx_arch >= 0;
}
