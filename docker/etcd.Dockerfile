# One etcd of Debian's, for the replica set of docker-compose.ha.yml. Its data is in /var/lib/etcd.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends etcd-server \
    && install -d -o 10001 -g 10001 -m 700 /var/lib/etcd
USER 10001:10001
VOLUME /var/lib/etcd
EXPOSE 2379 2380
ENTRYPOINT ["etcd"]
