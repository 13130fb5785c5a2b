# The image of workers, of the outbox's relay and of `kodoctl exporter`; images of applications begin with it. In a clone:
#   docker build -f deploy/worker.Dockerfile -t registry.example/kodo:0.1.0 .
FROM python:3.11 AS build
WORKDIR /src
RUN python -m venv /venv
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN /venv/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements/runtime.txt \
 && pip install --no-cache-dir --require-hashes --no-deps -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY kodoctl kodoctl
COPY consumer consumer
COPY pipeline pipeline
COPY fast fast
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .
# The native border and the compiled core; without this line workers do the same and need more processor time.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./fast
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM python:3.11-slim
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    KODO_CONSUMER_HOST=0.0.0.0 \
    KODO_CONSUMER_PORT=9464
WORKDIR /app
USER 65532:65532
EXPOSE 9464
# For Docker alone: Kubernetes has probes of its own.
HEALTHCHECK --start-period=30s --timeout=5s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
CMD ["kodo-consumer", "run", "app:consumer", "--log-format", "json"]
