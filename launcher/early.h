/* SPDX-License-Identifier: MIT
 *
 * Signals that come before ddprun can act on them: from the moment at which its libraries are
 * loaded they are noted, instead of ending it. */
#ifndef DDP_LAUNCHER_EARLY_H
#define DDP_LAUNCHER_EARLY_H

/* No signal is noted any more: they have their usual effect again, and so have, now, those that
 * were. With all signals blocked that means that these are pending. */
void early_end(void);

#endif
