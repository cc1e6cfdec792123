# kubectl's plugin by itself: what `helm test` runs. The context is the root of the checkout, after `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/kubectl-plumbline /kubectl-plumbline
USER 65532:65532
ENTRYPOINT ["/kubectl-plumbline"]
