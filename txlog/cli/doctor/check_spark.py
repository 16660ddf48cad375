"""Whether Spark would start here, find the source, and run it well.

Spark imports every top-level package named pyspark_* in the Python that it starts; if one raises,
it finds no source at all. This check does the same in a process of that Python. Spark itself is
neither started nor imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from txlog.cli.doctor.check import Check, failed, passed, warned
from txlog.cli.doctor.check_packages import installed_version
from txlog.cli.spark_environment import SPARK_DEFAULTS, own_conf
from txlog.distribution import install_command

JAVA_MIN = 17
JAVA_TIMEOUT_S = 30
DISCOVERY_TIMEOUT_S = 120
"""Large packages are slow to import from a cold disk."""

SHIM = "pyspark_txlog"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
SPARK_ENV = "spark-env.sh"

_PROPERTY = re.compile(r"\s*([^#!\s=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$")

# BaseException: a package that calls sys.exit() when it is imported must not end the check. The
# answer is the last line, because packages may print while they are imported.
_DISCOVERY = """
import importlib, json, pkgutil, sys
found = {}
for module in pkgutil.iter_modules():
    if module.name.startswith("pyspark_"):
        try:
            package = importlib.import_module(module.name)
            error = getattr(package, "IMPORT_ERROR", None)
        except BaseException as raised:
            error, found[module.name] = raised, {"raised": True}
        else:
            found[module.name] = {"raised": False}
        found[module.name]["error"] = error and f"{type(error).__name__}: {error}"
answer = {"version": sys.version_info[:2], "prefix": sys.prefix, "found": found}
print(json.dumps(answer))
"""


def spark_checks() -> Iterator[Check]:
    """Java, Spark's Python, discovery of the source, and the setting that saves 42 ms a batch."""
    if installed_version("pyspark") is None:
        fix = f"{install_command('spark')} to use Spark"
        yield warned("Spark", "pyspark is not installed", fix)
        return
    yield from _spark_home()
    yield _java()
    yield from _discovery_checks()
    yield _unix_sockets()


def _spark_home() -> Iterator[Check]:
    """A check that failed, if PySpark would not find its Spark: it trusts SPARK_HOME, even if the
    variable is empty."""
    home = os.environ.get("SPARK_HOME")
    if home is not None and not Path(home, "bin", "spark-submit").is_file():
        fix = "unset SPARK_HOME, as PySpark has a Spark of its own, or set it to a folder of Spark"
        yield failed("SPARK_HOME", f"{home!r} has no bin/spark-submit", fix)


def _java() -> Check:
    home = os.environ.get("JAVA_HOME", "")
    java = str(Path(home) / "bin" / "java") if home else "java"
    fix = f"install a JDK {JAVA_MIN} or newer, or set JAVA_HOME to one"
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed("Java", f"{java} does not run ({type(error).__name__})", fix)
    # Java prints its version to stderr.
    version = java_version(done.stderr + done.stdout)
    if version is None:
        return failed("Java", f"{java} does not print its version", fix)
    if version < JAVA_MIN:
        return failed("Java", f"{version} ({java}); Spark 4 needs {JAVA_MIN} or newer", fix)
    return passed("Java", f"{version} ({shutil.which(java) or java})")


