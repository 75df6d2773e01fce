"""Keeps secrets, and characters that no format can hold, out of everything that is written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote, quote_plus, unquote

REDACTED: Final = "<redacted>"
_SECRET_NAME: Final = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SENSITIVE: Final = r"(?:api[-_]?key|token|secret|password|credentials?)"
_SECRET_ARGUMENT: Final = re.compile(rf"(?i)--?[\w.-]*{_SENSITIVE}")
"""vLLM takes `--api_key` and `--some-config.api_key` too."""
_WITHIN_WORD: Final = re.compile(rf"(?i)(?<![\w-])(--?[\w.-]*{_SENSITIVE})(?:=|\s+)(\S+)")
"""One word may hold a whole argument: `--glm5-serve-arg=--hf-token=x`, or the command of `sh -c`."""
_IN_JSON: Final = re.compile(rf'(?i)("[\w.-]*{_SENSITIVE}"\s*:\s*)"([^"]+)"')
"""vLLM takes some of its configurations as JSON."""
_SHORTEST_IN_ENVIRONMENT: Final = 6
"""Characters. Shorter values of such variables are switches and counts (`0`, `false`, `1024`), and words of reports."""
_SHORTEST_GIVEN: Final = 4
"""Characters. A key that the user named as one; vLLM's own placeholder `EMPTY` is hidden too."""
_SHORTEST_LINE: Final = 16
"""Characters of one line of a secret of several (a private key), which a log may show by itself."""
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/\s'\"]+(?=@)")
_IN_HEADER: Final = re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{4,}|(?<=authorization: basic )[\w+/=-]{4,}")
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n"}


class Redactor:
    """Cleans text of known secrets: `given` ones, and the values of variables whose names say that they are secret."""

    def __init__(self, environment: Mapping[str, str], given: Iterable[str] = ()) -> None:
        secrets = {value for value in given if len(value) >= _SHORTEST_GIVEN}
        for name, value in environment.items():
            is_count = "TOKENS" in name.upper() and value.isdecimal()
            if is_secret_name(name) and len(value) >= _SHORTEST_IN_ENVIRONMENT and not is_count:
                secrets.add(value)
        secrets |= {line for secret in secrets for line in secret.split("\n") if len(line) >= _SHORTEST_LINE}
        spelled = {form for secret in secrets for form in _spellings(secret)}
        # Longest first: one secret may begin with another.
        longest_first = sorted(spelled, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if spelled else None

    def hide(self, text: str) -> str:
        """`text` without secrets, otherwise as it is."""
        hidden = self._pattern.sub(REDACTED, text) if self._pattern else text
        return _IN_HEADER.sub(REDACTED, _USER_IN_URL.sub(REDACTED, hidden))

    def clean(self, text: str, limit: int | None = None) -> str:
        """`text` without secrets, with control characters spelled out, cut in the middle to `limit` characters."""
        clean = self.hide(text).translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")
        if limit is not None and len(clean) > limit:
            half = limit // 2
            clean = f"{clean[:half]}\n... {len(clean) - 2 * half} characters left out ...\n{clean[-half:]}"
        return clean

    def has_secret(self, text: str) -> bool:
        """Whether `hide` would change something."""
        return self.hide(text) != text


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def redact_command(command: Sequence[str]) -> list[str]:
    """The command line without secret arguments (`--api-key X Y`, `--api-key=X`) and without users in URLs."""
    clean = []
    for word, secret in _words(command):
        shown = REDACTED if secret else _WITHIN_WORD.sub(rf"\1={REDACTED}", word)
        clean.append(_USER_IN_URL.sub(REDACTED, _IN_JSON.sub(rf'\1"{REDACTED}"', shown)))
    return clean


def secrets_in(command: Iterable[str]) -> set[str]:
    """What `redact_command` would hide, for a Redactor of texts that may repeat it; users in URLs as headers too."""
    found: set[str] = set()
    for word, is_secret in _words(command):
        within = (*_WITHIN_WORD.findall(word), *_IN_JSON.findall(word))
        found |= {word} if is_secret else {value for _, value in within}
        for user in _USER_IN_URL.findall(word):
            password = user.partition(":")[2] or user
            found |= {user, password, unquote(password), base64.b64encode(unquote(user).encode()).decode()}
    return found


def _words(command: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each word, and whether it is the value of a secret argument before it. Such arguments take several values."""
    after_secret = is_first = False
    for word in command:
        is_value = after_secret and (is_first or not word.startswith("-"))
        yield word, is_value
        is_first = not is_value and _SECRET_ARGUMENT.fullmatch(word) is not None
        after_secret = is_first or is_value


def _spellings(secret: str) -> set[str]:
    """The secret as it appears in plain text, in a repr, in JSON, in a shell's quotes and in a URL."""
    return {
        secret,
        repr(secret)[1:-1],
        secret.replace("\\", "\\\\").replace('"', '\\"'),
        json.dumps(secret)[1:-1],
        secret.replace("'", "'\"'\"'"),
        quote(secret),
        quote_plus(secret),
    }
