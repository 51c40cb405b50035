#!/usr/bin/env bash
# The compose file with whatever Docker there is: compose v2 if present, else v1.
#
#   docker/compose.sh up      build the image, start the broker, wait until it is healthy
#   docker/compose.sh down    stop it; the volume with the messages stays
#   docker/compose.sh ...     anything else goes to compose as it is: logs, ps, restart, down --volumes
#
# DOCKER names the client, COMPOSE_PROJECT_NAME the project, ROCKHOPPER_*_PORT the published ports.
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
compose+=(-f "$root/docker/docker-compose.yml")

build() {
  # The host's network, so that pip reaches the package index wherever the host does.
  "$docker" build --network=host -f "$root/docker/Dockerfile" -t "$ROCKHOPPER_IMAGE" "$root"
}

wait_until_healthy() {
  local container state
  container=$("${compose[@]}" ps -q broker)
  for _ in $(seq 240); do
    state=$("$docker" inspect -f '{{.State.Status}} {{.State.Health.Status}}' "$container")
    case $state in
      "running healthy") return ;;
      "running starting") sleep 0.5 ;;
      *) break ;;
    esac
  done
  echo "compose.sh: the broker is $state; its last words:" >&2
  "$docker" logs --tail 20 "$container" >&2
  exit 1
}

case "${1:-}" in
  up)
    build
    "${compose[@]}" up -d
    wait_until_healthy
    echo "Rockhopper is up: name service 127.0.0.1:${ROCKHOPPER_NAMESRV_PORT:-9876}," \
      "from containers of the network ${COMPOSE_PROJECT_NAME}_default broker:9876"
    ;;
  build) build ;;
  "") sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  *) "${compose[@]}" "$@" ;;
esac
