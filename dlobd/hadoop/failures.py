"""Errors of file systems and HTTP clients. Spark's Python workers import this early, so it imports no HTTP client."""


def failures() -> tuple[type[Exception], type[Exception]]:
    """Return the exception types of a storage (HDFS or disk) that refuses or is unreachable, for `except failures():`.

    Python evaluates the expression only after an exception, so that the HTTP client is imported only then.
    """
    from hdfs import HdfsError

    return HdfsError, OSError


def reason(error: BaseException, connect_s: float, answer_s: float) -> str:
    """Describe a failed HTTP exchange as a predicate of the server, such as "refused the connection". `connect_s` and
    `answer_s` are the timeouts for connecting and between two bytes."""
    import requests
    import urllib3

    chain = []  # the HTTP libraries wrap exceptions around the cause
    cause: BaseException | None = error
    while cause:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for kinds, words in (
        ((requests.ConnectTimeout,), f"accepted no connection within {connect_s:g} s"),
        (
            (requests.Timeout, urllib3.exceptions.ReadTimeoutError, TimeoutError),
            f"did not answer within {answer_s:g} s",
        ),
        ((requests.exceptions.SSLError,), "has no certificate that this machine trusts"),
        ((requests.exceptions.ProxyError,), "cannot be reached through the proxy"),
        ((urllib3.exceptions.NameResolutionError,), "has an unknown host name, or there is no network"),
        ((requests.exceptions.InvalidURL, requests.exceptions.MissingSchema), "is not a valid URL"),
        ((ConnectionRefusedError,), "refused the connection"),
        ((ConnectionError, urllib3.exceptions.ProtocolError), "closed the connection"),
    ):
        if any(isinstance(one, kinds) for one in chain):
            return words
    system = [one.strerror for one in chain if isinstance(one, OSError) and one.errno and one.strerror]
    if system:
        return f"cannot be reached: {system[-1][:1].lower()}{system[-1][1:]}"
    return f"failed: {' '.join(str(error).split())[:200]}"
