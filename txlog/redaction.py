"""Removes secrets from a text before it is printed, raised or stored.

A secret is recognised by the name before it (`secret.key=`, `--password`, `"token":`), by its place
in a URL (before the host, or in the query), or by its form (an AWS key, a JWT, a PEM block). Free
text keeps everything that is not recognised as secret; in a command line that is not txlog's own,
every option's value is hidden unless the option is known (`redact_arguments`). Pure functions; the
module must not know where a text goes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
"""Replaces a possible secret."""

SAFE_OPTIONS = frozenset(
    """
    --root --checkpoint --checkpoint-location --topic --topics --group --group-id --input --output
    --master --deploy-mode --name --class --packages --jars --py-files --files --archives
    --properties-file --driver-memory --executor-memory --executor-cores --num-executors
    --driver-cores --queue --seconds --rows --count --rate --partitions --trigger --mode --format
    --conf -c
    """.split()  # noqa: SIM905 - a list of words is read more easily.
)
"""Options of a job whose values are shown, except for what `redact` finds in them."""

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credential|sas|sig|signature|auth|cookie|"
    r"authori[sz]ation|sessionid|googleaccessid|client[\s._-]*id|connection[\s._-]*string|"
    r"key\.?(?:id|value|data)|\w[._-]key(?=\\*[\"']?\s?[=:])|"
    r"(?:api|access|account|private|secret|encryption|sse|shared|customer|signing|storage|auth)"
    r"[\s._-]*key)"
)
"""A word that names a secret, alone or with other words around it."""

_WORDS = rf"(?<![\w.-])[\w.-]*?{_NAME}s?(?![a-z])[\w.-]{{0,200}}"
"""A dotted or underscored name with such a word in it: spark.hadoop.fs.s3a.secret.key."""

_QUOTE = r"\\*[\"']"
_VALUE = rf"(?:{_QUOTE}(?:(?!{_QUOTE}).)*{_QUOTE}?|(?:bearer|basic|digest)\s+\S+|[^\s\"'&,;)}}\]]+)"
"""The value after `=` or `:`: a quoted text, a scheme and a token, or everything up to a blank."""

_NAMED = re.compile(
    rf"({_WORDS}(?:{_QUOTE})?\s?[=:]\s?)(?!{re.escape(HIDDEN)})({_VALUE})",
    re.IGNORECASE | re.DOTALL,
)
_OPTION = re.compile(rf"((?<!\S)(?=-){_WORDS}\s+)({_VALUE})", re.IGNORECASE)
# Repetitions have limits, so that a long text takes linear time. A number after the colon is a
# port, not a password. A URL that was taken for a path has one slash left.
_USER_INFO = re.compile(
    r"((?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}:/{1,2})"
    r"([^/\s\"'@:]{0,300}:(?!\d{1,5}(?:[/?\s\"']|$))[^\s\"'@]{0,2000}@(?:[^/\s\"'@]{0,300}@)*"
    r"|(?:[^/\s\"'@]{0,2000}@)+)",
    re.IGNORECASE,
)
_BARE_USER = re.compile(
    r"((?<![\w.-])\w[\w.-]*:|jdbc:oracle:\w+:[^/\s]+/)[^\s:/@\"']+(@[\w-]+\.[\w.-]+|@localhost)"
)
"""`user:password@host.domain` without a scheme before it, and Oracle's form of it."""

_PLAIN_USER = re.compile(r"[A-Za-z][A-Za-z0-9.$_-]{0,31}@")
"""A container or a user: abfss://container@account.dfs.core.windows.net."""

_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<![A-Za-z0-9])(?:A3T[A-Z0-9]|AKIA|ASIA|AGPA|AROA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|(?<![A-Za-z0-9])(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|xox[abprs]-[\w-]{10,}|ya29\.[\w-]{10,}|AIza[\w-]{30,}|sk_live_\w{10,})"
    r"|\b(?:bearer|basic)\s+[\w+/=.~-]{8,}",
    re.IGNORECASE | re.DOTALL,
)
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=])")
_AWS_SECRET_SLASHES_MAX = 3
"""A path has more slashes; so has one random text of 40 in 250, which then is not hidden by its
shape."""

_AWS_SECRET_CHARACTERS_MIN = 20
"""A random text of 40 has some 28 different characters; a path or a hex digest has fewer."""

_QUERY = re.compile(r"([?&#;][^=&#;\s]*=)[^&#;\s\"']*")


_NAME_PARTS = """
    pass pwd secret token credential sas sig auth cookie sessionid googleaccessid client
    connection key
    """.split()  # noqa: SIM905 - a list of words is read more easily.
"""Every text that `_NAMED` or `_OPTION` matches has one of these in it, in lower case."""

