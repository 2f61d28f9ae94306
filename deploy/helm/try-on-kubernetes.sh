#!/usr/bin/env bash
# Tries the chart on the Kubernetes that kubectl points at: install, test, upgrade, a config that cannot work, a roll
# back, another number of brokers, and how many brokers were away at once meanwhile. In a namespace of its own, which it
# makes, and deletes at the end.
#
#   deploy/helm/try-on-kubernetes.sh VALUES.yaml [IMAGE-TAG-TO-UPGRADE-TO]
#
# VALUES.yaml names the image and the stores, which must be empty; the cluster must be able to pull the image.
set -euo pipefail
values=${1:?the values of the installation, as a file}
tag=${2:-}
chart=$(cd "$(dirname "$0")/dray" && pwd)
space=dray-trial-$$
seen=$(mktemp)
watcher=

end() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  kubectl delete namespace "$space" --wait=false
  rm -f "$seen"
}
trap end EXIT

release() { helm "$1" trial "$chart" --namespace "$space" --values "$values" --wait --timeout 15m "${@:2}"; }
ready() { kubectl -n "$space" get statefulset trial-broker -o jsonpath='{.status.readyReplicas}'; }
wanted() { kubectl -n "$space" get statefulset trial-broker -o jsonpath='{.spec.replicas}'; }
ids() { kubectl -n "$space" exec trial-broker-0 -c broker -- drayd admin cluster --json | tr -d ' \n' | grep -o '"id":[0-9]*'; }
told() { printf '%s: %s\n' "$1" "$2"; }
fail() { told failed "$1" >&2; exit 1; }

# The fewest ready brokers from here on.
watch_brokers() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  wanted > "$seen"
  (while sleep 0.5; do now=$(ready || echo 0); [ "${now:-0}" -ge "$(cat "$seen")" ] || echo "${now:-0}" > "$seen"; done) &
  watcher=$!
}
at_most_one_was_away() {
  [ "$(cat "$seen")" -ge $(($(wanted) - 1)) ] || fail "$1: only $(cat "$seen") of $(wanted) brokers were ready at once"
  told "$1" "never more than one broker away"
}

kubectl create namespace "$space"
release install
helm test trial --namespace "$space"
before=$(ids)
told installed "$(echo "$before" | tr '\n' ' ')"

watch_brokers
release upgrade ${tag:+--set image.tag="$tag"} --set broker.podAnnotations.trial=upgraded
at_most_one_was_away upgrade
[ "$(ids)" = "$before" ] || fail "the ids of brokers changed: $before became $(ids)"

watch_brokers
! release upgrade --set config.log.no_such_setting=1 || fail "a config that no pod can start with was taken"
[ "$(ready)" = "$(wanted)" ] || fail "a config that was refused took brokers away"
told "a config that cannot work" "refused, and nothing was restarted"

watch_brokers
helm rollback trial 1 --namespace "$space" --wait --timeout 15m
at_most_one_was_away rollback

release upgrade --set broker.replicas=$(($(wanted) + 1))
[ "$(ready)" = "$(wanted)" ] || fail "a broker that was added is not ready"
told "one broker more" "ready"
kubectl -n "$space" delete pod trial-broker-0 --wait
kubectl -n "$space" wait pod/trial-broker-0 --for=condition=Ready --timeout=5m
told "a pod that was deleted" "came back"
