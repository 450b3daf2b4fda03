# syntax=docker/dockerfile:1
# The control plane. Envoys run beside the services, from Envoy's own image: see docker-compose.yml.

ARG PYTHON_VERSION=3.13
ARG NODE_VERSION=22

FROM node:${NODE_VERSION}-slim AS page
WORKDIR /src
COPY gui/ gui/
RUN cd gui \
    && npm install --no-package-lock --ignore-scripts --no-audit --no-fund \
    && node build.mjs /src/cp/gui

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt hatch_build.py LICENSE README.md ./
COPY protos/ protos/
COPY generators/ generators/
COPY gui/ gui/
COPY cp/ cp/
COPY --from=page /src/cp/gui/ cp/gui/
RUN pip wheel --no-cache-dir --constraint constraints.txt --wheel-dir /wheels '.[cp]'

FROM python:${PYTHON_VERSION}-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'koguma[cp]'
RUN useradd --system --create-home --home-dir /var/lib/koguma koguma
USER koguma
WORKDIR /var/lib/koguma
VOLUME /var/lib/koguma
ENV KUMA_GENERAL_WORK_DIR=/var/lib/koguma \
    KOGUMA_BIND=0.0.0.0 \
    PYTHONUNBUFFERED=1
EXPOSE 5678 5680 5681
STOPSIGNAL SIGTERM
CMD ["koguma", "run"]
