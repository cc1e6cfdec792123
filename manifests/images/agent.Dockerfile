# Plumbline's node agent. The context is the root of the checkout, after `make image-binaries`.
FROM scratch
ARG TARGETARCH
COPY build/linux/${TARGETARCH}/plumbline-agent /plumbline-agent
USER 65532:65532
EXPOSE 9437
ENTRYPOINT ["/plumbline-agent"]
