/* kernels.h: the contract between Cython and C. What a row kernel takes, gives and promises.
 *
 * Every array is C-contiguous and aligned to its own element; x, weight, bias, y, dy, dx, dweight and dbias
 * have the table's dtype, mean, rstd and sums are float64. Indices and lengths count elements.
 * A kernel is a pure function of its arguments and a range of rows: no allocation, no threads, no errors, no
 * globals. It computes in round-to-nearest without flush-to-zero whatever the caller's mode, and puts that back.
 * The bits it writes depend on the row (and, for sums, on the block) alone: not on the range it is called
 * with, the instruction set, the alignment, or `far`.
 * far: near in the caches next to a core; beyond them inputs are fetched ahead of their use; in memory, besides, an output that is no
 * input is written past the caches. */
#ifndef LN_KERNELS_H
#define LN_KERNELS_H

#include <stddef.h>

enum { LN_NEAR, LN_BEYOND_CORE, LN_IN_MEMORY }; /* far */
enum { LN_LAYER_NORM, LN_RMS_NORM, LN_NORMS };
enum { LN_FLOAT32, LN_FLOAT64, LN_DTYPES, LN_FLOAT16 = LN_DTYPES, LN_BFLOAT16 }; /* of tables, and besides of views */

/* y = (x − mean) · rstd · weight + bias for rows first … last − 1; of RMSNorm, here and below, mean is 0, and the array not touched */
typedef void ln_forward(const void *x,      /* in   (rows, cols)                                             */
                        const void *weight, /* in   (cols,), NULL for ones                                   */
                        const void *bias,   /* in   (cols,), NULL for none                                   */
                        ptrdiff_t first,    /* in   the first row                                            */
                        ptrdiff_t last,     /* in   the row after the last                                   */
                        ptrdiff_t cols,     /* in   ≥ 1                                                      */
                        double eps,         /* in   ≥ 0, finite                                              */
                        int far,            /* in   how far away the arrays are: see below                  */
                        void *y,            /* out  (rows, cols), may be x                                   */
                        double *mean,       /* out  (rows,), or NULL                                         */
                        double *rstd        /* out  (rows,), or NULL                                         */
);

/* dx = rstd · (h − mean(h) − xhat · mean(h · xhat)), of RMSNorm without mean(h), h = dy · weight, for rows first … last − 1;
 * sums = Σ dy · xhat and Σ dy (of RMSNorm: 0) over those rows, which must be one whole block of the plan */
typedef void ln_backward(const void *x,      /* in   (rows, cols)                                             */
                         const void *dy,     /* in   (rows, cols)                                             */
                         const void *weight, /* in   (cols,), NULL for ones                                   */
                         const double *mean, /* in   (rows,)                                                  */
                         const double *rstd, /* in   (rows,)                                                  */
                         ptrdiff_t first,    /* in   the first row                                            */
                         ptrdiff_t last,     /* in   the row after the last, > first                          */
                         ptrdiff_t cols,     /* in   ≥ 1                                                      */
                         int far,            /* in   how far away the arrays are: see below                  */
                         void *dx,           /* out  (rows, cols), may be x or dy, NULL: not wanted           */
                         double *sums        /* out  (planes, cols), this block's, NULL: not wanted           */
);

/* The same in two steps, where rows are too long for that: what dx needs of each row, … */
typedef void ln_constants(const void *x,      /* in   (rows, cols)                                             */
                          const void *dy,     /* in   (rows, cols)                                             */
                          const void *weight, /* in   (cols,), NULL for ones                                   */
                          const double *mean, /* in   (rows,)                                                  */
                          const double *rstd, /* in   (rows,)                                                  */
                          ptrdiff_t first,    /* in   the first row, a multiple of `group`                     */
                          ptrdiff_t last,     /* in   the row after the last, another or rows                  */
                          ptrdiff_t cols,     /* in   ≥ 1                                                      */
                          int far,            /* in   how far away the arrays are                              */
                          int wanted,         /* in   1: dx is                                                 */
                          void *constants     /* out  (⌈rows / group⌉,) of constants_size bytes                */
);

