# loadgen with the tools it drives: pgbench, sysbench, fio, and k6 with its SQL module. The context is the root of the
# checkout, after `make image-binaries`.
FROM debian:trixie-slim
ARG TARGETARCH
RUN apt-get update \
 && apt-get install -y --no-install-recommends postgresql-17 sysbench fio \
 && rm -rf /var/lib/apt/lists/* \
 && ln -s /usr/lib/postgresql/17/bin/pgbench /usr/local/bin/pgbench
COPY build/linux/${TARGETARCH}/loadgen build/linux/${TARGETARCH}/k6 /usr/local/bin/
USER 65532:65532
EXPOSE 9700
ENTRYPOINT ["/usr/local/bin/loadgen"]