_SHAPE_PARTS = """
    -----begin a3t akia asia agpa aroa eyj gh github_pat_ glpat- dapi xox ya29. aiza sk_live_
    bearer basic
    """.split()  # noqa: SIM905 - a list of words is read more easily.
"""Every text that `_SHAPES` matches has one of these in it, in lower case."""


def redact(text: str) -> str:
    """The text with every recognised secret replaced by HIDDEN. Idempotent."""
    if "@" in text:
        text = _USER_INFO.sub(_user_info, text)
        text = _BARE_USER.sub(rf"\1{HIDDEN}\2", text)
    if may_match(text, _NAME_PARTS):
        text = _NAMED.sub(_named, text)
        text = _OPTION.sub(rf"\1{HIDDEN}", text)
    if may_match(text, _SHAPE_PARTS):
        text = _SHAPES.sub(HIDDEN, text)
    return _AWS_SECRET.sub(_aws_secret, text)


def may_match(text: str, parts: Sequence[str]) -> bool:
    """Whether a pattern can match whose every match has one of these parts.

    The patterns take half a millisecond for a line of text, and most errors hold no secret. Where
    letters outside ASCII may equal others by case (the long s), the pattern itself decides.
    """
    lowered = text.lower()
    return not text.isascii() or any(part in lowered for part in parts)


def redact_url(url: str) -> str:
    """A URL that may be shown and stored: no user with a password, no values in its query."""
    return redact(_QUERY.sub(rf"\1{HIDDEN}", url) if "://" in url else url)


def redact_arguments(words: Sequence[str]) -> list[str]:
    """A command line that is not txlog's own, in a form that may be shown.

    The value of an option is hidden unless the option is one of SAFE_OPTIONS: the meaning of others
    is unknown. So is the word after one that names a secret. Hiding too much is harmless.
    """
    shown: list[str] = []
    is_hidden = False
    """Whether the next word is the value of an option that is not known to be safe."""
    for word in words:
        is_name = _OPTION_NAME.fullmatch(word) is not None
        shown.append(HIDDEN if is_hidden and not is_name and word not in "=:" else _word(word))
        is_hidden = _hides_next(word) or (is_hidden and word in "=:")
    return shown


_OPTION_NAME = re.compile(r"--[A-Za-z][\w.-]*(?:=.*)?|-[A-Za-z]", re.DOTALL)
_BEFORE_SECRET = re.compile(
    rf"[\"'{{\[(,]*{_WORDS}[\"']?\s?[=:]?|.*\b(?:bearer|basic|digest)", re.I
)


_ASSIGNED = re.compile(rf"({_WORDS}=).+", re.IGNORECASE | re.DOTALL)


def _hides_next(word: str) -> bool:
    """The next word may be a secret: the value of an unknown option, or of a word that names
    one."""
    if word.startswith("-") and len(word) > 1:
        return "=" not in word and word not in SAFE_OPTIONS
    return _BEFORE_SECRET.fullmatch(word) is not None


def _word(word: str) -> str:
    name, has_value, _ = word.partition("=")
    if not word.startswith("-") or name in SAFE_OPTIONS or any(map(str.isspace, name)):
        return _positional(word)
    if has_value:
        return f"{name}={HIDDEN}"
    # -phush: a short option with its value in the same word.
    return word if _OPTION_NAME.fullmatch(word) or len(word) < 3 else f"{word[:2]}{HIDDEN}"


def _positional(word: str) -> str:
    """A word that is not an option; a value is hidden by its name, a query's values always."""
    if found := _ASSIGNED.fullmatch(word):  # The shell has removed the quotes around a blank.
        return f"{found[1]}{HIDDEN}"
    return redact_url(word)


def _user_info(found: re.Match[str]) -> str:
    is_web = found[1].lower() in ("http://", "https://")
    if not is_web and _PLAIN_USER.fullmatch(found[2]):
        return found[0]
    return f"{found[1]}{HIDDEN}@"


def _named(found: re.Match[str]) -> str:
    value = found[2]
    quote = re.match(_QUOTE, value)
    mark = quote[0] if quote else ""
    return f"{found[1]}{mark}{HIDDEN}{mark if mark and value.endswith(mark) else ''}"


def _aws_secret(found: re.Match[str]) -> str:
    text = found[0]
    is_mixed = all(any(kind(c) for c in text) for kind in (str.isupper, str.islower, str.isdigit))
    is_random = len(set(text)) >= _AWS_SECRET_CHARACTERS_MIN
    is_path = text.count("/") > _AWS_SECRET_SLASHES_MAX
    return HIDDEN if is_mixed and is_random and not is_path else text
