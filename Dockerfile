# syntax=docker/dockerfile:1
# The control plane. Envoys run beside the services, from Envoy's own image: see docker-compose.yml.

# By digest, so that a build tomorrow has the same bases. Dependabot proposes newer ones.
FROM node:22-slim@sha256:c3de60bf2f9dd0ac6370e6117950ff62d6e339527e7472301c9c78a017978392 AS page
WORKDIR /src
COPY gui/ gui/
RUN cd gui \
    && npm install --no-save --ignore-scripts --no-audit --no-fund \
    && node build.mjs /src/cp/gui

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
WORKDIR /src
COPY pyproject.toml constraints.txt constraints-build.txt hatch_build.py LICENSE README.md ./
RUN pip install --no-cache-dir --require-hashes --requirement constraints-build.txt
COPY protos/ protos/
COPY generators/ generators/
COPY gui/ gui/
COPY cp/ cp/
COPY --from=page /src/cp/gui/ cp/gui/
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY constraints.txt debian/sbom.py /usr/share/doc/koguma/
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --require-hashes --requirement /usr/share/doc/koguma/constraints.txt \
    && pip install --no-cache-dir --no-index --no-deps /wheels/koguma-*.whl \
    && python /usr/share/doc/koguma/sbom.py > /usr/share/doc/koguma/sbom.cdx.json
RUN useradd --system --create-home --home-dir /var/lib/koguma koguma
USER koguma
WORKDIR /var/lib/koguma
VOLUME /var/lib/koguma
ENV KUMA_GENERAL_WORK_DIR=/var/lib/koguma \
    KOGUMA_BIND=0.0.0.0 \
    PYTHONUNBUFFERED=1
EXPOSE 5678 5680 5681 5682
STOPSIGNAL SIGTERM
CMD ["koguma", "run"]