/* … and then columns first … last − 1 of all those rows: dx, and Σ dy · xhat and Σ dy, added to sums or, where they are NULL, written to
 * dweight and dbias */
typedef void ln_columns(const void *x,         /* in   (rows, cols)                                             */
                        const void *dy,        /* in   (rows, cols)                                             */
                        const void *weight,    /* in   (cols,), NULL for ones                                   */
                        const void *constants, /* in   (⌈rows / group⌉,) of constants_size bytes                */
                        ptrdiff_t rows,        /* in   ≥ 1                                                      */
                        ptrdiff_t first,       /* in   the first column                                         */
                        ptrdiff_t last,        /* in   the column after the last                                */
                        ptrdiff_t cols,        /* in   ≥ 1                                                      */
                        int far,               /* in   how far away the arrays are                              */
                        int begins,            /* in   1: put to sums, not added                                */
                        void *dx,              /* out  (rows, cols), may be x or dy, NULL: not wanted           */
                        double *sums,          /* in, out (planes, cols), or NULL                               */
                        void *dweight,         /* out  (cols,), NULL: not wanted, or sums are                   */
                        void *dbias            /* out  (cols,), NULL: not wanted, or sums are                   */
);

/* dweight, dbias = the blocks' sums added in their order, for columns first … last − 1 */
typedef void ln_fold(const double *sums, /* in   (blocks, planes, cols)                                   */
                     ptrdiff_t blocks,   /* in   ≥ 1                                                      */
                     ptrdiff_t first,    /* in   the first column                                         */
                     ptrdiff_t last,     /* in   the column after the last                                */
                     ptrdiff_t cols,     /* in   ≥ 1                                                      */
                     void *dweight,      /* out  (cols,), NULL: not wanted                                */
                     void *dbias         /* out  (cols,), NULL: not wanted                                */
);

/* Rows that do not lie side by side, or are not the table's dtype, or have something added, or hidden: each is gathered, goes through the
 * kernels above, which give it the bits that they give a plain array, and is scattered. */

enum { LN_AXES = 64 };

/* An array as rows of columns, its axes from the slowest to the fastest: lengths in elements, strides in bytes, 0 where it is broadcast.
 * Its elements are aligned and native. An axis of length 1 has the stride of a contiguous one. */
typedef struct {
    char *data; /* NULL: not there */
    int dtype, itemsize;
    int row_axes, col_axes; /* ≥ 1 */
    ptrdiff_t row_lengths[LN_AXES], row_strides[LN_AXES], col_lengths[LN_AXES], col_strides[LN_AXES];
} ln_view;

/* A row's elements lie side by side; or the rows do, across their columns: channels first */
static inline int ln_is_contiguous(const ln_view *a) { return a->col_axes == 1 && a->col_strides[0] == a->itemsize; }
static inline int ln_runs_across(const ln_view *a) {
    const int inner = a->row_axes - 1;
    return a->data && !ln_is_contiguous(a) && a->row_strides[inner] == a->itemsize && a->row_lengths[inner] > 1;
}

/* Each row lies as it is computed with, in elements of this size, or there is none; and the rows lie side by side */
static inline int ln_has_plain_rows(const ln_view *a, int itemsize) {
    return !a->data || (ln_is_contiguous(a) && a->itemsize == itemsize);
}
static inline int ln_is_plain(const ln_view *a, ptrdiff_t cols, int itemsize) {
    return !a->data || (ln_has_plain_rows(a, itemsize) && a->row_axes == 1 && a->row_strides[0] == cols * itemsize);
}

