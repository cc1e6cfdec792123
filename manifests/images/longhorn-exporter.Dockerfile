# longhorn_exporter. The context is the root of the checkout, after `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/longhorn_exporter /longhorn_exporter
USER 65532:65532
EXPOSE 9436
ENTRYPOINT ["/longhorn_exporter"]
