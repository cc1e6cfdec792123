# Cloudflare's ebpf_exporter, as tools/ pins it, static with its C libraries, and Plumbline's block I/O program, which is the
# same for each architecture. The context is the root of the checkout, after `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/ebpf_exporter /ebpf_exporter
COPY exporters/blockio/blkio.yaml exporters/blockio/blkio.bpf.o /etc/plumbline/
USER 65532:65532
EXPOSE 9435
ENTRYPOINT ["/ebpf_exporter", "--config.dir=/etc/plumbline", "--config.names=blkio"]
