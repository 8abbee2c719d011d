/* names.h: every function that is not inlined carries its dtype and target in its symbol, for profiles and for the test that looks
 * for instructions above the baseline. */
#define LN_PASTE(name, dtype, target) name##_##dtype##_##target
#define LN_EXPAND(name, dtype, target) LN_PASTE(name, dtype, target)
#define LN_NAME(name) LN_EXPAND(name, LN_DTYPE, LN_SUFFIX)

#define center_rows LN_NAME(center_rows)
#define scale_statistics LN_NAME(scale_statistics)
#define scale_normalize LN_NAME(scale_normalize)
#define write_more LN_NAME(write_more)
#define forward_body LN_NAME(forward_body)
#define forward_rows LN_NAME(forward_rows)
#define scale_gradient LN_NAME(scale_gradient)
#define scale_columns LN_NAME(scale_columns)
#define exact_gradients LN_NAME(exact_gradients)
#define any_tile LN_NAME(any_tile)
#define whole_tile LN_NAME(whole_tile)
#define stream_tile LN_NAME(stream_tile)
#define crowded_tile LN_NAME(crowded_tile)
#define crowded_stream_tile LN_NAME(crowded_stream_tile)
#define backward_body LN_NAME(backward_body)
#define backward_rows LN_NAME(backward_rows)
#define fold_plane LN_NAME(fold_plane)
#define fold_blocks LN_NAME(fold_blocks)
