# Sourced by Spark's launch scripts when SPARK_CONF_DIR is this folder.

# Listen on the loopback interface only; also ends the warning about the host name at each start.
# On a cluster set it to this node's address.
SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"

# Spark's Unix sockets (spark-defaults.conf) ask for no secret: a process that may connect is obeyed.
# Spark would make them in the temporary folder of all users, with the rights that the umask leaves.
# So they lie in a folder of this user's, which only this user can enter; Spark itself makes no
# folder. A value given with --conf or in spark-defaults.conf still counts.
SPARK_SOCKET_DIR=
for _base in "${XDG_RUNTIME_DIR:-/tmp}" /tmp; do
  _folder="$_base/spark-sockets-$(id -u)"
  # A Unix socket's whole path is about 100 characters at most, and Spark's names take 42 of them.
  [ "${#_folder}" -le 60 ] || continue
  mkdir -m 700 "$_folder" 2>/dev/null
  # Another user may have been there first, in /tmp with a folder or a link.
  if [ -d "$_folder" ] && [ ! -L "$_folder" ] && [ -O "$_folder" ] && chmod 700 "$_folder"; then
    SPARK_SOCKET_DIR="$_folder"
    break
  fi
done
SPARK_SOCKET_DIR="${SPARK_SOCKET_DIR:-$(mktemp -d /tmp/spark-sockets-XXXXXXXX)}"
SPARK_SUBMIT_OPTS="$SPARK_SUBMIT_OPTS -Dspark.python.unix.domain.socket.dir=$SPARK_SOCKET_DIR"
unset _base _folder
