"""A checkpoint on a Hadoop file system, such as HDFS, as Hadoop's own client reads it.

Spark's processes that plan and commit for a sink reach no JVM of Spark's: the driver's answers to
the driver's program only. So each of them keeps a JVM of its own, with the classes and the settings
of Spark: $SPARK_HOME/jars, and the files in $HADOOP_CONF_DIR. It is started for the first file that
is read, which takes a second, and ends with its process.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.find_spark_home import _find_spark_home

from txlog.errors import StoreDenied, StoreUnavailable, TxlogError, UsageError

_JVM_OPTIONS = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class HadoopFiles:
    """A checkpoint's folder, by its URL as Hadoop's `Path` takes it: nothing is URL-decoded."""

    url: str

    def read(self, name: str) -> bytes | None:
        """See CheckpointFiles. Raises UsageError if Hadoop has no client for the URL."""

        def contents(jvm: _Jvm) -> bytes:
            path = jvm.path(self.url, name)
            stream = path.getFileSystem(jvm.configuration).open(path)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return self._answer(name, contents)

    def list_names(self, folder: str) -> list[str]:
        """See CheckpointFiles. Raises UsageError if Hadoop has no client for the URL."""

        def names(jvm: _Jvm) -> list[str]:
            path = jvm.path(self.url, folder)
            found = path.getFileSystem(jvm.configuration).listStatus(path)
            # One text: each call for a name of its own would be another message to the JVM.
            text = jvm.as_text(jvm.as_paths(found))
            paths = text.removeprefix("{").removesuffix("}").split(",")
            # Of a name with a comma only the first half has a folder; it is none of Spark's.
            return [found.rpartition("/")[2] for found in paths if "/" in found]

        return self._answer(folder, names) or []

    def _answer(
        self, name: str, question: Callable[[_Jvm], AnswerT], *, is_repeated: bool = False
    ) -> AnswerT | None:
        """Hadoop's answer, None if the file or folder does not exist."""
        where = f"{self.url}/{name}"
        try:
            return question(_jvm())
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
                return None
            raise _failure(where, error.java_exception) from error
        except (Py4JError, OSError) as error:
            stop_jvm()  # It was ended from outside, and reading can be repeated.
            if is_repeated:
                raise StoreUnavailable(f"{where} cannot be read: {error}. Try again.") from error
            return self._answer(name, question, is_repeated=True)


def _failure(where: str, failure: Any) -> TxlogError:
    """The error for an exception of Hadoop's, by what the caller should do."""
    kind, text = failure.getClass().getName(), str(failure.toString()).splitlines()[0]
    if kind.endswith(("AccessControlException", "AccessDeniedException")):
        return StoreDenied(
            f"{where} cannot be read: {text}. Give the driver's user permission; with Kerberos, "
            "the driver's machine needs a ticket (kinit)."
        )
    if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
        return UsageError(
            f"{where} cannot be read: {text}. Copy the jars of this file system to "
            "$SPARK_HOME/jars of the driver, or name them in SPARK_DIST_CLASSPATH: the sink reads "
            "the checkpoint in a JVM of its own, which does not see --packages and --jars."
        )
    return StoreUnavailable(
        f"{where} cannot be read: {text}. If the host is not the one that Spark uses, set "
        "HADOOP_CONF_DIR to the folder of core-site.xml and hdfs-site.xml: the sink does not see "
        "spark.hadoop.* settings. Otherwise try again."
    )


@dataclass(frozen=True, slots=True)
class _Jvm:
    """A process, and what is used of it; each name is looked up once, as that takes messages."""

    process: subprocess.Popen[str]
    gateway: JavaGateway
    path: Any
    configuration: Any
    as_paths: Any
    as_text: Any


_running: dict[int, _Jvm] = {}
"""By process id: a forked child starts a JVM of its own."""


def _jvm() -> _Jvm:
    """This process's JVM. Raises UsageError if it does not start."""
    pid = os.getpid()
    if pid not in _running:
        _running[pid] = _started()
    return _running[pid]


def stop_jvm() -> None:
    """End this process's JVM, if it has one; for the next file another is started."""
    jvm = _running.pop(os.getpid(), None)
    if jvm is not None:
        jvm.gateway.close()
        jvm.process.kill()
        jvm.process.communicate()


def _started() -> _Jvm:
    jars = os.path.join(_find_spark_home(), "jars", "*")
    names = ("SPARK_CONF_DIR", "", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
    class_path = [os.environ.get(name) if name else jars for name in names]
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    command = [java, *_JVM_OPTIONS, "-cp", os.pathsep.join(filter(None, class_path))]
    # It ends with its standard input, so however this process ends; and it asks for the token.
    command += ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, text=True)
    except OSError as error:
        raise _not_started(java, error) from error
    lines = iter(process.stdout or ())
    port, token = next(lines, "").strip(), next(lines, "").strip()
    if not token:
        process.communicate()
        raise _not_started(java, f"it ended with {process.returncode}")
    # Once the JVM is ended from outside, py4j logs a stack trace for each object that was in it.
    logging.getLogger("py4j.java_gateway").setLevel(logging.CRITICAL)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=token))
    fs = gateway.jvm.org.apache.hadoop.fs
    return _Jvm(
        process,
        gateway,
        path=fs.Path,
        configuration=gateway.jvm.org.apache.hadoop.conf.Configuration(),
        as_paths=fs.FileUtil.stat2Paths,
        # Of Java's own functions none takes an array of any class, as py4j looks for the exact one.
        as_text=gateway.jvm.org.apache.commons.lang3.ArrayUtils.toString,
    )


def _not_started(java: str, reason: object) -> UsageError:
    return UsageError(
        f"{java}, which reads the checkpoint, did not start: {reason}. Set SPARK_HOME and "
        "JAVA_HOME as for Spark's driver."
    )
