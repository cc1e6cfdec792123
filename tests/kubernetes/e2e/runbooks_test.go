//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/plumbline/plumbline/tests/testkit"
)

// runbookCommand is a command of a runbook on a line of its own.
var runbookCommand = regexp.MustCompile(`(?m)^ {4}kubectl (.+)$`)

// runRunbooks types each kubectl command of the runbooks once, for the class held and the agent's pod, which must have been
// started again before.
func (n *node) runRunbooks() {
	n.t.Helper()
	pod := n.kubectl("get", "pods", "--namespace=plumbline-node", "--selector=app.kubernetes.io/name=plumbline-agent", "--output=jsonpath={.items[0].metadata.name}")
	// The baseline was pinned by a job of the runbook's name already.
	words := strings.NewReplacer("--namespace plumbline ", "--namespace plumbline-node ", "NAMESPACE", "db-"+held, "CANARY", "postgresql-"+held, "POD", pod, "create job pin-1", "create job runbook-1")
	defer n.try("delete", "job", "runbook-1", "--namespace=db-"+held, "--ignore-not-found")
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "rules", "runbooks", "*.md"))
	n.must(err)
	typed := 0
	for _, file := range files {
		if filepath.Base(file) == "backends.md" {
			continue // of storage backends that this node has not
		}
		text, err := os.ReadFile(file)
		n.must(err)
		for _, found := range runbookCommand.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(found[1], " # ") {
				continue // the comment names the storage backend that it is of, which this node has not
			}
			typed++
			command := words.Replace(found[1])
			if output, err := n.try(strings.Fields(command)...); err != nil {
				n.t.Errorf("%s: %v", filepath.Base(file), err)
			} else if strings.TrimSpace(output) == "" {
				n.t.Errorf("%s: kubectl %s prints nothing", filepath.Base(file), command)
			}
		}
	}
	n.t.Logf("%d commands of %d runbooks typed", typed, len(files))
	if typed < 9 {
		n.t.Errorf("only %d commands were found in the runbooks", typed)
	}
}
