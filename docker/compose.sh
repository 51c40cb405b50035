#!/usr/bin/env bash
# The compose file with whatever Docker there is: compose v2 if present, else v1.
#
#   docker/compose.sh up      build the image, start the broker, wait until it is healthy
#   docker/compose.sh down    stop it; the volume with the messages stays
#   docker/compose.sh ha up   the same for docker-compose.ha.yml: a set of three replicas
#   docker/compose.sh ...     anything else goes to compose as it is: logs, ps, restart, down --volumes
#                             (behind "ha", to the set's)
#
# DOCKER names the client, COMPOSE_PROJECT_NAME the project, ROCKHOPPER_*_PORT the published ports,
# ROCKHOPPER_NETWORK the first three numbers of the set's addresses.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
docker=${DOCKER:-docker}
export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-rockhopper}
export ROCKHOPPER_IMAGE=${ROCKHOPPER_IMAGE:-rockhopper}

if "$docker" compose version >/dev/null 2>&1; then
  compose=("$docker" compose)
elif command -v docker-compose >/dev/null; then
  compose=(docker-compose)
else
  echo "compose.sh: neither '$docker compose' nor docker-compose is there; install one of them" >&2
  exit 1
fi
file=docker-compose.yml services=(broker)
if [ "${1:-}" = ha ]; then
  shift
  file=docker-compose.ha.yml services=(broker1 broker2 broker3)
  export COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME}-ha
  export ROCKHOPPER_ETCD_IMAGE=${ROCKHOPPER_ETCD_IMAGE:-rockhopper-etcd}
  export ROCKHOPPER_NETWORK=${ROCKHOPPER_NETWORK:-10.89.77}
fi
compose+=(-f "$root/docker/$file")

build() {
  # The host's network, so that pip reaches the package index wherever the host does.
  "$docker" build --network=host -f "$root/docker/Dockerfile" -t "$ROCKHOPPER_IMAGE" "$root"
  if [ "$file" = docker-compose.ha.yml ]; then
    "$docker" build --network=host -f "$root/docker/etcd.Dockerfile" -t "$ROCKHOPPER_ETCD_IMAGE" "$root/docker"
  fi
}

# A volume of random bytes that all replicas have, made once.
make_secret() {
  "$docker" run --rm --user 0 --network none -v "${COMPOSE_PROJECT_NAME}_secret:/secret" \
    --entrypoint sh "$ROCKHOPPER_IMAGE" -c 'cd /secret && [ -s ha ] || { umask 077; \
    head -c 32 /dev/urandom | base64 > ha; chown 10001 ha; }'
}

# Without waiting for the engine's own check, which is rare.
wait_until_healthy() {
  local container state service=$1
  container=$("${compose[@]}" ps -q "$service")
  for _ in $(seq 240); do
    state=$("$docker" inspect -f '{{.State.Status}}' "$container")
    [ "$state" = running ] || break
    "$docker" exec "$container" rockhopper-healthy 2>/dev/null && return
    sleep 0.5
  done
  echo "compose.sh: $service is $state and takes no messages; its last words:" >&2
  "$docker" logs --tail 20 "$container" >&2
  exit 1
}

case "${1:-}" in
  up)
    build
    if [ "$file" = docker-compose.ha.yml ]; then make_secret; fi
    "${compose[@]}" up -d
    for service in "${services[@]}"; do wait_until_healthy "$service"; done
    if [ "$file" = docker-compose.ha.yml ]; then
      echo "The set is up: name servers $ROCKHOPPER_NETWORK.21:9876;$ROCKHOPPER_NETWORK.22:9876;$ROCKHOPPER_NETWORK.23:9876"
      exit
    fi
    echo "Rockhopper is up: name server 127.0.0.1:${ROCKHOPPER_NAMESRV_PORT:-9876}," \
      "from containers of the network ${COMPOSE_PROJECT_NAME}_default broker:9876"
    ;;
  build) build ;;
  "") sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
  *) "${compose[@]}" "$@" ;;
esac
