"""What counts as a secret: by the name it goes by, and a login in an address. For all that is shown or logged."""

from __future__ import annotations

import re

MASK = "***"

# The words of librdkafka's names, and of everybody's. Some hold a login as a whole: `sasl.oauthbearer.config`.
_WORDS = "passwords?|passphrase|secrets?|credentials?|token|jaas|pem|jwt|assertion|extensions"
_WHOLE = r"\.config|\.cmd"

NAME = re.compile(rf"{_WORDS}|key|(?:{_WHOLE})$", re.IGNORECASE)
# A name and what it is set to within a text. There a word may be part of another (`tokenizer`, `monkey`), and a model's
# inputs have names, too: `token_type_ids`.
SETTING = re.compile(
    rf"((?<![\w.-])[\w.-]*(?:{_WORDS}|\bkey|[._]key|oauthbearer(?:{_WHOLE}))(?-i:(?![a-z]))(?!_type|_ids?\b)[\w.-]*\s*[=:]\s*)"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    re.IGNORECASE,
)
# A user and a password in an address: `http://user:password@host`.
LOGIN = re.compile(r"://[^/\s@]*:[^/\s@]*@")


def without_login(text: str) -> str:
    """Addresses keep their host."""
    return LOGIN.sub(f"://{MASK}@", text)
