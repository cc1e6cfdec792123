package main

import (
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/kernels/job"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
)

// What does not work is reported with its reason, and has no numbers.
func TestNotWorking(t *testing.T) {
	one := measured{kernel: kernel{series: "6.12", release: "6.12.1-arm64"}}
	one.outcome.Query = outcome.Feature{Works: true}
	one.outcome.Replica = outcome.Feature{Why: "no such type"}
	one.outcome.Blockio = outcome.Feature{Works: true}
	one.outcome.Disk = []outcome.Count{{What: "reads", Truth: 3, Counted: 3}, {What: "writes", Truth: 4, Counted: 4}}
	var text strings.Builder
	printMatrix(&text, []measured{one})
	for _, want := range []string{"| no | - | no | - | - | no | - | - | yes | 7 of 7 |\n", "6.12: no replica: no such type\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "no blockio") {
		t.Errorf("blockio is reported not to work:\n%s", &text)
	}
}

// The guest of another architecture boots from its own root, on its own machine.
func TestArguments(t *testing.T) {
	g := guest{arch: "arm64", root: "/cache/root", share: "/out", shares: []job.Share{{Tag: "programs", From: "/tmp/p", To: "/tmp/p"}}, memory: 1024, cpus: 1}
	text := strings.Join(g.arguments("/image"), " ")
	for _, want := range []string{"-M virt", "console=ttyAMA0", "thread=single", "local,id=root,path=/cache/root,security_model=none,multidevs=remap,readonly=on",
		"local,id=programs,path=/tmp/p,security_model=none,multidevs=remap,readonly=on", "local,id=host,path=/out,security_model=none,multidevs=remap,readonly=off"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
