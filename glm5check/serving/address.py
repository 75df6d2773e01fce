"""Where a server is, and what it must be told to let us in."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from glm5check.errors import OptionError


@dataclass(frozen=True, slots=True)
class Address:
    """`url` may be shown: it names no user. `authorization` is the value of that header, empty where none is wanted."""

    url: str
    authorization: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, api_key: str = "") -> Address:
        """From what the user gave, such as `http://user:password@host:8000`.

        Raises OptionError if it is no URL, or has a user and there is a key too: one header cannot say both.
        """
        try:
            parts = urlsplit(url)
            user, host = parts.username or "", parts.hostname
        except ValueError:
            host = None
        if not host or parts.scheme not in {"http", "https"}:
            raise OptionError("this is no URL of a server", where=url.rpartition("@")[2], do="give http://HOST:PORT")
        shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        if user and api_key:
            raise OptionError(
                "the URL has a user and there is an API key: a request carries only one of them",
                where=shown,
                do="leave one out: the user in the URL, or --glm5-api-key and GLM5_API_KEY",
            )
        if user:
            password = f"{unquote(user)}:{unquote(parts.password or '')}"
            return cls(shown, f"Basic {base64.b64encode(password.encode()).decode()}")
        return cls(shown, f"Bearer {api_key}" if api_key else "")
