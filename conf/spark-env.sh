# Sourced by Spark's launch scripts when SPARK_CONF_DIR is this folder.

# Listen on the loopback interface only; also ends the warning about the host name at each start.
# On a cluster set it to this node's address.
SPARK_LOCAL_IP="${SPARK_LOCAL_IP:-127.0.0.1}"
