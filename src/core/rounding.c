/* SPDX-License-Identifier: MIT
 *
 * See rounding.h. */
#include "config.h"

#include "core/rounding.h"

#ifdef __x86_64__
#include <xmmintrin.h>

/* All but the flags of past exceptions; fegetenv() would take many times as long. */
static bool is_default(void)
{
    return (_mm_getcsr() & 0xffc0u) == 0x1f80u;
}
#elif defined(__aarch64__)
static bool is_default(void)
{
    fenv_t now;
    return fegetenv(&now) == 0 && now.__fpcr == 0;
}
#else
static bool is_default(void)
{
    return fegetround() == FE_TONEAREST;
}
#endif

void ddp_rounding_hold(struct ddp_rounding *rounding)
{
    rounding->changed = !is_default();
    if (!rounding->changed)
        return;
    fegetenv(&rounding->before);
    fesetenv(FE_DFL_ENV);
}

void ddp_rounding_release(const struct ddp_rounding *rounding)
{
    if (rounding->changed)
        fesetenv(&rounding->before);
}
