"""The one room for what a runtime, or an operator set, needs beyond the standard as a person writes it.

`table` holds the rows and applies them, `kernels` casts around dtypes without a kernel; the other files hold the rows, one
family each; `translations` imports them all.
"""
