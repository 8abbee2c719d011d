/* parameters.h: the weight and bias of the rows of a plan. Knows which rows share them. */

/* A row's weights or biases, where they lie or gathered to the room; which row lies there, for the next */
typedef struct {
    real *room; /* (cols,) */
    const char *there;
} parameter_row;

ALWAYS const real *parameters_of(const ln_view *a, ptrdiff_t row, parameter_row *gathered) {
    char *p = a->data ? row_of(a, row) : 0;
    if (!p || is_direct(a)) return (const real *)p;
    if (gathered->there != p) gather_row(a, p, gathered->room);
    gathered->there = p;
    return gathered->room;
}

/* Rows from `row` to `last` − 1 that have weight and bias in common */
ALWAYS ptrdiff_t rows_in_common(const ln_forward_plan *plan, ptrdiff_t row, ptrdiff_t last) {
    ptrdiff_t rows = last - row;
    if (plan->weight.data && rows_alike(&plan->weight, row) < rows) rows = rows_alike(&plan->weight, row);
    if (plan->bias.data && rows_alike(&plan->bias, row) < rows) rows = rows_alike(&plan->bias, row);
    return rows;
}
