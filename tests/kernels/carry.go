package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plumbline/plumbline/tests/kernels/job"
	"github.com/plumbline/plumbline/tests/testkit"
)

// carry builds what is measured for the guest's architecture, which is not the machine's, and has the guest see it.
func (m *matrix) carry(ctx context.Context, programs string) error {
	bin, blockio := filepath.Join(programs, "bin"), filepath.Join(testkit.Root(), "exporters", "blockio")
	m.guest.shares = []job.Share{
		{Tag: "programs", From: programs, To: programs},
		// Where tests look for third-party programs, and for blockio's object and configuration.
		{Tag: "bin", From: bin, To: filepath.Join(testkit.Root(), "build", "bin")},
		{Tag: "blockio", From: blockio, To: blockio},
	}
	if err := buildExporter(ctx, bin, m.guest.arch); err != nil || !m.replica {
		return err
	}
	return buildEngine(ctx, programs, filepath.Join(bin, "longhorn-engine"), m.guest.arch)
}

// buildExporter has tools/build compile ebpf_exporter, if its cache has none, and copies it into a folder.
func buildExporter(ctx context.Context, folder, arch string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, filepath.Join(testkit.Root(), "tools", "build"), "--arch="+arch, "ebpf_exporter")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building ebpf_exporter: %w", err)
	}
	program, err := os.ReadFile(filepath.Join(testkit.Root(), "build", "bin", arch, "ebpf_exporter"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "ebpf_exporter"), program, 0o755)
}

// buildEngine compiles the Longhorn engine that tools/longhorn-engine pins, without its one part in C: reading backing
// files, which the volumes here do not have.
func buildEngine(ctx context.Context, work, file, arch string) error {
	const module = "github.com/longhorn/longhorn-engine"
	pinned, source, pins := filepath.Join(testkit.Root(), "tools", "longhorn-engine"), filepath.Join(work, "engine"), filepath.Join(work, "engine.mod")
	env := append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	call := func(program string, args ...string) (string, error) {
		c := exec.CommandContext(ctx, program, args...)
		c.Dir, c.Env = pinned, env
		var failed strings.Builder
		c.Stderr = &failed
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("building longhorn-engine: %s: %w\n%s", c, err, &failed)
		}
		return strings.TrimSpace(string(out)), nil
	}
	if _, err := call("go", "mod", "download", module); err != nil {
		return err
	}
	original, err := call("go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	for _, command := range [][]string{
		{"cp", "-r", "--no-preserve=mode", original, source},
		{"cp", filepath.Join(testkit.Root(), "tests/kernels/testdata/qcow.go"), filepath.Join(source, "pkg/qcow/libqcow.go")},
		{"cp", "go.mod", pins},
		{"cp", "go.sum", strings.TrimSuffix(pins, ".mod") + ".sum"},
		{"go", "mod", "edit", "-replace=" + module + "=" + source, pins},
		{"go", "build", "-modfile=" + pins, "-buildvcs=false", "-trimpath", "-tags=netgo,osusergo", "-ldflags=-s -w", "-o", file, module},
	} {
		if _, err := call(command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}
