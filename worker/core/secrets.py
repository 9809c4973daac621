"""Finds secrets by their names, and logins in addresses. Code that shows or logs a text masks it here."""

from __future__ import annotations

import re

MASK = "***"

# The words of librdkafka's names, and of most programs. Some hold a login as a whole: `sasl.oauthbearer.config`.
_WORDS = "password|passphrase|secret|credential|jaas|pem|jwt|extensions"
_WHOLE = r"\.config|\.cmd"

NAME = re.compile(rf"{_WORDS}|token|assertion|key|(?:{_WHOLE})$", re.IGNORECASE)
# The rest of a name after such a word. It has a bound, because a text of such words alone would take time in the square
# of its length: 160 KB of `password` held the process up for 166 s (measured 2026-11).
_REST = r"[\w.-]{0,64}"
# The end of a name and its value within a text. A name before a colon may be no setting there, but a model's input
# (`tokens`, `token_type_ids`) or an error (`AssertionError`).
_IN_TEXT = rf"{_WORDS}|token(?!(?-i:[a-z]|_type|_id){_REST}:)|assertion(?!error)|\bkey|[._]key|oauthbearer(?:{_WHOLE})"
SETTING = re.compile(
    rf"((?:{_IN_TEXT}){_REST}\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
# A user, a password or a token in an address: `http://user:password@host`.
LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
# A key itself, given where the path of its file belongs.
PEM = re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|$)", re.DOTALL)


def masked(value: str) -> str:
    """The value if it holds no secret, else a mask."""
    is_secret = LOGIN.search(value) or PEM.search(value) or ("://" in value and SETTING.search(value))
    return MASK if is_secret else value


def without_login(text: str) -> str:
    """The text with the logins in its addresses masked. Addresses keep their host."""
    return LOGIN.sub(MASK, text)