def java_version(text: str) -> int | None:
    """The major version in the output of `java -version`; 8 for its old form, 1.8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _discovery_checks() -> Iterator[Check]:
    python = os.environ.get("PYSPARK_PYTHON") or "python3"  # Spark's own default.
    use_this = f"export PYSPARK_PYTHON={sys.executable}"
    if (of_driver := os.environ.get("PYSPARK_DRIVER_PYTHON", python)) != python:
        yield warned(
            "PYSPARK_DRIVER_PYTHON",
            f"{of_driver}: Spark runs it for a source that it finds by itself, on executors, too",
            "call register(spark) in the job, or unset it",
        )
    try:
        done = subprocess.run(
            [python, "-c", _DISCOVERY],
            capture_output=True,
            text=True,
            timeout=DISCOVERY_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        version, is_this = tuple(answer["version"]), answer["prefix"] == sys.prefix
    # PYSPARK_PYTHON may name any program, which then prints anything.
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        yield failed("Spark's Python", f"{python} does not run ({type(error).__name__})", use_this)
        return
    if version != sys.version_info[:2]:
        found = f"{python} is Python {version[0]}.{version[1]}, this one is another"
        yield failed("Spark's Python", found, use_this)
    else:
        yield passed("Spark's Python", f"{version[0]}.{version[1]} ({shutil.which(python)})")
    # If Spark's Python is another one, the remedy is to use this one, which has txlog.
    yield from discovered(answer["found"], install_command("spark") if is_this else use_this)


def discovered(found: Mapping[str, Any], fix: str) -> Iterator[Check]:
    """One check for each package that Spark would import; `fix` installs a missing one."""
    if SHIM not in found:
        yield failed(
            "source discovery",
            f"Spark's Python has no package {SHIM}, so format('txlog') is unknown",
            fix,
        )
    for name, answer in found.items():
        if answer["raised"]:
            yield failed(
                "source discovery",
                f"{name} cannot be imported ({answer['error']}); while it is installed Spark finds "
                "no Python source at all",
                f"pip uninstall {name.replace('_', '-')}, or repair it",
            )
        elif answer["error"]:
            yield failed("source discovery", f"{name}: {answer['error']}", fix)
        else:
            yield passed("source discovery", name)


def _unix_sockets() -> Check:
    folder = _conf_folder()
    path = folder / SPARK_DEFAULTS
    try:
        values = properties(path.read_text(encoding="utf-8"))
    except OSError:
        values = {}
    if values.get(UNIX_SOCKETS, "").lower() == "true":
        return _socket_folder(folder, values)
    return warned(
        "Unix sockets",
        f"{UNIX_SOCKETS} is not set in {path}: each micro-batch takes about 42 ms longer",
        f"write '{UNIX_SOCKETS} true' there and set {SOCKET_FOLDER} to a folder of mode 700, "
        f"or {_own_conf()}",
    )


def _socket_folder(folder: Path, values: Mapping[str, str]) -> Check:
    """Check that other users cannot connect: Spark requires no secret on a Unix socket."""
    path = folder / SPARK_DEFAULTS
    try:
        # txlog's own spark-env.sh sets it, as the folder's name contains the user's id.
        is_set = SOCKET_FOLDER in (folder / SPARK_ENV).read_text(encoding="utf-8")
    except OSError:
        is_set = False
    if is_set or SOCKET_FOLDER in values:
        return passed("Unix sockets", f"{UNIX_SOCKETS} is true in {path}")
    return warned(
        "Unix sockets",
        f"{SOCKET_FOLDER} is not set in {path}: the sockets lie in the temporary folder of all "
        "users, and Spark executes what any process that can connect sends",
        f"make a folder with mkdir -m 700 and write '{SOCKET_FOLDER} <it>' there, or {_own_conf()}",
    )


def _own_conf() -> str:
    """How to use txlog's own Spark settings."""
    folder = own_conf()
    if folder is not None:
        return f"export SPARK_CONF_DIR={folder}"
    return "set SPARK_CONF_DIR to the folder conf of txlog's sources"


def _conf_folder() -> Path:
    """The folder that Spark's launch scripts use: SPARK_CONF_DIR, else conf below SPARK_HOME."""
    if conf := os.environ.get("SPARK_CONF_DIR"):
        return Path(conf)
    if home := os.environ.get("SPARK_HOME"):
        return Path(home) / "conf"
    spec = importlib.util.find_spec("pyspark")
    home_of_pip = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    return home_of_pip / "conf"


def properties(text: str) -> dict[str, str]:
    """The names and values of a Java properties file, in the subset that Spark's defaults use."""
    matches = [match for line in text.splitlines() if (match := _PROPERTY.match(line))]
    return {match[1]: match[2] for match in matches}
