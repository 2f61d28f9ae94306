# One image for all roles: `docker run dray broker`, `compactor`, `admin ...`, `up`.
#
# Its steps are deploy/image/build.sh, which tests run without any container.

# A tag moves, and no digest of it is pinned here: for the bytes that you have checked, --build-arg
# BASE=python@sha256:... (docs/operations/deployment.md says how to find it).
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN /source/deploy/image/build.sh /source /opt/dray

FROM ${BASE}
# Java is for the compactor's Spark; brokers do not touch it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/dray --create-home dray \
    && chmod 700 /var/lib/dray
COPY --from=build /opt/dray /opt/dray
ENV PATH=/opt/dray/bin:$PATH \
    DRAY_DATA_DIR=/var/lib/dray \
    DRAY_BROKER__HTTP=0.0.0.0:9644
USER 10001
WORKDIR /var/lib/dray
VOLUME /var/lib/dray
EXPOSE 9092 9644
STOPSIGNAL SIGTERM
# Spark leaves grandchildren behind, and somebody has to bury them.
ENTRYPOINT ["tini", "--", "drayd"]
CMD ["broker"]
