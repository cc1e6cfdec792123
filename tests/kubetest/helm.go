package kubetest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Helm runs Helm with a home of its own, and with additional environment variables, and returns its output; if it
// fails, its errors, too.
func Helm(t *testing.T, environment []string, arguments ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(testkit.Tool(t, "helm"), arguments...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Env = append(cmd.Env, environment...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	err := cmd.Run()
	if err != nil {
		return out.String() + errors.String(), err
	}
	return out.String(), nil
}
