"""Keeps secrets, and characters that no format can hold, out of everything that is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

from glm5check.fingerprint import REDACTED

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_IN_ENVIRONMENT: Final = 6
"""Characters. Shorter values of such variables are switches and counts (`0`, `false`, `1024`), and words of reports."""
_SHORTEST_GIVEN: Final = 4
"""Characters. A key that the user named as one; vLLM's own placeholder `EMPTY` is hidden too."""
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/\s@'\"]+(?=@)")
_BEARER: Final = re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{4,}")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n"}


class Redactor:
    """Cleans text of known secrets: `given` ones, and the values of variables whose names say that they are secret."""

    def __init__(self, environment: Mapping[str, str], given: Iterable[str] = ()) -> None:
        secrets = {value for value in given if len(value) >= _SHORTEST_GIVEN}
        for name, value in environment.items():
            is_count = "TOKENS" in name.upper() and value.isdecimal()
            if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_IN_ENVIRONMENT and not is_count:
                secrets.add(value)
        spelled = {form for secret in secrets for form in _spellings(secret)}
        # Longest first: one secret may begin with another.
        longest_first = sorted(spelled, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if spelled else None

    def clean(self, text: str, limit: int | None = None) -> str:
        """`text` without secrets, with control characters spelled out, cut in the middle to `limit` characters."""
        clean = self._pattern.sub(REDACTED, text) if self._pattern else text
        clean = _BEARER.sub(REDACTED, _USER_IN_URL.sub(REDACTED, clean))
        clean = clean.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")
        if limit is not None and len(clean) > limit:
            half = limit // 2
            clean = f"{clean[:half]}\n... {len(clean) - 2 * half} characters left out ...\n{clean[-half:]}"
        return clean

    def has_secret(self, text: str) -> bool:
        """Whether `clean` would hide something."""
        found = self._pattern is not None and self._pattern.search(text) is not None
        return found or _BEARER.search(text) is not None or _USER_IN_URL.search(text) is not None


def _spellings(secret: str) -> set[str]:
    """The secret as it appears in plain text, in a repr, in JSON and in a URL."""
    return {
        secret,
        repr(secret)[1:-1],
        secret.replace("\\", "\\\\").replace('"', '\\"'),
        quote(secret),
        quote_plus(secret),
    }
