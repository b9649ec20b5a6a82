"""How many threads linear algebra uses in a search or a fit."""

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    """A context in which linear algebra uses one thread.

    numpy and scipy each have threads of their own, which a search calls in turns: those of one spin while the other's
    work. On two cores one thread is 6 to 15 times as fast for p-Identity on 256 to 1,024 cells, and 3 times on 2,048; synthesis
    of 48 columns takes 3.7 s of processor time instead of 10 on a busy machine.
    """
    import scipy.linalg  # only what is loaded already is limited
    import scipy.optimize  # noqa: F401
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits
