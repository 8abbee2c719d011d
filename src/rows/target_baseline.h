/* target_baseline.h: what follows is compiled for the compiler's own baseline (SSE2 on x86-64, NEON on ARM),
 * 16-byte vectors. Ended by target_end.h. */
#include "headers.h"
#define LN_BYTES 16
#define LN_REGISTERS 16 /* ARM has 32: not tried */
#define LN_SUFFIX baseline
