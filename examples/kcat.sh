#!/bin/sh
# kcat, unchanged, against Waystation (apt install kcat).
set -eu
BOOTSTRAP="${WAYSTATION_BOOTSTRAP:-localhost:9092}"
TOPIC=example-kcat

echo "# produce ten orders; the topic is created by the first"
for number in 0 1 2 3 4 5 6 7 8 9; do
    echo "customer-$((number % 3)):order $number"
done | kcat -P -b "$BOOTSTRAP" -t "$TOPIC" -K : -z snappy

echo "# read them back: partition, offset, key and value"
kcat -C -b "$BOOTSTRAP" -t "$TOPIC" -o beginning -e -q -f '%p %o %k: %s\n'

echo "# what the cluster looks like"
kcat -L -b "$BOOTSTRAP" -t "$TOPIC"
