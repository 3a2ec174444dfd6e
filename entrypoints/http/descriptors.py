"""Room for open connections: the process's limit of open files, raised as far as the system lets it."""

from __future__ import annotations


def raise_descriptor_limit(wanted: int) -> int | None:
    """Raise the soft limit to `wanted` or to the hard limit; returns the limit now, None where there is none."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, target), hard))
    except (OSError, ValueError):
        return soft
    return max(soft, target)
