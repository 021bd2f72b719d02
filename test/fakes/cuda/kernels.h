/*
 * Kernels for tests of memory on a GPU. A real driver compiles the text; the software driver has
 * them by their names and arguments.
 *
 *     umf_test_fill(uint32_t *at, uint64_t words, uint32_t value, uint32_t delay)
 *     umf_test_check(const uint32_t *at, uint64_t words, uint32_t value, uint32_t *bad)
 *
 * The first waits about `delay` microseconds before it writes; the second adds to `*bad` how many
 * words have another value.
 */
#ifndef UMF_TEST_FAKES_CUDA_KERNELS_H
#define UMF_TEST_FAKES_CUDA_KERNELS_H

static const char *const umf_test_kernels = R"(
.version 6.3
.target sm_70
.address_size 64

.visible .entry umf_test_fill(.param .u64 at, .param .u64 words, .param .u32 value,
                              .param .u32 delay) {
    .reg .pred %done;
    .reg .b32 %block, %threads, %thread, %blocks, %value, %delay;
    .reg .b64 %i, %step, %words, %at, %word;
    ld.param.u64 %at, [at];
    ld.param.u64 %words, [words];
    ld.param.u32 %value, [value];
    ld.param.u32 %delay, [delay];
    cvta.to.global.u64 %at, %at;
wait:
    setp.eq.u32 %done, %delay, 0;
    @%done bra begin;
    nanosleep.u32 1000;
    sub.u32 %delay, %delay, 1;
    bra wait;
begin:
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %step, %blocks, %threads;
    mad.lo.u32 %thread, %block, %threads, %thread;
    cvt.u64.u32 %i, %thread;
next:
    setp.ge.u64 %done, %i, %words;
    @%done ret;
    shl.b64 %word, %i, 2;
    add.u64 %word, %at, %word;
    st.global.u32 [%word], %value;
    add.u64 %i, %i, %step;
    bra next;
}

.visible .entry umf_test_check(.param .u64 at, .param .u64 words, .param .u32 value,
                               .param .u64 bad) {
    .reg .pred %done, %same;
    .reg .b32 %block, %threads, %thread, %blocks, %value, %found;
    .reg .b64 %i, %step, %words, %at, %word, %bad;
    ld.param.u64 %at, [at];
    ld.param.u64 %words, [words];
    ld.param.u32 %value, [value];
    ld.param.u64 %bad, [bad];
    cvta.to.global.u64 %at, %at;
    cvta.to.global.u64 %bad, %bad;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %step, %blocks, %threads;
    mad.lo.u32 %thread, %block, %threads, %thread;
    cvt.u64.u32 %i, %thread;
next:
    setp.ge.u64 %done, %i, %words;
    @%done ret;
    shl.b64 %word, %i, 2;
    add.u64 %word, %at, %word;
    ld.global.u32 %found, [%word];
    setp.eq.u32 %same, %found, %value;
    @!%same red.global.add.u32 [%bad], 1;
    add.u64 %i, %i, %step;
    bra next;
}
)";

#endif
