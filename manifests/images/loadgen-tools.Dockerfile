# loadgen with the tools it drives: pgbench, sysbench and fio out of Debian's packages, and k6 with its SQL module. The context is
# the root of the checkout, after `make image-binaries image-tools`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/loadgen-tools/ /
COPY build/linux/${TARGETARCH}/loadgen build/linux/${TARGETARCH}/k6 /usr/local/bin/
USER 65532:65532
EXPOSE 9700
ENTRYPOINT ["/usr/local/bin/loadgen"]
