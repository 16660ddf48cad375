#!/bin/sh
# Runs cluster_job.py by spark-submit: examples/spark/submit.sh [LOG CHECKPOINT]
#
# MASTER names the cluster, such as spark://host:7077; by default two executors are started on this
# machine. On a cluster give both places as URLs that every machine sees, such as s3://bucket/log.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
log=${1:-$PWD/txlog-data/cluster/log}
checkpoint=${2:-$PWD/txlog-data/cluster/checkpoint}
exec spark-submit --master "${MASTER:-local-cluster[2,1,1024]}" \
    --conf spark.sql.shuffle.partitions=2 \
    "$here/cluster_job.py" "$log" "$checkpoint"
