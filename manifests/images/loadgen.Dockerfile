# loadgen by itself: the canary, the soak and its report. The context is the root of the checkout, after
# `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/loadgen /loadgen
USER 65532:65532
EXPOSE 9700
ENTRYPOINT ["/loadgen"]
