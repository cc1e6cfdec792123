// Package bpf_test guards the size of the agent's BPF programs.
package bpf_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/disk"
	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	"github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/bpf/trace"
)

var update = flag.Bool("update", false, "write testdata/instructions.txt")

// grows is by how much a program may grow before somebody decides whether that is worth it; a few instructions are
// nothing.
const grows, few = 1.1, 20

var objects = map[string]func() (*ebpf.CollectionSpec, error){
	"disk": disk.LoadDisk, "dispatcher": dispatcher.LoadDispatcher, "iscsi": fabric.LoadIscsi, "iscsi_target": fabric.LoadIscsiTarget, "nvme": fabric.LoadNvme,
	"nvme_target": fabric.LoadNvmeTarget, "query": query.LoadQuery, "dataconn": replica.LoadDataconn, "trace": trace.LoadTrace,
}

// A program's price is its instructions. One that has grown by a tenth is seen here, on every machine alike.
func TestInstructions(t *testing.T) {
	file := filepath.Join("testdata", "instructions.txt")
	got := map[string]int{}
	for object, load := range objects {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name, p := range spec.Programs {
			got[object+" "+name] = len(p.Instructions)
		}
	}
	if *update {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintln(&text, name, got[name])
		}
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(text.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const again = "if that is worth it: go test ./exporters/agent/bpf -update"
	for line := range strings.Lines(string(text)) {
		var object, program string
		var before int
		if _, err := fmt.Sscan(line, &object, &program, &before); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		name := object + " " + program
		switch now, there := got[name]; {
		case !there:
			t.Errorf("%s is no program any more; %s", name, again)
		case float64(now) > grows*float64(before) && now > before+few:
			t.Errorf("%s has %d instructions, and had %d; %s", name, now, before, again)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is new; %s", name, again)
	}
}
