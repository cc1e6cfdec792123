package alerting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/testkit"
)

// example is the configuration that users begin with and the lab runs.
func example(t *testing.T) map[string]any {
	t.Helper()
	config, _ := values(t)
	return config
}

// values are the example's configuration and its templates, by the names of their files.
func values(t *testing.T) (config map[string]any, templates map[string]string) {
	t.Helper()
	path := filepath.Join(testkit.Root(), "manifests", "kube-prometheus-stack", "alertmanager.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Alertmanager struct {
			Config        map[string]any    `yaml:"config"`
			TemplateFiles map[string]string `yaml:"templateFiles"`
		} `yaml:"alertmanager"`
	}
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return values.Alertmanager.Config, values.Alertmanager.TemplateFiles
}

// manager is an Alertmanager with the example, whose receivers call us.
type manager struct {
	address string

	mu       sync.Mutex
	received map[string][]labels // by receiver
	texts    []string            // of messages, as the example's template writes them
}

func startManager(t *testing.T) *manager {
	t.Helper()
	program := testkit.Tool(t, "alertmanager")
	m := &manager{address: testkit.FreeAddress(t), received: map[string][]labels{}}
	hook := httptest.NewServer(m)
	t.Cleanup(hook.Close)
	config, templates := values(t)
	for _, r := range config["receivers"].([]any) {
		r := r.(map[string]any)
		r["webhook_configs"] = []any{map[string]any{"url": hook.URL, "send_resolved": false}}
		r["slack_configs"] = []any{map[string]any{"api_url": hook.URL + "/slack", "channel": "x", "text": `{{ template "plumbline.text" . }}`}}
	}
	folder := t.TempDir()
	config["templates"] = []string{filepath.Join(folder, "*.tmpl")} // as the chart has it for its own folder
	for name, text := range templates {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "alertmanager.yml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command(program, "--config.file="+file, "--storage.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+m.address, "--cluster.listen-address="))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return m.call(http.MethodGet, "/-/ready", nil, nil) })
	return m
}

// start runs a program until the test ends, and logs its output if the test fails.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", cmd.Path, log.Bytes())
		}
	})
}

func (m *manager) call(method, path string, send, answer any) error {
	data, err := json.Marshal(send)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, "http://"+m.address+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// ServeHTTP takes what a receiver is sent.
func (m *manager) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var message struct {
		Receiver    string
		Alerts      []struct{ Labels labels }
		Attachments []struct{ Text string } // of Slack's
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range message.Attachments {
		m.texts = append(m.texts, a.Text)
	}
	for _, a := range message.Alerts {
		m.received[message.Receiver] = append(m.received[message.Receiver], a.Labels)
	}
}

// sent reports whether a receiver was sent an alert with these labels.
func (m *manager) sent(receiver string, want labels) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.received[receiver] {
		if has(l, want) {
			return true
		}
	}
	return false
}

func has(l, want labels) bool {
	for name, value := range want {
		if l[name] != value {
			return false
		}
	}
	return true
}

// post has alerts fire.
func (m *manager) post(t *testing.T, all ...labels) {
	t.Helper()
	var alerts []any
	for _, l := range all {
		alerts = append(alerts, map[string]any{"labels": l, "startsAt": time.Now()})
	}
	if err := m.call(http.MethodPost, "/api/v2/alerts", alerts, nil); err != nil {
		t.Fatal(err)
	}
}

// held returns whether an alert is held back by another one.
func (m *manager) held(want labels) (bool, error) {
	var alerts []struct {
		Labels labels
		Status struct{ InhibitedBy []string }
	}
	if err := m.call(http.MethodGet, "/api/v2/alerts", nil, &alerts); err != nil {
		return false, err
	}
	for _, a := range alerts {
		if maps.Equal(a.Labels, want) {
			return len(a.Status.InhibitedBy) > 0, nil
		}
	}
	return false, fmt.Errorf("%v is not there", want)
}
