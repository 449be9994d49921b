/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy engine, which brings whole pieces of global to shared memory, and the barriers
 * in shared memory that it reports to.
 */
#ifndef TD_OPS_CUDA_BULK_CUH
#define TD_OPS_CUDA_BULK_CUH

#include "ops/cuda/device.cuh"

TD_DEVICE uint32_t td_shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

TD_DEVICE void td_barrier_init(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals)
                 : "memory");
}

/* The copy engine knows of the barriers that the thread has made. */
TD_DEVICE void td_barrier_ready(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and `bytes` will come. */
TD_DEVICE void td_barrier_expect(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                 "r"(bytes)
                 : "memory");
}

TD_DEVICE void td_barrier_wait(uint32_t at, uint32_t parity)
{
    asm volatile("{\n\t"
                 ".reg .pred over;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t"
                 "@!over bra again;\n\t"
                 "}" ::"r"(at),
                 "r"(parity)
                 : "memory");
}

/* Global to shared memory by the copy engine; all are multiples of 16. */
TD_DEVICE void td_bulk_copy(uint32_t to, const void *from, uint32_t bytes,
                            uint32_t full)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full)
                 : "memory");
}

#endif
