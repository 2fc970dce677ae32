#!/bin/sh
# Restarts brokers one after the other, each only once all replicas are in sync again.
# waystation-rolling-restart.sh HOST...          WAYSTATION_BOOTSTRAP names the cluster
set -eu
for host in "$@"; do
    waystation cluster status --wait 10m > /dev/null
    echo "restarting $host"
    ssh "$host" sudo systemctl restart waystation
done
waystation cluster status --wait 10m
waystation cluster elect
