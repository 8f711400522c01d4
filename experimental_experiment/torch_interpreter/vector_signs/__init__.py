"""Whether what a program computes of singular vectors and eigenvectors depends on their signs, which nothing in a matrix determines.

The vectors that LAPACK gives are those of another algorithm, each times 1 or -1. These signs are followed through a program as formal factors
of the elements of its tensors: products join them, and two of one vector cancel (``V f(e) V^T``, ``U V^T``, outer products, determinants,
quotients); sums keep those that all terms have. Where more than signs is open, as for equal values, or for the space that a matrix maps to
zero, what a function of the matrix is does not depend on the choice either.
"""