/* Everything a forward pass over views needs. Statistics are those of x + residual, of float16 and bfloat16 widened to float32. */
typedef struct {
    ln_view x;            /* in   (rows, cols)                                                          */
    ln_view residual;     /* in   (rows, cols), x's dtype                                               */
    ln_view mask;         /* in   (rows, cols), bytes: 0 hides                                          */
    ln_view weight, bias; /* in   (rows, cols), x's dtype or the table's                                */
    ptrdiff_t rows, cols; /* in   ≥ 1                                                                   */
    ptrdiff_t block;      /* in   rows gathered at a time: ln_block_rows                                */
    double eps;           /* in   ≥ 0, finite                                                           */
    int far;              /* in   how far away the arrays are                                           */
    ln_view sum;          /* out  (rows, cols), x's dtype: x + residual, may be x or residual           */
    ln_view y;            /* out  (rows, cols), x's dtype, may be x or residual                         */
    double *mean, *rstd;  /* out  (rows,), or NULL                                                      */
} ln_forward_plan;

typedef struct {
    ln_view x, dy;             /* in   (rows, cols)                                                          */
    ln_view mask;              /* in   (rows, cols), bytes: 0 hides                                          */
    ln_view weight;            /* in   (rows, cols), x's dtype or the table's                                */
    ln_view ds;                /* in   (rows, cols): added to dx                                             */
    const double *mean, *rstd; /* in   (rows,)                                                               */
    ptrdiff_t rows, cols;      /* in   ≥ 1                                                                   */
    ptrdiff_t block;           /* in   rows gathered at a time: ln_backward_rows                             */
    int far;                   /* in   how far away the arrays are                                           */
    ln_view dx;                /* out  (rows, cols), may be x, dy or ds                                      */
} ln_backward_plan;

/* Rows first … last − 1; room: ln_room(block, bytes of cols) bytes, aligned to 64 */
typedef void ln_forward_views(const ln_forward_plan *plan, ptrdiff_t first, ptrdiff_t last, void *room);
/* … which must be one whole block, of one row of weight; sums: out (planes, cols), or NULL */
typedef void ln_backward_views(const ln_backward_plan *plan, ptrdiff_t first, ptrdiff_t last, void *room, double *sums);

/* The pieces that layer norm splits into (lnfast/split.py), and derivatives of it and of its backward pass (lnfast/derivatives.py),
 * each a kernel of its own. */
enum {
    LN_MOMENTS,         /* mean = Σ x / cols − shift, m2 = Σ (x − Σ x / cols)²                                  */
    LN_NORMALIZE,       /* out = xhat · weight + bias,   xhat = ((x − shift) − mean) · rstd in this and two more  */
    LN_BACKWARD_SUMS,   /* sum_h = Σ h, sum_h_xhat = Σ h · xhat, h = dy · weight; sums as ln_backward's         */
    LN_BACKWARD_APPLY,  /* out = rstd · (h − sum_h / count − xhat · sum_h_xhat / count)                         */
    LN_JVP,             /* out: the tangent of y to those of x, weight and bias, which are ddx, ddweight, ddbias */
    LN_DOUBLE_BACKWARD, /* out, gx: gradients for dy and x of Σ ddx · dx + Σ ddweight · dweight + Σ ddbias · dbias;
                           sums the one for weight, and 0                                                       */
    LN_PIECES
};

/* Their operands; a piece looks at those alone that its equation names. */
typedef struct {
    const void *x;        /* in   (rows, cols)                                          */
    const void *dy;       /* in   (rows, cols)                                          */
    const void *weight;   /* in   (cols,), NULL for ones                                */
    const void *bias;     /* in   (cols,), NULL for none                                */
    const void *ddx;      /* in   (rows, cols), NULL for zeros                          */
    const void *ddweight; /* in   (cols,), NULL for zeros                               */
    const void *ddbias;   /* in   (cols,), NULL for zeros                               */
    const double *shift;  /* in   (rows,), NULL for zeros                               */
    const double *count;  /* in   (rows,)                                               */
    const double *rstd;   /* in   (rows,)                                               */
    double *mean;         /* in, of LN_MOMENTS out   (rows,)                            */
    double *m2;           /* out  (rows,)                                               */
    double *sum_h;        /* in, of LN_BACKWARD_SUMS out   (rows,)                      */
    double *sum_h_xhat;   /* in, of LN_BACKWARD_SUMS out   (rows,)                      */
    void *out;            /* out  (rows, cols), may be x or, but for gx, dy or ddx      */
    void *gx;             /* out  (rows, cols)                                          */
    ptrdiff_t cols;       /* in   ≥ 1                                                   */
    int far;              /* in   how far away the arrays are                           */
} ln_operands;

