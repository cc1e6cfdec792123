# openebs_exporter. The context is the root of the checkout, after `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/openebs_exporter /openebs_exporter
USER 65532:65532
EXPOSE 9438
ENTRYPOINT ["/openebs_exporter"]
