"""HTTP to the daemons of a cluster. Proxies and .netrc of the environment are for other servers, and are not used."""

from typing import Any

import requests


def session() -> requests.Session:
    """Return a session that connects to a daemon directly."""
    direct = requests.Session()
    direct.trust_env = False
    return direct


def get(url: str, params: Any = None, **options: Any) -> requests.Response:
    """Return the answer to a single GET request. Raises requests.RequestException."""
    with session() as direct:
        return direct.get(url, params=params, **options)