/* One piece of rows first … last − 1 */
typedef void ln_piece(const ln_operands *operands, /* in, and what it points to                           */
                      ptrdiff_t first,             /* in   the first row                                  */
                      ptrdiff_t last,              /* in   the row after the last                         */
                      double *sums                 /* out  (planes, cols), this block's, NULL: not wanted */
);

/* float32 rounded to a half type, to nearest even */
typedef void ln_narrow(const void *from, /* in   (n,)                        */
                       ptrdiff_t n,      /* in   ≥ 0                         */
                       int dtype,        /* in   LN_FLOAT16 or LN_BFLOAT16   */
                       void *to          /* out  (n,)                        */
);

/* One instruction set's kernels for one norm and dtype. */
typedef struct {
    ln_forward *forward;
    ln_backward *backward;
    ln_constants *constants;
    ln_columns *columns;
    ln_fold *fold;
    int planes;            /* float64 planes of cols elements in one block's sums */
    int group;             /* rows that share one element of `constants`          */
    size_t constants_size; /* of that element, in bytes                           */
    ln_forward_views *forward_views;
    ln_backward_views *backward_views;
    ln_narrow *narrow;           /* of float32 alone              */
    ln_piece *pieces[LN_PIECES]; /* of layer norm alone: RMSNorm has none */
} ln_rows;

/* Rows gathered at a time, of `size` bytes each, in eights: what stays in the first-level cache until it is normalised. Where rows are
 * gathered from across them (`across`) more, since each column then is a longer run (beyond the caches half the time): what fits into half
 * of a second-level cache; and as many as share a cache line at least, if that is not too much. */
enum { LN_BLOCK_BYTES = 32768, LN_ACROSS_BYTES = 262144, LN_LINE_BYTES = 64, LN_MOST_ACROSS_BYTES = 1048576 };
static inline ptrdiff_t ln_block_rows(ptrdiff_t size, int itemsize, int across) {
    const ptrdiff_t fit = (across ? LN_ACROSS_BYTES : LN_BLOCK_BYTES) / size, line = LN_LINE_BYTES / itemsize;
    const ptrdiff_t rows = fit >= 64 ? 64 : fit >= 8 ? fit / 8 * 8 : fit > 1 ? fit : 1;
    return across && rows < line && line * size <= LN_MOST_ACROSS_BYTES ? line : rows;
}

/* Backward's: whole strips, and for short rows whole groups, so that the sums are added in the order of a block at once */
static inline ptrdiff_t ln_backward_rows(ptrdiff_t size, int itemsize, int across) {
    const ptrdiff_t rows = ln_block_rows(size, itemsize, across), least = size <= 16384 ? 8 : 4;
    return rows < least ? least : rows;
}

/* Bytes that one row takes in the room: packing writes a register too much. And all: so many rows, what becomes of them, and what there
 * is of one row; or, across, two tiles of no more rows and two lines. */
static inline ptrdiff_t ln_room_of_row(ptrdiff_t size) { return size + 2 * LN_LINE_BYTES; }
static inline size_t ln_room(ptrdiff_t rows, ptrdiff_t size) { return (size_t)((3 * rows + 16) * ln_room_of_row(size)); }

/* dispatch.c */
int ln_choose(const char *name); /* in force from now on: `name`, or the best for NULL or ""; 0, or −1: not there */
const char *ln_isa(void);        /* the name in force                                        */
const char *ln_isa_at(int i);    /* the i-th that this CPU can run, best first, NULL past the end */
const ln_rows *ln_rows_of(int norm, int dtype); /* the kernels in force                       */

#endif
